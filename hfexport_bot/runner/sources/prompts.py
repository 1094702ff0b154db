"""Prompts for a model that generates: batches of random tokens, some rows padded."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from hfexport_bot.runner.sources.cases import Inputs, Unavailable
from hfexport_bot.runner.sources.inputs import ordinary_tokens
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
_MEDIA = ("pixel_values", "input_features", "input_values")


def build_prompts(model: Any, seed: int) -> tuple[Inputs, dict[str, Inputs]]:
    """The traced prompts of ``model`` and its probes: ``input_ids`` and ``attention_mask``, int64, [batch, length].

    Padding is on the left; on the right where an encoder reads the prompt. The model's cache is switched on. Raises
    ``Unavailable`` (unknown inputs) for a model that generates in a way of its own or from something else than text.
    """
    if getattr(model, "generation_config", None) is None:
        message = f"{type(model).__name__} has no generation_config: it does not generate as other models do"
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, message)
    model.generation_config.use_cache = True
    main = getattr(model, "main_input_name", "input_ids")
    taken = inspect.signature(type(model).forward).parameters
    media = [name for name in _MEDIA if name in taken]
    if main != "input_ids" or media:
        needed = ", ".join(media) or main
        message = f"{type(model).__name__} generates from {needed}, and only prompts of text can be made"
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, message)
    tokens = ordinary_tokens(model.config)
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


def _padding_token(model: Any) -> int:
    pad = model.generation_config.pad_token_id
    return 0 if pad is None else int(pad)
