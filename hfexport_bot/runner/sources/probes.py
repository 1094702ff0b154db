"""Inputs at other batch sizes and with padding, derived from given inputs by their shapes and usual names."""

from __future__ import annotations

import torch

from hfexport_bot.runner.sources.cases import Inputs

# The mask that padding is told by, and the token ids that it belongs to. A decoder's own mask comes second: where an
# encoder has one, padding means the encoder's.
_MASKS = (("attention_mask", "input_ids"), ("decoder_attention_mask", "decoder_input_ids"))


def derive_probes(inputs: Inputs, pad_token_id: int | None = None) -> dict[str, Inputs]:
    """What can be derived without knowing the model: ``batch_1``, ``batch_3``, ``pad_right`` and ``pad_left``."""
    probes = {}
    batch = batch_size(inputs)
    if batch is not None and batch > 1:
        probes["batch_1"] = _rebatched(inputs, 1)
        probes[f"batch_{batch + 1}"] = _rebatched(inputs, batch + 1)
    probes.update(padding_probes(inputs, pad_token_id))
    return probes


def padding_probes(inputs: Inputs, pad_token_id: int | None) -> dict[str, Inputs]:
    """The first row padded at the right, and the last one at the left; none where there is no mask to tell it by."""
    right = padded(inputs, row=0, side="right", pad_token_id=pad_token_id)
    left = padded(inputs, row=-1, side="left", pad_token_id=pad_token_id)
    return {name: probe for name, probe in (("pad_right", right), ("pad_left", left)) if probe is not None}


def batch_size(inputs: Inputs) -> int | None:
    """Size of the first axis if all tensors share it, else None: packed inputs have no batch axis to cut along."""
    sizes = {value.shape[0] for value in inputs.values() if isinstance(value, torch.Tensor) and value.ndim > 0}
    scalars = (bool, int, float, str, type(None), torch.Tensor)
    plain = all(isinstance(value, scalars) for value in inputs.values())
    return sizes.pop() if plain and len(sizes) == 1 else None


def padded(inputs: Inputs, *, row: int, side: str, pad_token_id: int | None) -> Inputs | None:
    """A copy whose ``row`` has two or three padded positions, or None where no mask can tell of them.

    The row's tokens move as a tokenizer would have put them: fewer of them, the last one (often the end of the text)
    kept.
    """
    named = next((pair for pair in _MASKS if _can_be_padded(inputs.get(pair[0]))), None)
    if named is None:
        return None
    mask_name, ids_name = named
    mask = inputs[mask_name]
    length = mask.shape[-1]
    count = 3 if length >= 8 else 2
    gone = slice(length - count, length) if side == "right" else slice(0, count)
    mask = mask.clone()
    mask[row, ..., gone] = 0
    probe = {**inputs, mask_name: mask}
    ids = inputs.get(ids_name)
    if isinstance(ids, torch.Tensor) and ids.shape == mask.shape:
        ids = ids.clone()
        tokens = torch.cat((ids[row, ..., : length - count - 1], ids[row, ..., -1:]), dim=-1)
        if pad_token_id is not None:
            ids[row, ..., gone] = pad_token_id
        kept = slice(0, length - count) if side == "right" else slice(count, length)
        ids[row, ..., kept] = tokens
        probe[ids_name] = ids
    return probe


def _can_be_padded(mask: object) -> bool:
    return isinstance(mask, torch.Tensor) and mask.ndim >= 2 and mask.shape[-1] >= 4 and mask.shape[0] >= 2


def _rebatched(inputs: Inputs, batch: int) -> Inputs:
    """The first ``batch`` rows; rows are repeated from the start where there are too few."""

    def rows(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[torch.arange(batch) % tensor.shape[0]].clone()

    return {
        name: rows(value) if isinstance(value, torch.Tensor) and value.ndim > 0 else value
        for name, value in inputs.items()
    }
