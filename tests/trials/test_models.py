"""Trials on whole models whose trace stopped: masks, caches among the outputs, checks of sizes, grids of images."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exporters import DynamoExporter
from exporters.dynamo.pytree import register_cache_pytrees
from exporters.inputs import prepare_export_inputs
from tests.exporters.models import assert_equals_eager

pytestmark = pytest.mark.export


def test_T09_phi_with_its_mask() -> None:
    """https://github.com/pytorch/executorch/issues/13195: masks are no longer made with vmap in the pinned versions."""
    from transformers import PhiConfig, PhiModel

    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 99}
    model = PhiModel(PhiConfig(**sizes, num_hidden_layers=2, initializer_range=0.5)).eval()
    ids, mask = torch.randint(3, 99, (1, 16)), torch.ones(1, 16, dtype=torch.int64)
    register_cache_pytrees(model)
    with torch.no_grad():
        expected = model(ids, mask).last_hidden_state
        found = torch.export.export(model, (ids, mask)).module()(ids, mask).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    padded = mask.repeat(3, 1)
    padded[0, :5] = 0
    sample = {"input_ids": ids.repeat(2, 1), "attention_mask": mask.repeat(2, 1), "use_cache": False}
    call = {"input_ids": ids.repeat(3, 1), "attention_mask": padded, "use_cache": False}
    assert_equals_eager(DynamoExporter().export_artifact(model, sample), model, call, padding_counts=False)


@pytest.mark.parametrize(("batch", "use_cache"), [(1, True), (2, False)])
def test_T14_plain_export_of_mamba_gives_its_cache(batch: int, use_cache: bool) -> None:
    """https://github.com/huggingface/transformers/issues/34349: gone, once the cache is registered as a pytree."""
    model, ids = _mamba(), torch.randint(3, 99, (batch, 7))
    register_cache_pytrees(model)
    with torch.no_grad():
        expected = model(ids, use_cache=use_cache).logits
        program = torch.export.export(model, (ids,), kwargs={"use_cache": use_cache}, strict=False)
        found = program.module()(ids, use_cache=use_cache).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_T14_the_states_of_mamba_are_outputs_at_any_length() -> None:
    """https://github.com/huggingface/transformers/issues/34349"""
    model = _mamba()
    artifact = DynamoExporter().export_artifact(model, {"input_ids": torch.randint(3, 99, (2, 7))})
    assert "cache.layers.1.recurrent_states.0" in artifact.output_paths
    assert_equals_eager(artifact, model, *({"input_ids": torch.randint(3, 99, shape)} for shape in ((1, 9), (3, 2))))


def _mamba() -> Any:
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, "vocab_size": 99}
    return MambaForCausalLM(MambaConfig(**sizes, initializer_range=0.5)).eval()


@pytest.mark.parametrize("strict", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_T21_deformable_detr(strict: bool) -> None:
    """https://github.com/huggingface/transformers/issues/44265: gone in the pinned transformers."""
    from transformers import DeformableDetrConfig, DeformableDetrModel, ResNetConfig

    stages = {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1], "out_features": ["stage2", "stage3", "stage4"]}
    sizes = {f"{side}_{part}": n for side in ("encoder", "decoder") for part, n in (("layers", 1), ("ffn_dim", 32))}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = DeformableDetrConfig(
        backbone_config=ResNetConfig(embedding_size=8, layer_type="basic", **stages),
        use_timm_backbone=False,
        d_model=64,
        num_queries=5,
        **sizes,
        **heads,
    )
    _traced(DeformableDetrModel(config).eval(), 32, strict)


@pytest.mark.parametrize("strict", [pytest.param(True, marks=pytest.mark.slow), False])
def test_T21_mask2former(strict: bool) -> None:
    """https://github.com/huggingface/transformers/issues/44265: gone in the pinned transformers."""
    from transformers import Mask2FormerConfig, Mask2FormerModel, SwinConfig

    backbone = SwinConfig(
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 2, 2],
        window_size=2,
        image_size=64,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = Mask2FormerConfig(
        backbone_config=backbone,
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=32,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=4,
        dim_feedforward=32,
        num_queries=5,
    )
    _traced(Mask2FormerModel(config).eval(), 64, strict)


def _traced(model: Any, side: int, strict: bool) -> None:
    inputs = {"pixel_values": torch.randn(1, 3, side, side)}
    config = {"dynamic": False, "strict": strict}
    assert_equals_eager(DynamoExporter().export_artifact(model, inputs, config), model, inputs)


def _qwen2_vl_vision() -> Any:
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "patch_size": 2}
    config = Qwen2VLVisionConfig(**sizes, spatial_merge_size=2, initializer_range=0.5)
    return Qwen2VisionTransformerPretrainedModel(config).eval()


def _pictures(*grids: tuple[int, int, int]) -> dict[str, torch.Tensor]:
    """Packed patches of pictures of (frames, height, width) in patches."""
    patches = sum(frames * height * width for frames, height, width in grids)
    return {"hidden_states": torch.randn(patches, 3 * 2 * 2 * 2), "grid_thw": torch.tensor(grids)}


def test_T13_plain_export_stops_at_the_values_of_the_grid() -> None:
    """https://github.com/pytorch/pytorch/issues/158786

    When this passes, a graph can compute positions and lengths from a grid: the input preparer of ``grid_thw`` and what
    it makes can go.
    """
    with pytest.raises(Exception, match=r"data-dependent"):
        torch.export.export(_qwen2_vl_vision(), (), kwargs=_pictures((1, 4, 4), (1, 4, 8)), strict=False)


def test_T13_a_vision_tower_takes_other_grids() -> None:
    """https://github.com/pytorch/pytorch/issues/158786: what the graph cannot compute is made outside of it."""
    model = _qwen2_vl_vision()
    artifact = DynamoExporter().export_artifact(model, _pictures((1, 4, 4), (1, 4, 8)))
    others = [_pictures((1, 4, 4), (1, 4, 8)), _pictures((1, 8, 6)), _pictures((1, 4, 4), (2, 6, 4), (1, 2, 4))]
    assert_equals_eager(artifact, model, *others)


def test_T13_control_what_is_made_beforehand_can_be_given() -> None:
    """https://github.com/pytorch/pytorch/issues/158786"""
    model, inputs = _qwen2_vl_vision(), _pictures((1, 4, 4), (1, 4, 8))
    given = prepare_export_inputs(model, inputs)
    assert "cu_seqlens" in given.keys() - inputs.keys()
    artifact = DynamoExporter().export_artifact(model, given, {"dynamic": False})
    assert_equals_eager(artifact, model, given)
