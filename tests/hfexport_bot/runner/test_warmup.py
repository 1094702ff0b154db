"""What the warm parent imports of a checkout's tests, and when."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from exporters import warmup as exporters_warmup
from hfexport_bot.runner import tree
from hfexport_bot.runner.sources import checkout_tests
from hfexport_bot.runner.sources.cases import Unavailable
from hfexport_bot.runner.warmup import warm_up
from hfexport_bot.schema import Engine, Layout, RunnerSetup, Source, UnavailableCause


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The checkouts whose shared tests were imported; nothing else of a warm-up happens."""
    found: list[Path] = []
    monkeypatch.setattr(tree, "prepare_tree", lambda setup: {})
    monkeypatch.setattr(exporters_warmup, "warm_up", lambda backends: None)
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr(checkout_tests, "import_shared_tests", found.append)
    return found


@pytest.mark.parametrize(
    ("layout", "sources", "wanted"),
    [
        (Layout.TRANSFORMERS, (), True),
        (Layout.TRANSFORMERS, (Source.MODEL_TESTS, Source.SYNTHESISED), True),
        (Layout.TRANSFORMERS, (Source.SYNTHESISED,), False),
        (Layout.MODELING, (), False),
        (Layout.INSTALLED, (), False),
    ],
)
def test_shared_tests_are_imported_where_cases_may_need_them(
    layout: Layout, sources: tuple[Source, ...], wanted: bool, imported: list[Path], tmp_path: Path
) -> None:
    warm_up(RunnerSetup(layout=layout, tree=str(tmp_path), sources=sources), ())
    assert imported == ([tmp_path] if wanted else [])


def test_shared_tests_that_do_not_import_are_left_to_the_cases(
    imported: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(root: Path) -> None:
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, "tests.test_modeling_common does not import: it exits (3)")

    monkeypatch.setattr(checkout_tests, "import_shared_tests", fail)
    warm_up(RunnerSetup(layout=Layout.TRANSFORMERS, tree=str(tmp_path)), ())
    assert "not warm: tests.test_modeling_common does not import: it exits (3)" in capsys.readouterr().err


@pytest.mark.parametrize(("engines", "wanted"), [((Engine.OWN, Engine.REPO), True), ((Engine.OWN,), False)])
def test_the_revisions_exporters_are_imported_where_they_are_to_export(
    engines: tuple[Engine, ...], wanted: bool, imported: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def note(name: str) -> ModuleType:
        names.append(name)
        return ModuleType(name)

    monkeypatch.setattr("importlib.import_module", note)
    warm_up(RunnerSetup(layout=Layout.INSTALLED, engines=engines), ())
    assert ("transformers.exporters" in names) is wanted
