"""One sweep over the cases that were selected; its results for the tests, and its table at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from hfexport_bot.schema import CaseId, CaseReport
from tests.reach.sweep import summary, sweep

#: Names the folder of a sweep's log and reports; without it they go when the session goes.
OUT = "HFEXPORT_REACH_OUT"

_RESULTS: pytest.StashKey[dict[CaseId, CaseReport]] = pytest.StashKey()


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[CaseId, CaseReport]:
    """What each selected case came to: run together when the first test asks."""
    selected = [getattr(item, "callspec", None) for item in request.session.items]
    cases = [spec.params["case"] for spec in selected if spec and isinstance(spec.params.get("case"), CaseId)]
    out = Path(os.environ[OUT]) if os.environ.get(OUT) else tmp_path_factory.mktemp("reach")
    jobs = 1 if hasattr(request.config, "workerinput") else 2  # one of pytest's workers leaves the others their cores
    found = request.config.stash[_RESULTS] = sweep(cases, out, jobs)
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table of what ran."""
    found = config.stash.get(_RESULTS, {})
    if found:
        terminalreporter.section("reach")
        for line in summary(found.values()):
            terminalreporter.line(line)
