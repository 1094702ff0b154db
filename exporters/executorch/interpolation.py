"""Stage ``torch_patches``: interpolation that ExecuTorch has no kernel for, as products with matrices of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exporters.registry import register_patch


@register_patch(
    "executorch",
    "torch._C._nn.upsample_bicubic2d",  # what interpolate(mode="bicubic") calls
    model_change="interpolate by a product with a matrix of weights for the rows and one for the columns",
)
def _patch_bicubic(original: Callable[..., Any]) -> Callable[..., Any]:
    """There is no kernel for bicubic interpolation, and its decomposition into gathers takes minutes to lower; where
    its input is channels-last, as position embeddings are, views of its result come out mixed up.

    Every row, and every column, of the result is a weighted sum of the input's: two products with matrices.
    """

    def interpolate(image: torch.Tensor, size: Any, align_corners: bool, scale_factors: Any = None) -> torch.Tensor:
        if size is None or align_corners or min(image.shape[-2:]) < 2:
            return original(image, size, align_corners, scale_factors)
        rows, columns = (_weights(given, wanted, image) for given, wanted in zip(image.shape[-2:], size, strict=True))
        return rows @ (image.contiguous() @ columns.transpose(0, 1))

    return interpolate


def _weights(size: int, wanted: int, like: torch.Tensor) -> torch.Tensor:
    """How much of each of ``size`` values makes up each of the ``wanted`` ones: [wanted, size].

    The values before the first and after the last, two at either end, are as those.
    """
    places = (torch.arange(wanted, device=like.device).to(like.dtype) + 0.5) * (size / wanted) - 0.5
    sources = torch.arange(-2, size + 2, device=like.device).to(like.dtype)
    weights = _cubic((places.unsqueeze(1) - sources).abs())
    first, last = weights[:, :3].sum(1, keepdim=True), weights[:, -3:].sum(1, keepdim=True)
    return torch.cat((first, weights[:, 3:-3], last), dim=1)


def _cubic(distance: torch.Tensor, sharpness: float = -0.75) -> torch.Tensor:
    """Keys' kernel of what lies ``distance`` values away: 1 at 0, nothing at 1 and from 2 on."""
    near = ((sharpness + 2) * distance - (sharpness + 3)) * distance * distance + 1
    far = (((distance - 5) * distance + 8) * distance - 4) * sharpness
    return torch.where(distance < 1, near, torch.where(distance < 2, far, torch.zeros_like(distance)))
