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


def pixel_mask(pixel_values: torch.Tensor | None) -> torch.Tensor | None:
    """Which pixels are no padding: int64 ones, [batch, height, width]; None where pictures do not lie so."""
    if pixel_values is None or pixel_values.ndim != 4:
        return None
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
    """Time series that wander about, float32, [batch, time steps, channels], or [batch, time steps] of one channel."""
    shape = _series(config, batch)
    return torch.randn(shape, generator=generator).cumsum(1) if shape else None


def observed_mask(config: Any, batch: int) -> torch.Tensor | None:
    """Which values of the time series are known: true, as `past_values` lie."""
    shape = _series(config, batch)
    return torch.ones(shape, dtype=torch.bool) if shape else None


def time_features(config: Any, batch: int, generator: torch.Generator) -> torch.Tensor | None:
    """What is known of each past time step, such as the day of the week, float32, [batch, time steps, features]."""
    shape = _series(config, batch)
    features = find_field(config, "num_time_features")
    if not shape or features is None:
        return None
    width = features if find_field(config, "lags_sequence") else 0
    return torch.randn(*shape[:2], max(width, 1), generator=generator)


def _series(config: Any, batch: int) -> tuple[int, ...]:
    """The shape of time series; those with lags have as many more steps as the longest lag."""
    steps, channels = find_field(config, "context_length"), find_field(config, "num_input_channels")
    lags = find_field(config, "lags_sequence")
    if not steps:
        return ()
    if lags:
        size = find_field(config, "input_size") or 1
        return (batch, steps + max(lags), *((size,) if size > 1 else ()))
    return (batch, steps, channels) if channels else ()
