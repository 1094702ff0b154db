"""Layouts besides plain text, images and sound: boxes on a page, prompts on an image, time series.

Functions give None for a configuration that says nothing of what they lay out.
"""

from __future__ import annotations

from typing import Any

import torch

from hfexport_bot.runner.sources.cases import Inputs
from hfexport_bot.runner.sources.configs import find_field

#: A page's boxes are given in thousandths of its width and height.
_PAGE = 1000
#: Labels of prompting points: on the object, off it, and no point at all (padding).
_POINT_LABELS = torch.tensor([1, 0, -10])


def bbox(config: Any, batch: int, length: int, generator: torch.Generator) -> torch.Tensor | None:
    """The box of each token on its page, int64, [batch, length, 4]: left, top, right, bottom."""
    positions = find_field(config, "max_2d_position_embeddings")
    if not positions:
        return None
    corners = torch.randint(min(_PAGE + 1, positions), (batch, length, 2, 2), generator=generator)
    return corners.sort(dim=2).values.flatten(2)


def pixel_mask(pixel_values: torch.Tensor) -> torch.Tensor:
    """Which pixels are no padding: int64 ones, [batch, height, width]."""
    batch, _, height, width = pixel_values.shape
    return torch.ones(batch, height, width, dtype=torch.int64)


def padded_image(inputs: Inputs) -> Inputs | None:
    """A copy with the right half of the first image and the lower half of the last one padded, as images of different
    sizes are in one batch; None where there is no ``pixel_mask`` to tell it by."""
    if not {"pixel_mask", "pixel_values"} <= set(inputs):
        return None
    mask = inputs["pixel_mask"].clone()
    *_, height, width = mask.shape
    mask[0, :, width // 2 :] = 0
    mask[-1, height // 2 :, :] = 0
    return {**inputs, "pixel_mask": mask, "pixel_values": inputs["pixel_values"] * mask.unsqueeze(1)}


def input_points(batch: int, masks: int, points: int, side: int, generator: torch.Generator) -> torch.Tensor:
    """Points that prompt for masks of an image of ``side`` pixels, float32, [batch, masks, points, 2]: x, y."""
    return side * torch.rand(batch, masks, points, 2, generator=generator)


def input_labels(batch: int, masks: int, points: int, generator: torch.Generator) -> torch.Tensor:
    """What each prompting point says, int64, [batch, masks, points]."""
    return _POINT_LABELS[torch.randint(len(_POINT_LABELS), (batch, masks, points), generator=generator)]


def past_values(config: Any, batch: int, generator: torch.Generator) -> torch.Tensor | None:
    """Time series that wander about, float32, [batch, time steps, channels]."""
    steps, channels = find_field(config, "context_length"), find_field(config, "num_input_channels")
    return torch.randn(batch, steps, channels, generator=generator).cumsum(1) if steps and channels else None


def observed_mask(config: Any, batch: int) -> torch.Tensor | None:
    """Which values of the time series are known: true, [batch, time steps, channels]."""
    steps, channels = find_field(config, "context_length"), find_field(config, "num_input_channels")
    return torch.ones(batch, steps, channels, dtype=torch.bool) if steps and channels else None
