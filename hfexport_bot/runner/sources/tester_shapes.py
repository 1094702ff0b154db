"""Inputs of other shapes from a model test: a second tester, made with other values of its own arguments.

A tester knows what belongs together (an image's size and its placeholders, a grid and its packed patches), which cannot
be told from the inputs alone. Eager decides whether the model takes what comes of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

from hfexport_bot.runner.sources.cases import Inputs

_LARGER_IMAGE: dict[str, Callable[[int], int]] = {
    name: lambda size: 2 * size for name in ("image_size", "image_height", "image_width")
}

#: By the kind of probe: a tester's arguments, and how each is changed. Of two lengths each gets another change, so that
#: a mix-up shows. Sizes are doubled, which keeps them multiples of patches.
_CHANGES: dict[str, tuple[dict[str, Callable[[int], int]], ...]] = {
    "batch": ({"batch_size": lambda size: 1}, {"batch_size": lambda size: size + 1}),
    "length": (
        {
            "seq_length": lambda length: length + 3,
            "text_seq_length": lambda length: length + 3,
            "encoder_seq_length": lambda length: length + 3,
            "decoder_seq_length": lambda length: length + 2,
        },
        {
            "seq_length": lambda length: length - 2,
            "text_seq_length": lambda length: length - 2,
            "encoder_seq_length": lambda length: length - 2,
            "decoder_seq_length": lambda length: length - 1,
        },
    ),
    "image": (_LARGER_IMAGE,),
    "images": ({"num_images": lambda count: count + 1},),
    "frames": ({"num_frames": lambda count: 2 * count},),
    "sound": ({name: lambda length: 2 * length for name in ("feat_seq_length", "audio_seq_length")},),
}


def other_shapes(
    test_case: Any, prepare: Callable[[Any], Inputs], inputs: Inputs, kept: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Inputs]:
    """Probes by name, such as ``batch_1``, ``length_10`` or ``image_16``: what ``prepare`` makes of a test case that is
    set up with other arguments of its tester.

    Args:
        test_case: an instance of the test class after its ``setUp``.
        prepare: gives the inputs of such an instance.
        kept: the arguments that ``test_case`` itself was made with, beside its own.
        inputs: those of ``test_case``; what has other names than these, or the same shapes, is no probe.
    """
    probes = {}
    for kind, ways in _CHANGES.items():
        for way in ways:
            changes = _values(test_case.model_tester, way)
            if not changes:
                continue
            try:
                again = set_up_again(test_case, {**kept, **changes})
                found = prepare(again)
                again.doCleanups()
            except (Exception, SystemExit):  # the author's code may refuse other values in any way it likes
                continue
            if set(found) == set(inputs) and _shapes(found) != _shapes(inputs):
                probes[f"{kind}_{next(iter(changes.values()))}"] = found
    return probes


def larger_images(test_case: Any) -> dict[str, int]:
    """The arguments by which the testers of a test case make images twice as large."""
    return _values(test_case.model_tester, _LARGER_IMAGE)


def padded_beside_longer(inputs: Inputs, probes: dict[str, Inputs], pad_token_id: int | None) -> dict[str, Inputs]:
    """Padding of prompts with pictures or sound: one row of ``inputs`` among the longer ones of the first ``length``
    probe, padded at the right or the left. So no placeholder of a feature is padded away.

    None for inputs that are all text, where `derive_probes` needs no second tester, and for those without a mask.
    """
    longer = next((probe for name, probe in probes.items() if name.startswith("length_")), {})
    if "input_ids" not in longer or "attention_mask" not in longer:
        return {}
    short, long_ = inputs["input_ids"].shape, longer["input_ids"].shape
    along = {name for name, value in inputs.items() if _shape(value) == short and _shape(longer[name]) == long_}
    beside = {name: value for name, value in inputs.items() if name not in along}
    same = _shapes(beside) == _shapes({name: longer[name] for name in beside})
    if len(short) != 2 or short[1] >= long_[1] or "attention_mask" not in along or not _shapes(beside) or not same:
        return {}

    def padded(side: str, row: int) -> Inputs:
        probe = dict(longer)
        for name in along:
            kept = inputs[name][row]
            pad = 0 if name != "input_ids" else kept[-1].item() if pad_token_id is None else pad_token_id
            filling = kept.new_full((long_[1] - short[1],), pad)
            probe[name] = longer[name].clone()
            probe[name][row] = torch.cat((kept, filling) if side == "right" else (filling, kept))
        return probe

    return {"pad_right": padded("right", 0), "pad_left": padded("left", -1)}


def _values(tester: Any, way: dict[str, Callable[[int], int]]) -> dict[str, int]:
    """The changed arguments, of those that a tester (or one inside it) has as a number."""
    found = {}
    for name, change in way.items():
        for each in _testers(tester):
            value = getattr(each, name, None)
            if type(value) is int and value > 1 and change(value) > 0 and _takes(type(each), name):
                found[name] = change(value)
                break
    return found


def set_up_again(test_case: Any, changes: Mapping[str, int]) -> Any:
    """Another instance of the test class, whose ``setUp`` makes its testers with ``changes``. The caller ends it."""
    with ExitStack() as stack:
        for tester_class in {type(each) for each in _testers(test_case.model_tester)}:
            taken = {name: value for name, value in changes.items() if _takes(tester_class, name)}
            if taken:
                init = _with_changes(tester_class.__init__, taken)
                stack.enter_context(mock.patch.object(tester_class, "__init__", init))
        again = type(test_case)()
        again.setUp()
    return again


def _with_changes(original: Any, changes: dict[str, int]) -> Any:
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **{**keywords, **changes})

    return init


def _testers(tester: Any) -> Iterator[Any]:
    """A tester and those it is made of, as a model of text and pictures has one for each."""
    yield tester
    for value in vars(tester).values():
        if hasattr(value, "prepare_config_and_inputs"):
            yield value


def _takes(tester_class: Any, name: str) -> bool:
    parameters = inspect.signature(tester_class.__init__).parameters
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _shape(value: Any) -> torch.Size | None:
    return value.shape if isinstance(value, torch.Tensor) else None


def _shapes(inputs: Inputs) -> list[torch.Size]:
    return [value.shape for value in pytree.tree_leaves(inputs) if isinstance(value, torch.Tensor)]
