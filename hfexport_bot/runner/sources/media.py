"""Images among text: how their pixels lie, and the placeholders that a prompt has for their features.

A model that merges features into its text finds the places by a token's id. How many it needs is asked of the model.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any

import torch

from exporters.inputs import features_getter
from hfexport_bot.runner.sources import images
from hfexport_bot.runner.sources.cases import Inputs
from hfexport_bot.runner.sources.configs import find_field
from hfexport_bot.runner.sources.sound import Features, Waveform

#: Names of the tokens that stand for features, and of those around them.
PLACEHOLDERS = {
    "image": ("image_token_id", "image_token_index"),
    "audio": ("audio_token_id", "audio_token_index"),
}
#: What a model says of features that have no places, or too few.
_COUNTED = re.compile(r"features:? (\d+)")
#: How many features a picture has, where the model has no other way to tell.
_COUNTS_OF_PICTURES = ("num_query_tokens", "image_seq_length", "mm_tokens_per_image")

_AROUND = {
    "image": (
        ("vision_start_token_id", "boi_token_index", "boi_token_id"),
        ("vision_end_token_id", "eoi_token_index", "eoi_token_id"),
    ),
    "audio": (("audio_start_token_id",), ("audio_end_token_id",)),
}

#: The input that holds each modality's features as they come from a processor.
_MEDIA = {"image": ("pixel_values",), "audio": ("input_features", "input_values")}

#: Arguments that hold what is shown or played as it comes from a processor, by modality.
_MEDIA_ARGUMENTS = {
    "image": re.compile(
        r"(image_|high_res_)?pixel_values(_local|_images)?|flattened_patches|image_patches|image"
        rf"|{images.ONE_OF_SEVERAL.pattern}"
    ),
    "video": re.compile(r"pixel_values_videos"),
    "audio": re.compile(r"(audio_)?input_features|input_values|audio_mel|audio_input_ids|audio_codes"),
}

#: Pictures a row of text, where a model takes several.
PICTURES = 2

#: Patches a side of the traced pictures in a grid, and of larger ones: they differ in shape, not in number.
_GRIDS = ((6, 4), (4, 6))
_LARGER_GRIDS = ((6, 8), (8, 6))
_ALIKE, _LARGER_ALIKE = ((8, 4), (8, 4)), ((8, 8), (8, 8))


def fed_modalities(arguments: Iterable[str]) -> set[str]:
    """What ``arguments`` of a forward show or play: ``image``, ``video``, ``audio``."""
    return {kind for kind, names in _MEDIA_ARGUMENTS.items() if any(names.fullmatch(name) for name in arguments)}


def needed_modalities(model_class: Any) -> set[str]:
    """The modalities that a model has to be fed with to be tried out: all that its forward takes, but no videos where
    pictures go the same way."""
    taken = fed_modalities(inspect.signature(model_class.forward).parameters)
    return taken - {"video"} if "image" in taken else taken


class Pictures(StrEnum):
    """How pixels lie."""

    PLAIN = "plain"  # [batch, channels, height, width]; a video's [batch, frames, channels, height, width]
    SEVERAL = "several"  # [batch, pictures, channels, height, width]
    GRID = "grid"  # [patches, channels x frames x height x width of a patch], of all pictures
    GRID_STILL = "grid still"  # the same without frames
    GRIDALIKE = "grid alike"  # as GRID, all pictures of one size
    GRID_PIXELS = "grid pixels"  # [merged patches, height, width of one, channels]
    GRID_SQUARES = "grid squares"  # [patches, channels, height, width of a patch]
    VIDEO = "video"  # [batch, frames, channels, height, width]
    TILES = "tiles"  # [batch, tiles, channels, height, width]: a picture of two tiles, and all of it
    STRIP = "strip"  # [1, channels, height of a patch, width of all patches of all pictures]
    SHAPED_PATCHES = "shaped patches"  # [pictures, patches, height x width x channels of a patch]


@dataclass(frozen=True)
class Layout:
    """How a model's media lie."""

    pictures: Pictures = Pictures.PLAIN
    features: Features = Features.CHANNELS_FIRST
    waveform: Waveform = Waveform.PLAIN
    sized: bool = False  # whether each picture's height and width are given
    mask: torch.dtype | None = torch.int64  # of a spectrogram's mask, if it has one
    scale: int = 1  # of the configuration's picture size, and of a waveform's length


def media_layouts(model: torch.nn.Module) -> list[Layout]:
    """The layouts that may be the model's, told by its arguments, the usual ones first."""
    taken = inspect.signature(type(model).forward).parameters
    pictures = [Pictures.PLAIN]
    patched = isinstance(find_field(model.config, "patch_size"), int)
    if takes_grid(taken):
        pictures = [each for each in Pictures if each.name.startswith("GRID")]
    elif {"spatial_shapes", "image_position_ids", "pixel_position_ids"} & taken.keys() and patched:
        pictures = [Pictures.SHAPED_PATCHES]
    elif "target_sizes" in taken:
        pictures = [Pictures.STRIP]
    elif "image_sizes" in taken and find_field(model.config, "image_grid_pinpoints"):
        pictures = [Pictures.TILES]
    elif "pixel_attention_mask" in taken:
        pictures = [Pictures.SEVERAL, Pictures.PLAIN]
    elif "pixel_values" in taken:
        pictures = [Pictures.PLAIN, Pictures.SEVERAL, Pictures.VIDEO]
        if patched and "input_ids" in taken:
            pictures.append(Pictures.SHAPED_PATCHES)
    features = list(Features) if "input_features" in taken else [Features.CHANNELS_FIRST]
    waveforms = list(Waveform) if "input_values" in taken else [Waveform.PLAIN]
    sized = [False, True] if "image_sizes" in taken else [False]
    scalable = ("pixel_values" in taken and pictures[0] is Pictures.PLAIN) or "input_values" in taken
    scales = [1, 4] if scalable else [1]
    masks: list[torch.dtype | None] = [torch.int64]
    if "input_features_mask" in taken:
        masks = [torch.int64, torch.bool]
        masks += [None] if taken["input_features_mask"].default is None else []
    return [Layout(*each[1:], scale=each[0]) for each in product(scales, pictures, features, waveforms, sized, masks)]


#: Pictures a row, where they have an axis of their own.
_COUNTS = {Pictures.SEVERAL: PICTURES, Pictures.TILES: 3}
#: Layouts whose pictures are all of one size.
ALIKE = (Pictures.GRIDALIKE, Pictures.STRIP)


def pixels_laid_out(
    model: Any, layout: Pictures, batch: int, size: images.Size | None, larger: bool, generator: torch.Generator
) -> torch.Tensor:
    """Float32 pixels of one picture or video a row, or `PICTURES`; ``size`` is the configuration's if None, and grids
    are ``larger`` or as usual."""
    size = size or images.image_size(model.config)
    if layout is Pictures.VIDEO:
        return images.pixels(images.video_shape(model, batch, size), generator)
    if layout in (Pictures.PLAIN, *_COUNTS):
        shape = images.pixel_shape(model, batch, size)
        several = (_COUNTS[layout],) if layout in _COUNTS else ()
        return images.pixels((shape[0], *several, *shape[1:]), generator)
    grid = grid_of(batch, larger=larger, alike=layout in ALIKE)
    if layout in (Pictures.GRID, Pictures.GRIDALIKE):
        return patches_of(model.config, grid, generator)
    patches = patches_of(model.config, grid, generator, frames=1)
    if layout is Pictures.GRID_PIXELS:
        side = find_field(model.config, "patch_size") * (
            find_field(model.config, "spatial_merge_size", "merge_size") or 2
        )
        return images.pixels((len(patches), 3, side, side), generator).movedim(1, -1)
    if layout is Pictures.STRIP:
        side = find_field(model.config, "patch_size")
        return patches.reshape(1, -1, 3, side, side).permute(0, 2, 3, 1, 4).flatten(3)
    if layout is Pictures.SHAPED_PATCHES:
        return patches.unflatten(0, (batch, -1))
    if layout is Pictures.GRID_SQUARES:
        side = find_field(model.config, "patch_size")
        return patches.unflatten(1, (-1, side, side))
    return patches


def takes_grid(parameters: Any) -> bool:
    """Whether pictures come as patches of a grid that ``image_grid_thw`` tells of."""
    names = {"image_grid_thw", "grid_thw"} & parameters.keys()
    return bool(names) and bool({"pixel_values", "hidden_states"} & parameters.keys())


def positions_of(grid: torch.Tensor) -> torch.Tensor:
    """Where each patch of pictures on grids of as many patches lies, int64, [pictures, patches, 2]: across, down."""
    return torch.stack([torch.cartesian_prod(torch.arange(int(h)), torch.arange(int(w))).flip(1) for _, h, w in grid])


def grid_of(images: int, larger: bool, alike: bool = False) -> torch.Tensor:
    """``image_grid_thw`` of that many pictures, int64, [images, 3]: frames, and patches down and across. They differ
    in turn unless ``alike``."""
    grids = _LARGER_GRIDS if larger else _GRIDS
    if alike:
        grids = _LARGER_ALIKE if larger else _ALIKE
    return torch.tensor([(1, *grids[index % 2]) for index in range(images)])


def patches_of(config: Any, grid: torch.Tensor, generator: torch.Generator, frames: int | None = None) -> torch.Tensor:
    """The patches of pictures on a grid, float32, [patches, channels x frames x height x width of a patch]."""
    channels = find_field(config, "in_channels", "in_chans", "num_channels") or 3
    frames = frames or find_field(config, "temporal_patch_size", "patch_temporal") or 1
    side = find_field(config, "patch_size")
    count = int(grid.prod(-1).sum())
    smooth = torch.randn(count, channels * frames, 1, 1, generator=generator)
    noise = torch.randn(count, channels * frames, side, side, generator=generator)
    return (smooth + 0.5 * noise).flatten(1)


def placeholder_id(config: Any, modality: str) -> int | None:
    """The id of the token that stands for a feature of ``modality``, if the model has one."""
    found = find_field(config, *PLACEHOLDERS[modality])
    return found if isinstance(found, int) else None


def with_placeholders(model: torch.nn.Module, inputs: Inputs, pictures: int = 1) -> Inputs | None:
    """``inputs`` with places among the ids for the features of what is shown or played, the same number in each row.

    They come after the row's first token, between the tokens that begin and end a picture where the model has some. The
    mask grows with them, and what tells of each token's kind. ``None`` where a model would need them and does not say
    how many. With several ``pictures`` a row, each has places of its own.
    """
    config: Any = model.config
    for modality, names in _MEDIA.items():
        token = placeholder_id(config, modality)
        if token is None or "input_ids" not in inputs or not any(name in inputs for name in names):
            continue
        counts = _features_a_row(model, inputs, modality, pictures if modality == "image" else 1)
        if counts is None:
            return None
        for count in counts:
            inputs = _inserted(model, inputs, modality, token, count)
    return inputs


def _features_a_row(model: Any, inputs: Inputs, modality: str, parts_a_row: int) -> list[int] | None:
    """How many features of a modality there are for each row of ids, by its pictures; ``None`` where they cannot be
    dealt evenly."""
    rows = inputs["input_ids"].shape[0]
    getter = features_getter(model, modality)
    taken = inspect.signature(getter or type(model).forward).parameters
    given = {name: inputs[name] for name in taken if name in inputs}
    total = 0
    try:
        with torch.no_grad():
            found: Any = getter(**given) if getter else model(**given)
    except Exception as error:  # the model's own code refuses what it is given in any way it likes, or tells the number
        told = _COUNTED.search(str(error))
        total = int(told[1]) if told else 0
    else:
        features = getattr(found, "pooler_output", found) if getter else ()
        parts = list(features) if isinstance(features, list | tuple) else [features]
        total = sum(part.numel() // part.shape[-1] for part in parts if isinstance(part, torch.Tensor))
    if not total and modality == "image" and getter is None:
        total = rows * (find_field(model.config, *_COUNTS_OF_PICTURES) or 0)
    if not total or total % (rows * parts_a_row):
        return None
    return [total // rows // parts_a_row] * parts_a_row


def _inserted(model: Any, inputs: Inputs, modality: str, token: int, count: int) -> Inputs:
    ids: torch.Tensor = inputs["input_ids"]
    before, after = (find_field(model.config, *names) for names in _AROUND[modality])
    places = [before] * (before is not None) + [token] * count + [after] * (after is not None)
    middle = torch.tensor(places).expand(*ids.shape[:-1], -1)
    ids = torch.cat((ids[..., :1], middle, ids[..., 1:]), dim=-1)
    found = {**inputs, "input_ids": ids}
    if "attention_mask" in inputs:
        found["attention_mask"] = torch.ones_like(ids)
    taken = inspect.signature(type(model).forward).parameters
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in taken:
            found[name] = ids.eq(token).to(ids.dtype)
    return found
