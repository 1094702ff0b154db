from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from hfexport_bot.runner.executed_lines import ExecutedLines
from hfexport_bot.runner.sources.process_state import unchanged_state
from hfexport_bot.schema import Layout, RunnerSetup

SOURCE = """LIMIT = 3
def f(x):
    if x:
        x = [
            x,
        ]
    else:
        x = 0
    return x
"""
SPANS = ((1, 1, True), (3, 3, False), (4, 6, False), (8, 8, False), (9, 9, False))


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    file = tmp_path / "modeling_watched.py"
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("modeling_watched", file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    sys.modules["modeling_watched"] = loaded
    yield loaded
    del sys.modules["modeling_watched"]


def lines(tmp_path: Path) -> ExecutedLines:
    watched = {"modeling_watched.py": SPANS, "never.py": ((1, 1, True),)}
    return ExecutedLines(RunnerSetup(layout=Layout.MODELING, tree=str(tmp_path), watched=watched))


def test_statements_that_ran_are_found_and_what_runs_at_import(tmp_path: Path, module: ModuleType) -> None:
    executed = lines(tmp_path)
    before = sys.gettrace()
    executed.begin("eager")
    module.f(1)
    executed.end()
    assert sys.gettrace() is before is None
    assert executed.found() == {"modeling_watched.py": (1, 3, 4, 9)}


def test_only_stages_that_run_the_models_code_are_watched(tmp_path: Path, module: ModuleType) -> None:
    executed = lines(tmp_path)
    for stage in ("translate", "lower", "parity"):
        executed.begin(stage)
        assert sys.gettrace() is None
    module.f(1)
    assert executed.found() == {"modeling_watched.py": (1,)}


def test_once_all_was_seen_nothing_is_traced(tmp_path: Path, module: ModuleType) -> None:
    watched = {"modeling_watched.py": SPANS[1:2]}
    executed = ExecutedLines(RunnerSetup(layout=Layout.MODELING, tree=str(tmp_path), watched=watched))
    executed.begin("eager")
    module.f(0)
    assert sys.gettrace() is None
    executed.begin("trace")
    assert sys.gettrace() is None
    assert executed.found() == {"modeling_watched.py": (3,)}


def test_what_has_ended_does_not_trace_on_where_it_is_put_back(tmp_path: Path, module: ModuleType) -> None:
    watched = {"modeling_watched.py": SPANS[1:2]}
    executed = ExecutedLines(RunnerSetup(layout=Layout.MODELING, tree=str(tmp_path), watched=watched))
    executed.begin("source")
    with unchanged_state() as changes:
        module.f(0)
        assert sys.gettrace() is None
    assert changes.put_back == []
    module.f(0)
    assert sys.gettrace() is None


def test_what_has_not_ended_traces_on_after_a_test_that_took_its_place(tmp_path: Path, module: ModuleType) -> None:
    executed = lines(tmp_path)
    executed.begin("source")
    with unchanged_state() as changes:
        sys.settrace(None)
    module.f(1)
    executed.end()
    with unchanged_state() as foreign:
        executed.begin("eager")
        sys.settrace(lambda *_: None)
    assert executed.found() == {"modeling_watched.py": (1, 3, 4, 9)}
    assert (changes.put_back, foreign.put_back) == ([], ["trace function"])


def test_nothing_to_watch_leaves_a_debugger_alone(tmp_path: Path) -> None:
    executed = ExecutedLines(RunnerSetup(layout=Layout.MODELING, tree=str(tmp_path)))
    sys.settrace(lambda *_: None)
    try:
        executed.begin("eager")
        executed.end()
        assert sys.gettrace() is not None
    finally:
        sys.settrace(None)
    assert executed.found() is None
