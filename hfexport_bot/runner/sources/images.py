"""Layouts of images and videos: their sizes from a configuration, and pixels that show a wrong resampling."""

from __future__ import annotations

import re
from typing import Any

import torch

from hfexport_bot.runner.sources.configs import find_field

#: Pixels a side where the configuration says nothing of it. Networks that halve an image five times over still have
#: more than one position left.
_DEFAULT_SIDE = 64
_DEFAULT_FRAMES = 4

Size = tuple[int, int]  # height and width

#: The name of one of several pictures that a model compares or joins, each an argument of its own.
ONE_OF_SEVERAL = re.compile(r"pixel_values_(\d+|[ab]|left|right|first|second|before|after|ref|reference|target|other)")


def image_size(config: Any) -> Size:
    """The height and width in pixels that ``config`` was made for."""
    size = find_field(config, "image_size", "img_size", "input_size") or _DEFAULT_SIDE
    height, width = size[:2] if isinstance(size, (list, tuple)) else (size, size)
    return int(height), int(width)


def other_sizes(size: Size) -> dict[str, Size]:
    """Sizes to probe, by name: a larger square, and one that is neither square nor a multiple of the usual windows."""
    height, width = size
    larger, shorter = height + height // 2, width + width // 4
    return {f"image_{larger}": (larger, larger), f"image_{larger}x{shorter}": (larger, shorter)}


def takes_videos(model: Any) -> bool:
    """Whether ``pixel_values`` are videos: of a model that has nothing else to see."""
    modalities = getattr(model, "input_modalities", ())
    return "video" in modalities and "image" not in modalities


def pixel_shape(model: Any, batch: int, size: Size) -> tuple[int, ...]:
    """Shape of ``pixel_values``: (batch, channels, height, width), or a video's (batch, frames, channels, height,
    width)."""
    channels = find_field(model.config, "num_channels", "in_channels", "in_chans") or 3
    frames = (find_field(model.config, "num_frames") or _DEFAULT_FRAMES,) if takes_videos(model) else ()
    return (batch, *frames, channels, *size)


def video_shape(model: Any, batch: int, size: Size) -> tuple[int, ...]:
    """Shape of a video: (batch, frames, channels, height, width)."""
    channels = find_field(model.config, "num_channels", "in_channels", "in_chans") or 3
    return (batch, find_field(model.config, "num_frames", "frames_per_clip") or _DEFAULT_FRAMES, channels, *size)


def pixels(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Float32 of ``shape``: smooth shapes with some noise, since noise alone hides wrong resampling."""
    *outer, height, width = shape
    flat = torch.Size(outer).numel()
    shapes = torch.randn(flat, 1, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(shapes, size=(height, width), mode="bilinear").reshape(shape)
    return smooth + 0.5 * torch.randn(shape, generator=generator)


def masked_patches(model: Any, batch: int, size: Size, generator: torch.Generator) -> torch.Tensor | None:
    """[batch, patches] of bool, or None for a model without a token to put in a masked patch's place.

    In a video every row has as many: its model takes the visible patches out and keeps the rest a batch.
    """
    patch = find_field(model.config, "patch_size")
    masked = any(name.rpartition(".")[2] == "mask_token" for name, _ in model.named_parameters())
    if not masked or not isinstance(patch, int):
        return None
    patches = (size[0] // patch) * (size[1] // patch)
    if not takes_videos(model):
        return torch.rand(batch, patches, generator=generator) < 0.5
    frames = find_field(model.config, "num_frames") or _DEFAULT_FRAMES
    patches *= frames // (find_field(model.config, "tubelet_size") or 1)
    return torch.rand(batch, patches, generator=generator).argsort(dim=-1) < patches // 2
