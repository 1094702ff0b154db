"""Reports of wrong numbers in ExecuTorch, one test each.

Every entry of the list of upstream issues whose stage is parity:

| Issue | Where it is checked, or why it is not |
|---|---|
| executorch#16712 | here (slow): a small Parakeet encoder; the report is of a large one and names no cause |
| rf-detr#1233 | here: windowed attention on images with a structure, and that the bot's images have one |
| transformers#47900 | here, and tests/exporters/test_generation.py generates over a sliding window in this runtime |
| optimum-executorch#230 | tests/trials, T04: an encoder called without its mask |
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils import _pytree as pytree

from exporters import ExecutorchExporter
from exporters.dynamo.pytree import register_cache_pytrees
from hfexport_bot.runner.sources import find_model_case
from tests.exporters.models import assert_equals_eager


class Windowed(nn.Module):
    """Patches attend within four windows, as in a windowed DINOv2. pixel_values: (batch, 3, height, width)."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.norm = nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        patches = self.patches(pixel_values).permute(0, 2, 3, 1)
        batch, height, width, channels = patches.shape
        windows = patches.reshape(batch, 2, height // 2, 2, width // 2, channels).permute(0, 1, 3, 2, 4, 5)
        windows = windows.reshape(batch * 4, (height // 2) * (width // 2), channels)
        parts = self.into(self.norm(windows)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        windows = windows + self.out(attended)
        windows = windows.reshape(batch, 2, 2, height // 2, width // 2, channels).permute(0, 5, 1, 3, 2, 4)
        return windows.reshape(batch, channels, height, width)


def _scene(batch: int, side: int) -> torch.Tensor:
    """A gradient with a bright rectangle, far from noise."""
    ramp = torch.linspace(-2, 2, side)
    image = (ramp[:, None] * ramp).expand(batch, 3, side, side).clone()
    image[:, :, side // 4 : side // 2, side // 3 : side // 2] = 2.5
    image[:, 1] *= -1
    return image


@pytest.mark.export
def test_rf_detr_1233_windows_of_an_image_with_a_structure() -> None:
    """https://github.com/roboflow/rf-detr/issues/1233: random pixels hid what the delegate did to real ones."""
    torch.manual_seed(0)
    model = Windowed().eval()
    noise = {"pixel_values": torch.randn(2, 3, 32, 32)}
    artifact = ExecutorchExporter().export_artifact(model, noise, {"dynamic": False})
    assert_equals_eager(artifact, model, noise, {"pixel_values": _scene(2, 32)})


@pytest.mark.export
@pytest.mark.slow
def test_executorch_16712_parakeet_on_xnnpack() -> None:
    """https://github.com/pytorch/executorch/issues/16712"""
    from transformers import ParakeetEncoder, ParakeetEncoderConfig

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_mel_bins": 16}
    widths = {"intermediate_size": 64, "subsampling_conv_channels": 8, "conv_kernel_size": 5}
    model = ParakeetEncoder(ParakeetEncoderConfig(**sizes, **widths, initializer_range=0.5)).eval()
    inputs = {"input_features": torch.randn(2, 48, 16), "attention_mask": torch.ones(2, 48, dtype=torch.long)}
    with torch.no_grad():
        assert float(model(**inputs).last_hidden_state.std()) > 0.1, "no power: the outputs are all but zero"
    artifact = ExecutorchExporter().export_artifact(model, inputs, {"dynamic": False})
    assert_equals_eager(artifact, model, inputs)


def test_rf_detr_1233_images_that_are_tried_have_a_structure() -> None:
    """https://github.com/roboflow/rf-detr/issues/1233"""
    from transformers import ViTModel

    image = find_model_case(ViTModel).inputs["pixel_values"]
    left, right = image[..., :-1].flatten(), image[..., 1:].flatten()
    assert float(torch.corrcoef(torch.stack([left, right]))[0, 1]) > 0.5, "neighbours are alike, as in real images"
    assert float(image.std()) > 0.5


def test_transformers_47900_a_cache_that_is_put_together_again_keeps_its_windows() -> None:
    """https://github.com/huggingface/transformers/pull/47900: layers came back as plain ones, and grew for ever."""
    from transformers import DynamicCache, MistralConfig, MistralForCausalLM

    config = MistralConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, sliding_window=6, vocab_size=9)
    register_cache_pytrees(MistralForCausalLM(config))
    cache: Any = DynamicCache(config=config)
    states = torch.randn(1, 2, 4, 8)
    for layer in range(2):
        cache.update(states, states, layer)
    leaves, spec = pytree.tree_flatten(cache)
    again = pytree.tree_unflatten(leaves, spec)
    assert [type(layer).__name__ for layer in again.layers] == ["DynamicSlidingWindowLayer"] * 2
    for _ in range(3):
        again.update(states, states, 1)
    assert again.layers[1].keys.shape[2] == 5, "a window of 6 keeps 5 for the next token"
