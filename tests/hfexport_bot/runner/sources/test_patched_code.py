"""Code that was replaced for the process is found and put back, whatever holds it."""

from __future__ import annotations

import builtins
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from transformers import activations, modeling_utils

from hfexport_bot.runner.sources.patched_code import CodeSnapshot
from hfexport_bot.runner.sources.process_state import unchanged_state


@pytest.fixture(scope="module")
def snapshot() -> CodeSnapshot:
    return CodeSnapshot()


def _replaced(*_: Any, **__: Any) -> None:
    pass


#: By the name that is told: what to look at, and what changes it.
CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "torch.nn.modules.linear.Linear.forward": (
        lambda: torch.nn.Linear.forward,
        lambda: setattr(torch.nn.Linear, "forward", _replaced),
    ),
    "torch.nn.modules.linear.Linear.__call__": (
        lambda: torch.nn.Linear.__call__,
        lambda: setattr(torch.nn.Linear, "__call__", _replaced),
    ),
    "torch.nn.functional.gelu": (
        lambda: torch.nn.functional.gelu,
        lambda: setattr(torch.nn.functional, "gelu", _replaced),
    ),
    "torch.softmax": (lambda: getattr(torch, "softmax", None), lambda: delattr(torch, "softmax")),
    "torch.Tensor.add": (lambda: torch.Tensor.add, lambda: setattr(torch.Tensor, "add", _replaced)),
    "math.sqrt": (lambda: math.sqrt, lambda: setattr(math, "sqrt", _replaced)),
    "torch.functional.len": (
        lambda: getattr(torch.functional, "len", len),
        lambda: setattr(torch.functional, "len", _replaced),
    ),
    "builtins.sorted": (lambda: builtins.sorted, lambda: setattr(builtins, "sorted", _replaced)),
    "transformers.modeling_utils.PreTrainedModel._supports_sdpa": (
        lambda: modeling_utils.PreTrainedModel._supports_sdpa,
        lambda: setattr(modeling_utils.PreTrainedModel, "_supports_sdpa", "changed"),
    ),
    "transformers.activations.ACT2FN['gelu']": (
        lambda: dict.__getitem__(activations.ACT2FN, "gelu"),
        lambda: dict.__setitem__(activations.ACT2FN, "gelu", _replaced),
    ),
    "transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS['sdpa']": (
        lambda: modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"],
        lambda: modeling_utils.ALL_ATTENTION_FUNCTIONS.__setitem__("sdpa", _replaced),
    ),
    "transformers.modeling_utils.AttentionInterface._global_mapping['sdpa']": (
        lambda: modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"],
        lambda: modeling_utils.AttentionInterface.register("sdpa", _replaced),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_replaced_is_named_and_comes_back(name: str, snapshot: CodeSnapshot) -> None:
    read, change = CHANGES[name]
    snapshot.refresh()
    before = read()
    change()
    assert read() is not before
    changed, left = snapshot.put_back()
    assert (changed, left) == ([name], [])
    assert read() is before
    assert snapshot.put_back() == ([], [])


def test_what_is_only_added_stays(snapshot: CodeSnapshot) -> None:
    torch.nn.Linear.added = torch.nn.added = _replaced  # type: ignore[attr-defined]
    try:
        assert snapshot.put_back() == ([], [])
        assert torch.nn.Linear.added is _replaced  # type: ignore[attr-defined]
    finally:
        del torch.nn.Linear.added, torch.nn.added  # type: ignore[attr-defined]


def test_what_was_replaced_before_is_taken_as_it_is(snapshot: CodeSnapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.functional, "gelu", _replaced)
    snapshot.refresh()
    assert snapshot.put_back() == ([], [])
    assert torch.nn.functional.gelu is _replaced


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    found = types.ModuleType("transformers.models.made_up")
    exec("class Model:\n    width = 4\n    def forward(self): return 1", vars(found))
    monkeypatch.setitem(sys.modules, found.__name__, found)
    return found


def test_modules_that_were_imported_since_are_watched(module: Any) -> None:
    with unchanged_state() as changes:
        module.Model.width = 5
        module.Model.forward = _replaced
    assert changes.put_back == ["transformers.models.made_up.Model.forward", "transformers.models.made_up.Model.width"]
    assert (module.Model.width, module.Model().forward()) == (4, 1)


def test_what_cannot_be_put_back_is_told() -> None:
    with unchanged_state() as changes:
        kept = torch.library.Library("aten", "IMPL")
        kept.impl("erfinv", lambda x: x, "CPU")
    try:
        assert changes.put_back == []
        assert changes.left == ["operators of torch: aten/erfinv/CPU"]
    finally:
        kept._destroy()
