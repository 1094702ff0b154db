from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from hfexport_bot.runner import tree
from hfexport_bot.runner.sources import HookError, Unavailable, find_model_case, load_hook
from hfexport_bot.schema import Layout, RunnerSetup, UnavailableCause
from tests.hfexport_bot.runner.modules import forget_modules


class Toy(nn.Module):
    pass


def answer(**changes: Any) -> dict[str, Any]:
    ids = torch.arange(1, 17).reshape(2, 8)
    return {
        "model": nn.Linear(4, 4).train(),
        "inputs": {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        **changes,
    }


def test_the_hook_is_asked_with_name_and_seed_and_comes_first() -> None:
    asked = []

    def hook(class_name: str, seed: int) -> dict[str, Any]:
        asked.append((class_name, seed))
        return answer()

    case = find_model_case(Toy, seed=7, hook=hook)
    assert asked == [("Toy", 7)]
    assert case.source == "repository"
    assert not case.model.training


def test_a_hook_that_passes_leaves_the_class_to_the_next_source() -> None:
    with pytest.raises(Unavailable) as caught:
        find_model_case(Toy, hook=lambda class_name, seed: None)
    assert caught.value.cause == UnavailableCause.NO_FORWARD


def test_weights_drawn_in_a_hook_follow_the_seed() -> None:
    def hook(class_name: str, seed: int) -> dict[str, Any]:
        return answer()

    torch.manual_seed(1)
    first = find_model_case(Toy, seed=2, hook=hook).model.weight
    torch.manual_seed(9)
    before = torch.get_rng_state()
    second = find_model_case(Toy, seed=2, hook=hook).model.weight
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_probes_are_derived_only_where_the_hook_gives_none() -> None:
    derived = find_model_case(Toy, hook=lambda class_name, seed: answer()).probes
    assert set(derived) == {"batch_1", "batch_3", "pad_right", "pad_left", "length_10", "length_6"}
    given = find_model_case(Toy, hook=lambda class_name, seed: answer(probes={})).probes
    assert given == {}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (3, "None or a mapping with 'model' and 'inputs', not a int"),
        ({"model": Toy()}, "lacks 'inputs'"),
        (answer(sample=1), "unknown key 'sample'"),
        (answer(model="bert"), "'model' should be a torch.nn.Module, not a str"),
        (answer(inputs=[1]), "'inputs' should map argument names"),
        (answer(inputs={"n": 1}), "at least one tensor"),
        (answer(probes=[1]), "'probes' should map names"),
        (answer(probes={"far": {"n": 1}}), "probe 'far' should hold at least one tensor"),
    ],
)
def test_an_answer_that_is_no_case_is_told_once_and_clearly(found: Any, said: str) -> None:
    with pytest.raises(HookError) as caught:
        find_model_case(Toy, hook=lambda class_name, seed: found)
    assert said in str(caught.value)
    assert "Toy" in str(caught.value)


def test_a_hook_that_raises_is_told_with_its_error() -> None:
    def hook(class_name: str, seed: int) -> None:
        raise KeyError("table")

    with pytest.raises(HookError, match="raised for Toy: KeyError: 'table'"):
        find_model_case(Toy, hook=hook)


def test_a_hook_that_exits_is_told() -> None:
    def hook(class_name: str, seed: int) -> None:
        raise SystemExit(0)

    with pytest.raises(HookError, match=r"the case function exits \(0\) for Toy"):
        find_model_case(Toy, hook=hook)


def test_a_hook_that_lacks_a_library_is_unavailable() -> None:
    def hook(class_name: str, seed: int) -> None:
        import a_library_nobody_has  # type: ignore[import-not-found]  # noqa: F401

    with pytest.raises(Unavailable) as caught:
        find_model_case(Toy, hook=hook)
    assert caught.value.cause == UnavailableCause.MISSING_LIBRARY
    assert "a_library_nobody_has" in caught.value.message


@pytest.fixture(autouse=True)
def _own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    forget_modules(tmp_path)


def loader(folder: Path) -> Callable[[str], ModuleType]:
    return partial(tree.load_file, setup=RunnerSetup(layout=Layout.MODELING, tree=str(folder)))


def test_a_hook_gets_the_classes_that_are_exported(tmp_path: Path) -> None:
    (tmp_path / "configuration_flat.py").write_text("SIZE = 3\n")
    (tmp_path / "modeling_flat.py").write_text("from .configuration_flat import SIZE\nclass Flat:\n    size = SIZE\n")
    hook = "from .modeling_flat import Flat\ndef case(name, seed):\n    return {'model': Flat}\n"
    (tmp_path / "flat_cases.py").write_text(hook)
    load = loader(tmp_path)
    exported = load("modeling_flat.py").Flat
    assert load_hook("flat_cases.py:case", tmp_path, load)("Flat", 0)["model"] is exported


def test_load_hook_finds_the_function(tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "cases.py").write_text("def case(name, seed):\n    return (name, seed)\n")
    assert load_hook("export/cases.py:case", tmp_path, loader(tmp_path))("A", 1) == ("A", 1)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("cases.py", "write it as path/to/file.py:function"),
        ("cases.py:not a name", "write it as path/to/file.py:function"),
        ("absent.py:case", "no file 'absent.py'"),
        ("../outside.py:case", "outside the repository"),
        ("cases.py:other", "has no function 'other'; it has case"),
        ("broken.py:case", "importing 'broken.py' failed: ZeroDivisionError"),
    ],
)
def test_load_hook_says_what_is_wrong(tmp_path: Path, reference: str, said: str) -> None:
    (tmp_path / "cases.py").write_text("def case(name, seed):\n    return None\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(HookError) as caught:
        load_hook(reference, tmp_path, loader(tmp_path))
    assert said in str(caught.value)
