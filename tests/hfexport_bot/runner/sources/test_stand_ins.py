"""Stand-ins for what test modules import and is not there."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.runner.sources import stand_ins as module
from hfexport_bot.runner.sources.stand_ins import stand_ins


@pytest.fixture(autouse=True)
def _extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXTRAS", {"absent", "half", "json"})


def run(text: str, root: Path, file: str = "tests/test_a.py", left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    space = {"__name__": "tests.a.test_a", "__package__": "tests.a", "__file__": str(root / file)}
    with stand_ins(root, left_out):
        exec(text, space)
    return space


def test_it_decorates_and_is_a_base_and_an_annotation(tmp_path: Path) -> None:
    space = run(
        """
import absent
import absent.inner as inner
from absent.deep import first, second as other

@absent.mark.slow
@first(60, why="slow")
@other.expand([("a", 1)])
def test(value: absent.Image | None, also: int | inner.Sound = 2) -> int:
    return value

class Base:
    pass

class Test(Base, absent.Mixin, other):
    @first
    def ready(self):
        return True
""",
        tmp_path,
    )
    assert space["test"](3) == 3
    assert space["Test"].__bases__ == (space["Base"],)
    assert space["Test"]().ready()
    assert repr(space["inner"]) == "<stand-in for absent.inner>"


def test_used_later_it_says_what_is_missing(tmp_path: Path) -> None:
    space = run("from absent import load", tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"absent\.load\.x is called, and absent is not installed"):
        space["load"].x(1)


def test_nothing_else_notices_it(tmp_path: Path) -> None:
    original = builtins.__import__
    space = run("import absent, importlib.util; spec = importlib.util.find_spec('absent')", tmp_path)
    assert space["spec"] is None
    assert builtins.__import__ is original
    assert "absent" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("absent")


def test_what_is_installed_is_imported(tmp_path: Path) -> None:
    assert run("import json", tmp_path)["json"] is sys.modules["json"]


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("import absent", "src/transformers/models/a/modeling_a.py"),  # transformers' own imports stay as they are
        ("import absent", "/elsewhere/test_a.py"),
        ("import needed", "tests/test_a.py"),  # not on the list
    ],
)
def test_other_imports_fail_as_they_would(text: str, file: str, tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError):
        run(text, tmp_path, file)


def test_an_extra_that_lacks_something_itself_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half.py").write_text("import its_other_half")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_other_half"):
        run("import half", tmp_path)


def test_modules_are_left_out_by_their_full_names(tmp_path: Path) -> None:
    text = "from ..heavy import Mixin\nclass Test(Mixin): pass"
    space = run(text, tmp_path, left_out=("tests.heavy",))
    assert space["Test"].__bases__ == (object,)
    with pytest.raises(ModuleNotFoundError, match="since it only adds tests"):
        space["Mixin"](3)


def test_an_error_on_the_way_ends_it_too(tmp_path: Path) -> None:
    original = builtins.__import__
    with pytest.raises(ZeroDivisionError):
        run("1 / 0", tmp_path)
    assert builtins.__import__ is original
