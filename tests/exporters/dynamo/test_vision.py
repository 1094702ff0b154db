"""Image models keep no branch on the traced image's size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from exporters import StageError
from exporters.configs import DynamoConfig
from exporters.dynamo.exporter import DynamoExporter
from exporters.dynamo.vision import Gathering, _viewing
from exporters.registry import replaced

pytestmark = pytest.mark.export


def tiny_swin() -> Any:
    """Two stages; of the last one the second block is shifted."""
    from transformers import SwinConfig, SwinModel

    torch.manual_seed(0)
    config = SwinConfig(image_size=16, patch_size=2, embed_dim=16, depths=[1, 2], num_heads=[2, 2], window_size=2)
    model = SwinModel(config).eval()
    for layer in model.encoder.layers[1].blocks:
        torch.nn.init.normal_(layer.attention.relative_position_bias.relative_position_bias_table)
    return model


def images(height: int, width: int, batch: int = 2) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(height))}


@torch.no_grad()
def test_swin_takes_images_that_do_not_fill_patches_windows_or_pairs_of_patches() -> None:
    model = tiny_swin()
    artifact = DynamoExporter().export_artifact(model, images(16, 16))
    assert [axis.dynamic for axis in artifact.axes] == [True, False, True, True]
    for height, width in ((24, 24), (20, 24), (19, 22)):
        inputs = images(height, width, batch=3)
        expected = model(**inputs)
        actual = artifact(**inputs)
        torch.testing.assert_close(actual["last_hidden_state"], expected.last_hidden_state, rtol=1e-5, atol=1e-5)
    assert model.encoder.layers[1].blocks[1].shift_size == 1  # the model itself is as it was
    assert torch.tensor([torch.tensor(1), torch.tensor(2)]).tolist() == [1, 2]  # and torch's tensors are no sequences
    # A window high in the last stage, and so not shifted. torch's guards refuse a size of one where two were traced;
    # ONNX and ExecuTorch have no guards, and the graph is right.
    inputs = images(8, 24)
    actual = artifact.program.module(check_guards=False)(**inputs)
    expected = model(**inputs).last_hidden_state
    assert model.encoder.layers[1].blocks[1].shift_size == 0
    torch.testing.assert_close(actual.last_hidden_state, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [True, False])
def test_positions_are_interpolated_where_the_image_varies(dynamic: bool) -> None:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = ViTModel(ViTConfig(image_size=16, patch_size=4, **sizes)).eval()
    torch.nn.init.normal_(model.embeddings.position_embeddings)
    inputs = {**images(16, 16), "interpolate_pos_encoding": True}
    artifact = DynamoExporter().export_artifact(model, inputs, config=DynamoConfig(dynamic=dynamic))
    for height, width in ((16, 16), (24, 12)) if dynamic else ((16, 16),):
        inputs = {**images(height, width), "interpolate_pos_encoding": True}
        actual = artifact(**inputs)["last_hidden_state"]
        torch.testing.assert_close(actual, model(**inputs).last_hidden_state, rtol=1e-5, atol=1e-5)
    assert any("upsample" in str(node.target) for node in artifact.program.graph.nodes) == dynamic


class Blocks(nn.Module):
    """Cuts an image into blocks and puts it together again. x: (batch, height, width), both multiples of 2."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        batch, height, width = x.shape
        blocks = (2 * x).view(batch, height // 2, 2, width // 2, 2).transpose(2, 3).reshape(-1, 4)
        joined = blocks.view(-1, height // 2, width // 2, 2, 2).transpose(2, 3).reshape(batch, height * width)
        return {"blocks": blocks, "joined": joined, "turned": x.transpose(0, 1).reshape(height, -1)}


class Wrong(nn.Module):
    """Views a tensor as one of more elements. x: (batch, length)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (2 * x).view(x.shape[0] + 1, x.shape[1])


def test_views_that_are_not_matched_size_by_size_are_right_and_wrong_ones_refused() -> None:
    model = Blocks().eval()
    with replaced(torch._refs, "_reshape_view_helper", _viewing(torch._refs._reshape_view_helper)):
        artifact = DynamoExporter().export_artifact(model, {"x": torch.rand(2, 8, 12)})
        with pytest.raises(StageError, match="invalid for input of size"):
            DynamoExporter().export(Wrong().eval(), {"x": torch.rand(2, 8)})
    for x in (torch.rand(3, 4, 6), torch.rand(2, 10, 4)):
        for name, value in model(x).items():
            assert torch.equal(artifact(x=x)[name], value)


def test_only_slices_up_to_a_varying_size_are_gathered() -> None:
    x = torch.rand(3, 4, 5)
    for index in ((slice(None), slice(2), slice(1, None, 2)), 1, (slice(None), None), (0, slice(2))):
        expected = x[index]
        with Gathering():
            assert torch.equal(x[index], expected)

    class Cut(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with Gathering():
                return x[:, : y.shape[0], 1:3]

    program = DynamoExporter().export(Cut().eval(), {"x": x, "y": torch.rand(4)})
    assert "index_select" in program.graph_module.code
    assert torch.equal(program.module()(x=x, y=torch.rand(2)), x[:, :2, 1:3])
