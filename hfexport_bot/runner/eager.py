"""The reference: the unpatched model run eagerly, reseeded right before every forward.

Also measured here: whether the model repeats itself, and whether a comparison on these weights and inputs would notice
an input that the exported graph ignores.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from exporters.leaves import named_leaves
from exporters.parity import TOLERANCES

#: A reaction is the change of an output in multiples of the parity tolerance. A check on an input that moves eager by
#: less than this could not tell a graph that ignores the input from one that uses it.
MIN_REACTION = 100.0

Outputs = dict[str, torch.Tensor]


def run_eager(model: torch.nn.Module, inputs: Mapping[str, Any], seed: int) -> Outputs:
    """The model's output tensors by path. ``inputs`` are copied first: a forward may write into them."""
    own = copied(inputs)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        outputs = named_leaves(model(**own))
    return {name: tensor.detach().clone() for name, tensor in outputs.items()}


def widest_weights(model: torch.nn.Module) -> torch.dtype | None:
    """The widest floating point dtype among a model's weights."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return max(dtypes, key=lambda dtype: dtype.itemsize, default=None)


def copied(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """``inputs`` with tensors of their own, laid out in memory as they are."""
    found: dict[str, Any] = pytree.tree_map_only(torch.Tensor, lambda value: _laid_out(value, value), dict(inputs))
    return found


def _laid_out(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of ``like``, of the same shape: a graph of torch.export may take no others."""
    if like.is_contiguous() or 0 in like.stride():
        return value.clone()
    return torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=value.device).copy_(value)


def same(left: Outputs, right: Outputs) -> bool:
    """Bit-identical, NaN for NaN."""
    return left.keys() == right.keys() and all(_same_tensor(left[name], right[name]) for name in left)


def _same_tensor(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def undefined_positions(inputs: Mapping[str, Any], outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """For each output laid out along a sequence, where that sequence's own mask is 0 (boolean, batch x length)."""
    masks = {name: value for name, value in inputs.items() if is_mask(name, value) and value.dim() == 2}
    # Some models make the decoder's ids themselves; their outputs still tell that there are two sequences.
    has_decoder = any(name.startswith("decoder_") for name in inputs) or any(
        name.startswith("encoder_") for name in outputs
    )
    found = {}
    for name, output in outputs.items():
        of_encoder = not has_decoder or name.startswith("encoder")
        own = masks.get("attention_mask" if of_encoder else "decoder_attention_mask")
        if own is not None and output.shape[:2] == own.shape and bool((own == 0).any()):
            found[name] = own == 0
    return found


def is_mask(name: str, value: Any) -> bool:
    """Whether an input says which positions count: an attention or padding mask of zeros and ones."""
    return (
        isinstance(value, torch.Tensor)
        and name.endswith("mask")
        and not value.is_floating_point()
        and bool(((value == 0) | (value == 1)).all())
    )


def reactions(model: torch.nn.Module, inputs: Mapping[str, Any], reference: Outputs, seed: int) -> dict[str, float]:
    """How far eager's outputs move when one tensor input changes, by input, in multiples of the tolerance.

    An input whose changed value eager refuses is left out.
    """
    found: dict[str, float] = {}
    for name, changes in changed_inputs(inputs, seed).items():
        for changed in changes:
            try:
                moved = run_eager(model, changed, seed)
            except Exception:  # the model's own code may refuse the value in any way it likes
                continue
            distance = _distance(reference, moved, undefined_positions(changed, reference))
            found[name] = max(distance, found.get(name, 0.0))
            if distance >= MIN_REACTION:
                break
    return found


def moves_only_exempt(model: torch.nn.Module, inputs: Mapping[str, Any], name: str, before: Outputs, seed: int) -> bool:
    """Whether a change of one input moves eager's outputs, but only where they are not compared: a mask that hides
    positions from nothing but themselves."""
    for changed in changed_inputs(inputs, seed).get(name, ()):
        try:
            moved = run_eager(model, changed, seed)
        except Exception:  # as in `reactions`
            continue
        exempt = undefined_positions(changed, before)
        if exempt and _distance(before, moved, exempt) < MIN_REACTION <= _distance(before, moved, {}):
            return True
    return False


def changed_inputs(inputs: Mapping[str, Any], seed: int) -> dict[str, list[dict[str, Any]]]:
    """For each tensor input with more than one element, ``inputs`` with that one changed, in one or two ways."""
    return {
        name: [{**inputs, name: _laid_out(changed, value)} for changed in _changes(name, value, seed)]
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and value.numel() >= 2
    }


def _changes(name: str, value: torch.Tensor, seed: int) -> Iterator[torch.Tensor]:
    changed = value.clone(memory_format=torch.contiguous_format)
    if is_mask(name, value) and value.dim() >= 2 and bool((value == 1).all()):
        yield _partly_hidden(name, changed)
    elif value.is_floating_point():
        generator = torch.Generator().manual_seed(seed + 1)
        yield value + torch.randn(value.shape, generator=generator, dtype=torch.float32).to(value.dtype)
    elif value.dtype == torch.bool:
        yield ~value
    elif bool((value == value.flatten()[0]).all()):
        changed.view(-1)[::2] += 1 if int(value.flatten()[0]) == 0 else -1
        yield changed
    else:
        # The values it holds, all moved on by one: they stay legal as ids, and runs of placeholders stay together.
        yield value.flatten().roll(1).reshape(value.shape)
        if not torch.equal(value.roll(1, 0), value):  # a model that sums a row's tokens up notices only other rows
            yield value.roll(1, 0)


def _partly_hidden(name: str, mask: torch.Tensor) -> torch.Tensor:
    """A mask of ones with a part of its first row at 0, in a way that a user's could have it.

    The left quarter of a sequence, where causal models see it too; the right half of a picture, since pictures of
    several sizes are padded there and few features stand for it; and the first quarter of a series' steps. A picture
    without its left is counted as having no patches, and a channel that is never observed has the scale of noise: then
    eager's own rounding decides.
    """
    if "pixel" in name:
        mask[0, ..., (mask.shape[-1] + 1) // 2 :] = 0
    elif "observed" in name:
        mask[0, : max(1, mask.shape[1] // 4)] = 0
    else:
        mask[0, ..., : max(1, mask.shape[-1] // 4)] = 0
    return mask


def _distance(before: Outputs, after: Outputs, exempt: Mapping[str, torch.Tensor]) -> float:
    farthest = 0.0
    for name, value in before.items():
        other = after.get(name)
        if other is None or other.shape != value.shape:
            return float("inf")
        if value.numel() == 0:
            continue
        tolerance = TOLERANCES.get(value.dtype)
        if tolerance is None:
            excess = (value != other).double() * MIN_REACTION  # an integer that changes is noticed
        else:
            excess = tolerance.excess(value, other).nan_to_num(nan=0.0, posinf=0.0)
        if name in exempt:
            excess = excess[~exempt[name]]
        farthest = max(farthest, float(excess.max()) if excess.numel() else 0.0)
    return farthest


def perturbed_outputs(model: torch.nn.Module, inputs: Mapping[str, Any], seed: int, relative: float) -> Outputs:
    """Eager's outputs with every weight off by ``relative`` times a normal draw; the weights come back."""
    generator = torch.Generator().manual_seed(seed)
    parameters = [p for p in model.parameters() if p.is_floating_point()]
    originals = [p.detach().clone() for p in parameters]
    try:
        with torch.no_grad():
            for parameter in parameters:
                noise = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
                parameter.mul_(1 + relative * noise)
        return run_eager(model, inputs, seed)
    finally:
        with torch.no_grad():
            for parameter, original in zip(parameters, originals, strict=True):
                parameter.copy_(original)
