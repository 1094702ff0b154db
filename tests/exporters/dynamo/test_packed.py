from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from exporters.dynamo.packed import _patch_packed_attention, _patch_packed_features, merged_rows, same_sequence
from tests.exporters.models import grid_inputs, tiny_llava, tiny_qwen2_vl


def test_packed_positions_belong_together_within_their_sequence() -> None:
    found = same_sequence(torch.tensor([0, 2, 3], dtype=torch.int32), 3)
    assert found.tolist() == [[[[True, True, False], [True, True, False], [False, False, True]]]]
    assert bool(same_sequence(torch.tensor([0, 3]), 3).all())


def test_attention_under_a_mask_is_attention_within_each_picture() -> None:
    encoder = tiny_qwen2_vl().model.visual
    inputs = grid_inputs((1, 2, 4), (1, 4, 4), (2, 2, 2))
    with torch.no_grad():
        expected = encoder(**inputs).pooler_output
        with _patch_packed_attention(encoder) as changed:
            assert changed == 1
            assert encoder.config._attn_implementation == "flash_packed_by_mask"
            found = encoder(**inputs).pooler_output
    assert encoder.config._attn_implementation == "sdpa"
    torch.testing.assert_close(found, expected)


def test_a_model_without_packed_sequences_is_left_alone() -> None:
    with (
        _patch_packed_attention(torch.nn.Linear(2, 2)) as changed,
        _patch_packed_features(torch.nn.Linear(2, 2)) as cut,
    ):
        assert (changed, cut) == (0, 0)


def test_features_of_all_pictures_stay_one_tensor_and_torch_comes_back() -> None:
    model = tiny_llava()
    pixels = torch.randn(3, 3, 8, 8)
    before = (torch.split, torch.Tensor.__iter__, torch.Tensor.tolist, FakeTensor.tolist, torch.Tensor.shape)
    with torch.no_grad():
        expected = model.get_image_features(pixels).pooler_output
        with _patch_packed_features(model) as changed:
            found = model.get_image_features(pixels).pooler_output
            assert len(list(torch.ones(2, 2, 2))) == 2, "elsewhere a tensor is iterated as ever"
    assert changed == 2
    assert (len(expected), len(found)) == (3, 1)
    assert torch.equal(found[0], torch.cat(expected))
    assert before == (torch.split, torch.Tensor.__iter__, torch.Tensor.tolist, FakeTensor.tolist, torch.Tensor.shape)


def test_grids_stay_packed_too() -> None:
    model = tiny_qwen2_vl()
    inputs = grid_inputs((1, 2, 4), (1, 4, 4))
    with torch.no_grad():
        expected = model.get_image_features(inputs["hidden_states"], inputs["grid_thw"]).pooler_output
        with _patch_packed_features(model):
            found = model.get_image_features(inputs["hidden_states"], inputs["grid_thw"]).pooler_output
    assert [len(each) for each in expected] == [2, 4]
    assert torch.equal(found[0], torch.cat(expected))


@pytest.mark.parametrize("shape", [(2, 4, 3), (5, 3)])
def test_merged_rows_are_what_masked_scatter_gives(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    tensor, source = torch.zeros(shape), torch.randn(20, 3, generator=generator)
    mask = torch.rand(shape[:-1], generator=generator) < 0.5
    expected = tensor.masked_scatter(mask[..., None].expand(shape), source)
    assert torch.equal(merged_rows(tensor, mask, source), expected)
