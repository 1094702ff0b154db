"""One case in a process of its own, which gives up what the case has no need of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hfexport_bot.runner.case import run_case
from hfexport_bot.runner.confine import confine_case
from hfexport_bot.runner.progress import OnFingerprint, OnStage
from hfexport_bot.runner.sources.checkout_tests import memory_folder
from hfexport_bot.schema import CaseRequest, Layout, Outcome, RunnerSetup


def run_confined(request: CaseRequest, setup: RunnerSetup, on_stage: OnStage, on_fingerprint: OnFingerprint) -> Outcome:
    """Run a case in its folder, the current one, which becomes its home."""
    confine_case(_writable(setup))
    os.environ["HOME"] = os.getcwd()
    return run_case(request, setup, on_stage, on_fingerprint, own_process=True)


def _writable(setup: RunnerSetup) -> Iterator[Path]:
    """The folders of the runner's that a case may write to."""
    yield Path.cwd()
    if setup.keep:
        yield Path(setup.keep)
    if setup.layout is Layout.TRANSFORMERS:
        memory_folder().mkdir(exist_ok=True)
        yield memory_folder()
