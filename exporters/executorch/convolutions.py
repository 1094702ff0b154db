"""Stage ``torch_patches`` for convolutions that ExecuTorch's kernels don't compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exporters.registry import register_patch


@register_patch(
    "executorch", "torch.nn.functional.conv3d", upstream="https://github.com/pytorch/executorch/issues/11704"
)
def _patch_conv3d(original: Callable[..., Any]) -> Callable[..., Any]:
    """No kernel convolves over three dimensions; cut into pieces along the first one, two are left.

    So it is where a video is cut into patches: the pieces' frames become channels, and the pieces a batch. Pieces that
    overlap, and a first dimension that is padded, are left as they are.
    """

    def conv3d(
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> torch.Tensor:
        frames = weight.shape[2]
        steps, dilations = _triple(stride), _triple(dilation)
        pads: Any = (padding,) * 3 if isinstance(padding, str) else _triple(padding)
        cut = steps[0] == frames and (dilations[0] == 1 or frames == 1) and pads[0] == 0
        if not cut or groups != 1 or input.dim() != 5:
            return original(input, weight, bias, stride, padding, dilation, groups)
        sizes: tuple[Any, ...] = input.shape
        batch, channels, length, height, width = sizes
        pieces = length // frames
        if isinstance(length, torch.SymInt):  # gathered: a view of them all would tie the graph to whole pieces
            input = input.index_select(2, torch.arange(pieces * frames, device=input.device))
        else:
            input = input[:, :, : pieces * frames]
        apart = input.reshape(batch, channels, pieces, frames, height, width).transpose(1, 2)
        flat = apart.reshape(batch * pieces, channels * frames, height, width)
        found = torch.nn.functional.conv2d(flat, weight.flatten(1, 2), bias, steps[1:], pads[1:], dilations[1:])
        return found.reshape(batch, pieces, *found.shape[1:]).transpose(1, 2)

    return conv3d


def _triple(value: Any) -> tuple[int, int, int]:
    """One number for all three dimensions, or one for each."""
    first, *rest = value if isinstance(value, (tuple, list)) else (value,) * 3
    return (first, *(rest or (first, first)))
