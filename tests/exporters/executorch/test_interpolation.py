from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import interpolate

from exporters import ExecutorchExporter
from exporters.registry import Hits, apply_patches

FIX = "executorch/torch_patches/patch_bicubic"


class ResizedPositions(torch.nn.Module):
    """The pattern of position embeddings that fit themselves to an image."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = torch.nn.Parameter(torch.randn(1, 16, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = self.positions.transpose(1, 2).view(1, 5, 4, 4)
        resized = torch.nn.functional.interpolate(grid, size=x.shape[1:], mode="bicubic", align_corners=False)
        return resized.flatten(2).transpose(1, 2) + x.flatten(1).unsqueeze(-1)


@pytest.mark.parametrize(
    ("size", "wanted"), [((4, 4), (4, 4)), ((4, 3), (9, 5)), ((7, 5), (3, 2)), ((2, 2), (9, 1)), ((1, 4), (3, 3))]
)
def test_the_products_are_torchs_bicubic_interpolation(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    image = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    expected, hits = interpolate(image, size=wanted, mode="bicubic"), Hits()
    with apply_patches("executorch", "torch_patches", hits):
        ours = interpolate(image, size=wanted, mode="bicubic")
    assert hits.counts[FIX] == 1
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "asked",
    [
        {"size": 7, "mode": "nearest"},
        {"size": (6, 7), "mode": "bicubic", "align_corners": True},
        {"scale_factor": 1.5, "mode": "bicubic"},
        {"size": (3, 2), "mode": "bicubic", "antialias": True},
    ],
)
def test_any_other_interpolation_is_torchs_own(asked: dict[str, Any]) -> None:
    image = torch.randn(2, 3, 4, 5)
    expected = interpolate(image, **asked)
    with apply_patches("executorch", "torch_patches", Hits()):
        assert torch.equal(interpolate(image, **asked), expected)


@pytest.mark.export
def test_resized_position_embeddings_stay_in_order() -> None:
    torch.manual_seed(0)
    model = ResizedPositions().eval()
    artifact = ExecutorchExporter().export_artifact(model, {"x": torch.randn(2, 4, 4)}, {"backend": "portable"})
    assert artifact.workarounds[FIX] == 1
    for shape in ((2, 4, 4), (3, 6, 5)):
        x = torch.randn(shape)
        torch.testing.assert_close(artifact(x=x)["output"], model(x), rtol=1e-4, atol=1e-5)
