"""Prompts for a model that generates: batches of random tokens, some rows padded; with pictures or sound for those that
read them."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch

from exporters.delegation import inner_generators
from hfexport_bot.runner.sources.cases import Inputs, Unavailable
from hfexport_bot.runner.sources.inputs import Sizes, make_plan
from hfexport_bot.runner.sources.media import placeholder_id
from hfexport_bot.runner.sources.probes import padded
from hfexport_bot.runner.sources.vocabulary import ordinary_tokens
from hfexport_bot.schema import UnavailableCause

#: Batch, length and the padded positions of each row (rows beyond have none). Lengths differ from the number of new
#: tokens, so that a mixed-up axis shows.
_TRACED = (2, 7, (2,))
_PROBES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "other_prompt": _TRACED,
    "other_padding": (2, 7, (0, 3)),
    "no_padding": (2, 7, ()),
    "batch_1": (1, 7, ()),
    "batch_3": (3, 7, (0, 2, 1)),
    "length_3": (2, 3, (1,)),  # shorter than the tiny configurations' windows, which the new tokens then fill
    "length_10": (2, 10, (3,)),
    "length_40": (2, 40, (0, 5)),  # past windows and buckets
}
#: Inputs that a model reads beside or in place of text.
_MEDIA = ("pixel_values", "input_features", "input_values")


def build_prompts(model: Any, seed: int) -> tuple[Inputs, dict[str, Inputs]]:
    """The traced prompts of ``model`` and its probes: ``input_ids`` and ``attention_mask``, int64, [batch, length], and
    what a processor would make of pictures or sound beside them.

    Padding is on the left; on the right where an encoder reads the prompt. The model's cache is switched on. Raises
    ``Unavailable`` (unknown inputs) for a model that generates in a way of its own.
    """
    if getattr(model, "generation_config", None) is None:
        message = f"{type(model).__name__} has no generation_config: it does not generate as other models do"
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, message)
    inner = inner_generators(model)
    for each in (model, *inner):
        each.generation_config.use_cache = True
    main = getattr(model, "main_input_name", "input_ids")
    taken = inspect.signature(type(model).forward).parameters
    media = [name for name in _MEDIA if name in taken]
    if main != "input_ids" or media:
        tokens_of_media = [placeholder_id(model.config, modality) for modality in ("image", "audio")]
        if not inner and not model.config.is_encoder_decoder and tokens_of_media == [None, None]:
            needed = ", ".join(media) or main
            message = f"{type(model).__name__} generates from {needed}, and no token stands for its features"
            raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, message)
        return _media_prompts(model, seed)
    tokens = ordinary_tokens(model)
    pad = _padding_token(model)
    on_right = bool(model.config.is_encoder_decoder)

    def prompt(batch: int, length: int, padding: tuple[int, ...], seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        ids = tokens[torch.randint(len(tokens), (batch, length), generator=generator)]
        mask = torch.ones_like(ids)
        for row, count in enumerate(padding):
            gone = slice(length - count, length) if on_right else slice(0, count)
            ids[row, gone], mask[row, gone] = pad, 0
        return {"input_ids": ids, "attention_mask": mask}

    probes = {name: prompt(*sizes, seed + offset) for offset, (name, sizes) in enumerate(_PROBES.items(), start=1)}
    return prompt(*_TRACED, seed), probes


def _media_prompts(model: Any, seed: int) -> tuple[Inputs, dict[str, Inputs]]:
    """Prompts with pictures or sound, laid out as for a forward; or those alone, where an encoder reads them."""
    plan, _ = make_plan(model, seed)
    reads_text = not model.config.is_encoder_decoder
    side = "left" if reads_text else "right"
    traced = Sizes()
    frames = plan.frames(traced)
    height, width = plan.image(traced)
    sizes = {
        "other_prompt": (traced, 0),
        "other_padding": (traced, -1),
        "no_padding": (traced, None),
        "batch_1": (replace(traced, batch=1), None),
        "batch_3": (replace(traced, batch=3), -1),
        "length_11": (replace(traced, length=11), 0),
        "length_40": (replace(traced, length=40), -1),
        "larger_image": (replace(traced, image=(height + height // 2, width + width // 2)), 0),
        "longer_audio": (replace(traced, frames=frames + frames // 2, samples=traced.samples + traced.samples // 2), 0),
    }

    def prompt(sizes: Sizes, padded_row: int | None, seed: int) -> Inputs:
        inputs = plan.build(sizes, seed)
        made = {name: value for name, value in inputs.items() if not name.startswith("decoder_")}
        if padded_row is None:
            return made
        pad = _padding_token(model)
        return padded(made, row=padded_row, side=side, pad_token_id=pad) or made

    first = prompt(traced, 0, seed)
    probes = {name: prompt(*how, seed + offset) for offset, (name, how) in enumerate(sizes.items(), start=1)}
    same = {"other_prompt", "other_padding", "no_padding"}
    shapes = {name: value.shape for name, value in first.items()}
    probes = {
        name: probe
        for name, probe in probes.items()
        if name in same or {key: value.shape for key, value in probe.items()} != shapes
    }
    if inner_generators(model) and "input_ids" in first:  # a caption may begin with the picture alone
        text = ("input_ids", "attention_mask")
        probes["no_text"] = {name: value for name, value in first.items() if name not in text}
    return first, probes


def _padding_token(model: Any) -> int:
    pad = model.generation_config.pad_token_id
    return 0 if pad is None else int(pad)
