"""Convolutions in three dimensions that ExecuTorch has no kernel for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from exporters.executorch.convolutions import _patch_conv3d
from exporters.executorch.exporter import ExecutorchExporter

conv3d = _patch_conv3d(torch.nn.functional.conv3d)
#: Frames in each piece do not overlap; a frame is left over.
CUT: list[dict[str, Any]] = [
    {"stride": (2, 3, 3)},
    {"stride": [2, 1, 2], "padding": (0, 1, 1), "dilation": (1, 2, 1)},
]


@pytest.mark.parametrize(
    "options", [*CUT, {"stride": 1}, {"stride": 2, "padding": 1}, {"padding": "same"}, {"stride": 2, "dilation": 2}]
)
def test_it_is_the_same_convolution(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 7, 9, 12), torch.randn(4, 3, 2, 3, 3), torch.randn(4)
    expected = torch.nn.functional.conv3d(x, weight, bias, **options)
    torch.testing.assert_close(conv3d(x, weight, bias, **options), expected, rtol=1e-4, atol=1e-4)


class Patches(nn.Module):
    """pixel_values: (batch, channels, frames, height, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv3d(3, 4, kernel_size=(2, 4, 4), stride=(2, 4, 4))

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        patches: torch.Tensor = self.cut(pixel_values)
        return patches


@pytest.mark.export
@torch.no_grad()
def test_a_video_is_cut_into_patches_in_executorch() -> None:
    torch.manual_seed(0)
    model = Patches().eval()
    artifact = ExecutorchExporter().export_artifact(model, {"pixel_values": torch.randn(2, 3, 4, 8, 12)})
    assert artifact.workarounds["executorch/torch_patches/patch_conv3d"] == 1
    for batch, frames, height, width in ((2, 4, 8, 12), (3, 5, 12, 8), (1, 6, 8, 8)):
        x = torch.randn(batch, 3, frames, height, width)
        torch.testing.assert_close(artifact(pixel_values=x)["output"], model(x), rtol=1e-4, atol=1e-4)
