"""Inputs at other sizes and with padding, derived from given inputs by their shapes and usual names."""

from __future__ import annotations

import torch

from hfexport_bot.runner.sources.cases import Inputs

# The mask that padding is told by, and the token ids that it belongs to. A decoder's own mask comes second: where an
# encoder has one, padding means the encoder's.
_MASKS = (("attention_mask", "input_ids"), ("decoder_attention_mask", "decoder_input_ids"))
_WAVEFORM = 256  # what has a mask and is this long is no text

#: What is laid out along a sequence, and how many axes of it come after the sequence's.
_SEQUENCES = {"input_ids": 0, "input_values": 0, "inputs_embeds": 1, "decoder_input_ids": 0, "decoder_inputs_embeds": 1}
#: Shorter sequences have no other lengths to probe.
_MIN_LENGTH = 4

# What tells of each token what kind it is; it moves with the token.
_KINDS = ("token_type_ids", "mm_token_type_ids")


def derive_probes(inputs: Inputs, pad_token_id: int | None = None) -> dict[str, Inputs]:
    """What can be derived without knowing the model: another batch, padding on either side, another length of its
    sequences and another size of its images, as far as the inputs have these. Eager may refuse some of them."""
    probes = {}
    batch = batch_size(inputs)
    if batch is not None and batch > 1:
        probes["batch_1"] = _rebatched(inputs, 1)
        probes[f"batch_{batch + 1}"] = _rebatched(inputs, batch + 1)
    probes.update(padding_probes(inputs, pad_token_id))
    probes.update(_length_probes(inputs))
    image = inputs.get("pixel_values")
    if isinstance(image, torch.Tensor) and image.ndim >= 4:
        probes[f"image_{2 * image.shape[-2]}x{2 * image.shape[-1]}"] = _twice_as_large(inputs, image)
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
    """A copy whose ``row`` is padded, or None where no mask can tell of it.

    Two or three positions of a text, over a third of a waveform: a feature vector stands for many samples. The row's
    tokens move as a tokenizer would have put them: fewer of them, the last one (often the end of the text) kept.
    """
    named = next((pair for pair in _MASKS if _can_be_padded(inputs.get(pair[0]))), None)
    if named is None:
        return None
    mask_name, ids_name = named
    mask = inputs[mask_name]
    length = mask.shape[-1]
    count = 3 if length >= 8 else 2
    if length >= _WAVEFORM:
        count = 3 * length // 8
    gone = slice(length - count, length) if side == "right" else slice(0, count)
    mask = mask.clone()
    mask[row, ..., gone] = 0
    probe = {**inputs, mask_name: mask}
    kept = slice(0, length - count) if side == "right" else slice(count, length)
    for name, filling in ((ids_name, pad_token_id), *((name, 0) for name in _KINDS)):
        along = inputs.get(name)
        if isinstance(along, torch.Tensor) and along.shape == mask.shape:
            moved = along.clone()
            if filling is not None:
                moved[row, ..., gone] = filling
            moved[row, ..., kept] = torch.cat((along[row, ..., : length - count - 1], along[row, ..., -1:]), dim=-1)
            probe[name] = moved
    return probe


def _length_probes(inputs: Inputs) -> dict[str, Inputs]:
    """All sequences longer, and all shorter; a decoder's by another number of positions than the others."""
    shapes: dict[bool, torch.Size] = {}  # up to the sequence's axis, by whether it is a decoder's
    for name, behind in _SEQUENCES.items():
        value = inputs.get(name)
        if isinstance(value, torch.Tensor) and value.ndim >= 2 + behind:
            shapes.setdefault(name.startswith("decoder_"), value.shape[: value.ndim - behind])
    if not shapes or min(shape[-1] for shape in shapes.values()) < _MIN_LENGTH:
        return {}
    probes = {}
    for sign in (1, -1):
        lengths = {
            decoder: shape[-1] + sign * max(1 if decoder else 2, shape[-1] // 4) for decoder, shape in shapes.items()
        }
        probe = dict(inputs)
        for name, value in inputs.items():
            shape = shapes.get(name.startswith("decoder_"))
            if shape is not None and isinstance(value, torch.Tensor) and value.shape[: len(shape)] == shape:
                probe[name] = _at_length(value, len(shape) - 1, lengths[name.startswith("decoder_")])
        probes[f"length_{lengths.get(False, lengths.get(True))}"] = probe
    return probes


def _at_length(value: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    """``value`` with ``length`` positions along ``axis``. The first and the last stay: they often have a meaning."""
    before = value.shape[axis]
    places = [0, *(1 + place % (before - 2) for place in range(length - 2)), before - 1]
    return value.index_select(axis, torch.tensor(places))


def _twice_as_large(inputs: Inputs, image: torch.Tensor) -> Inputs:
    """Every tensor that is laid out as the image is, at twice its height and width."""
    return {
        name: value.repeat_interleave(2, -2).repeat_interleave(2, -1)
        if isinstance(value, torch.Tensor) and value.ndim >= 3 and value.shape[-2:] == image.shape[-2:]
        else value
        for name, value in inputs.items()
    }


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
