"""Images among text: how their pixels lie, and the placeholders that a prompt has for their features.

A model that merges features into its text finds the places by a token's id. How many it needs is asked of the model.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from exporters.inputs import features_getter
from hfexport_bot.runner.sources.cases import Inputs
from hfexport_bot.runner.sources.configs import find_field

#: Names of the tokens that stand for features, and of those around them.
_PLACEHOLDERS = {
    "image": ("image_token_id", "image_token_index"),
    "audio": ("audio_token_id", "audio_token_index"),
}
_BEFORE = ("vision_start_token_id", "boi_token_index", "boi_token_id")
_AFTER = ("vision_end_token_id", "eoi_token_index", "eoi_token_id")

#: The input that holds each modality's features as they come from a processor.
_MEDIA = {"image": ("pixel_values",), "audio": ("input_features", "input_values")}

#: Patches a side of the traced pictures in a grid, and of larger ones: they differ in shape, not in number.
_GRIDS = ((6, 4), (4, 6))
_LARGER_GRIDS = ((6, 8), (8, 6))


def takes_grid(parameters: Any) -> bool:
    """Whether pictures come as patches of a grid that ``image_grid_thw`` tells of."""
    return "image_grid_thw" in parameters and "pixel_values" in parameters


def grid_of(images: int, larger: bool) -> torch.Tensor:
    """``image_grid_thw`` of that many pictures, int64, [images, 3]: frames, and patches down and across."""
    grids = _LARGER_GRIDS if larger else _GRIDS
    return torch.tensor([(1, *grids[index % 2]) for index in range(images)])


def patches_of(config: Any, grid: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The patches of pictures on a grid, float32, [patches, channels x frames x height x width of a patch]."""
    channels = find_field(config, "in_channels", "in_chans", "num_channels") or 3
    frames, side = find_field(config, "temporal_patch_size") or 1, find_field(config, "patch_size")
    count = int(grid.prod(-1).sum())
    smooth = torch.randn(count, channels * frames, 1, 1, generator=generator)
    noise = torch.randn(count, channels * frames, side, side, generator=generator)
    return (smooth + 0.5 * noise).flatten(1)


def placeholder_id(config: Any, modality: str) -> int | None:
    """The id of the token that stands for a feature of ``modality``, if the model has one."""
    found = find_field(config, *_PLACEHOLDERS[modality])
    return found if isinstance(found, int) else None


def with_placeholders(model: torch.nn.Module, inputs: Inputs) -> Inputs | None:
    """``inputs`` with places among the ids for the features of what is shown or played, the same number in each row.

    They come after the row's first token, between the tokens that begin and end a picture where the model has some. The
    mask grows with them, and what tells of each token's kind. ``None`` where a model would need them and does not say
    how many.
    """
    config: Any = model.config
    for modality, names in _MEDIA.items():
        token = placeholder_id(config, modality)
        if token is None or "input_ids" not in inputs or not any(name in inputs for name in names):
            continue
        count = _features_a_row(model, inputs, modality)
        if count is None:
            return None
        inputs = _inserted(model, inputs, token, count)
    return inputs


def _features_a_row(model: Any, inputs: Inputs, modality: str) -> int | None:
    """How many features of a modality there are for each row of ids; ``None`` where they cannot be dealt evenly."""
    getter = features_getter(model, modality)
    if getter is None:
        return None
    given = {name: inputs[name] for name in inspect.signature(getter).parameters if name in inputs}
    try:
        with torch.no_grad():
            found: Any = getter(**given)
    except Exception:  # the model's own code refuses what it is given in any way it likes
        return None
    features = getattr(found, "pooler_output", found)
    parts = list(features) if isinstance(features, list | tuple) else [features]
    total = sum(part.numel() // part.shape[-1] for part in parts)
    rows = inputs["input_ids"].shape[0]
    return total // rows if total and total % rows == 0 else None


def _inserted(model: Any, inputs: Inputs, token: int, count: int) -> Inputs:
    ids = inputs["input_ids"]
    before, after = find_field(model.config, *_BEFORE), find_field(model.config, *_AFTER)
    places = [before] * (before is not None) + [token] * count + [after] * (after is not None)
    middle = torch.tensor(places).expand(*ids.shape[:-1], -1)
    ids = torch.cat((ids[..., :1], middle, ids[..., 1:]), dim=-1)
    found = {**inputs, "input_ids": ids}
    if "attention_mask" in inputs:
        found["attention_mask"] = torch.ones_like(ids)
    taken = inspect.signature(type(model).forward).parameters
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in taken:
            found[name] = (ids == token).to(ids.dtype)
    return found
