"""Run cases on base, on head or on both at the same time, each in a runner of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, runtime_checkable

from hfexport_bot.schema import CaseId, CaseRequest, Outcome, RunnerEvent, RunnerSetup

SideName = Literal["base", "head"]
_POLL_SECONDS = 0.2

OnEvent = Callable[[SideName, RunnerEvent], None]
#: Shows the progress of so many runs of cases while its context is open; a word says which runs, empty for the first.
Watch = Callable[[int, str], AbstractContextManager[OnEvent | None]]
Requests = Sequence[CaseRequest]


class SideResult(Protocol):
    """What `RunCases` gives: an outcome for every requested id, the versions of what exported, why the runner could not
    work at all (empty when it could), and by what it was not confined."""

    @property
    def outcomes(self) -> dict[CaseId, Outcome]: ...
    @property
    def versions(self) -> dict[str, str]: ...
    @property
    def fatal(self) -> str: ...
    @property
    def unprotected(self) -> tuple[str, ...]: ...


class RunCases(Protocol):
    """Run cases in a runner of their own: `hfexport_bot.execution.client.Runners`."""

    def __call__(
        self,
        setup: RunnerSetup,
        requests: Sequence[CaseRequest],
        *,
        on_event: Callable[[RunnerEvent], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> SideResult: ...


@runtime_checkable
class Prepares(Protocol):
    """What runs cases may also start a runner ahead of its cases: `hfexport_bot.execution.client.Runners`."""

    def prepare(self, setup: RunnerSetup) -> None: ...


def available_cpus() -> int:
    """The cpus this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Sides:
    """Both sides' setups, what runs cases, and what their runners said.

    Attributes:
        jobs: cases at the same time over both sides. versions: of what exported, by side. ran: the sides that did.
        fatal: why a side's runner could not work at all. unprotected: by what runners were not confined, and why.
        interrupted: whether somebody ended it.
    """

    def __init__(
        self,
        setups: Mapping[SideName, RunnerSetup],
        run_cases: RunCases,
        jobs: int | None = None,
    ) -> None:
        self.versions: dict[SideName, dict[str, str]] = {}
        self.fatal: dict[SideName, str] = {}
        self.unprotected: dict[str, None] = {}
        self.ran: set[SideName] = set()
        self.interrupted = False
        self._setups = setups
        self._run_cases = run_cases
        self.jobs = jobs or available_cpus()
        self._one_at_a_time = threading.Lock()

    def prepare(self, side: SideName) -> None:
        """Let a side's runner get warm, also while the other side works."""
        if isinstance(self._run_cases, Prepares):
            self._run_cases.prepare(self._setups[side])

    def run(
        self, work: Mapping[SideName, Requests], *, on_event: OnEvent | None = None, jobs: int | None = None
    ) -> dict[SideName, dict[CaseId, Outcome]]:
        """Run requests on their sides at the same time, which share the jobs: half each, or all for the only one.

        Args:
            on_event: called from either side's thread, one call at a time. jobs: in place of those of all runs.

        Raises what ``run_cases`` raises. On ``KeyboardInterrupt`` all runners are told to stop and waited for: there
        are the outcomes of what had ended, `interrupted` is set, and from then on nothing is run.
        """
        if self.interrupted:
            return {}
        work = {side: requests for side, requests in work.items() if requests}
        for side in work:  # from here: a runner ends with the thread that started it, and is to outlive these
            self.prepare(side)
        share = max(1, (jobs or self.jobs) // max(1, len(work)))
        cancelled = threading.Event()
        ends = {side: threading.Event() for side in work}  # set once a side has ended
        started: list[threading.Event] = []
        found: dict[SideName, dict[CaseId, Outcome]] = {}
        errors: list[BaseException] = []

        def run(side: SideName, requests: Requests) -> None:
            started.append(ends[side])
            try:
                if not cancelled.is_set():
                    found[side] = self._run(side, requests, share, cancelled, on_event)
            except BaseException as error:
                errors.append(error)
                cancelled.set()  # the other side's work would be for nothing
            finally:
                ends[side].set()

        try:
            for side, requests in work.items():
                threading.Thread(target=run, args=(side, requests), name=f"{side} runner").start()
            _wait(list(ends.values()))
        except KeyboardInterrupt:
            self.interrupted = True
            cancelled.set()
            _wait(started)
        if errors:
            raise errors[0]
        return found

    def _run(
        self, side: SideName, requests: Requests, jobs: int, cancelled: threading.Event, on_event: OnEvent | None
    ) -> dict[CaseId, Outcome]:
        def report(event: RunnerEvent) -> None:
            if on_event is not None:
                with self._one_at_a_time:
                    on_event(side, event)

        setup = self._setups[side].model_copy(update={"jobs": jobs})
        result = self._run_cases(setup, requests, on_event=report, cancelled=cancelled)
        self.ran.add(side)
        self.versions[side] = result.versions
        self.unprotected |= dict.fromkeys(result.unprotected)
        if result.fatal:
            self.fatal[side] = result.fatal
        return result.outcomes


def _wait(ends: Sequence[threading.Event]) -> None:
    """Wait for all. Not by joining threads: an interrupted join takes its thread for ended, and a wait without an
    end may sleep through a signal that came right before it."""
    for ended in ends:
        while not ended.wait(_POLL_SECONDS):
            pass
