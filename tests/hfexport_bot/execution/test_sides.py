"""Cases on one side or on both at the same time, with a runner of the test's own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence

import pytest

from hfexport_bot.execution.client import RunResult
from hfexport_bot.execution.sides import Requests, SideName, Sides
from hfexport_bot.schema import (
    Backend,
    CaseId,
    CaseRequest,
    Layout,
    Outcome,
    OutcomeKind,
    Ready,
    RunnerEvent,
    RunnerSetup,
)

SETUPS: dict[SideName, RunnerSetup] = {
    "base": RunnerSetup(layout=Layout.MODELING, tree="/base"),
    "head": RunnerSetup(layout=Layout.MODELING, tree="/head"),
}
CASE = CaseRequest(id=CaseId(model="m", class_name="A", backend=Backend.DYNAMO), module="m.py")
BOTH: dict[SideName, Requests] = {"base": [CASE], "head": [CASE]}


class Runner:
    """Notes the jobs it is given, acts as it is told to, and passes everything."""

    def __init__(self, act: Callable[[str, threading.Event], object] = lambda side, cancelled: None) -> None:
        self.jobs: dict[str, int] = {}
        self.act = act

    def __call__(
        self,
        setup: RunnerSetup,
        requests: Sequence[CaseRequest],
        *,
        on_event: Callable[[RunnerEvent], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> RunResult:
        assert setup.tree is not None
        assert cancelled is not None
        assert on_event is not None
        side = setup.tree[1:]
        self.jobs[side] = setup.jobs
        on_event(Ready())
        self.act(side, cancelled)
        return RunResult({request.id: Outcome(kind=OutcomeKind.PASS) for request in requests})


@pytest.mark.parametrize(("jobs", "share"), [(1, 1), (2, 1), (5, 2)])
def test_two_sides_share_the_jobs(jobs: int, share: int) -> None:
    runner = Runner()
    Sides(SETUPS, runner, jobs).run(BOTH)
    assert runner.jobs == {"base": share, "head": share}


def test_the_only_side_with_cases_gets_all_jobs_and_the_other_no_runner() -> None:
    runner = Runner()
    sides = Sides(SETUPS, runner, 4)
    assert sides.run({"base": [], "head": [CASE]}).keys() == {"head"}
    assert runner.jobs == {"head": 4}
    assert sides.ran == {"head"}


def test_both_sides_run_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=10)
    Sides(SETUPS, Runner(lambda *_: meeting.wait())).run(BOTH)


def test_events_carry_their_side_one_at_a_time() -> None:
    seen: list[SideName] = []
    busy = threading.Lock()

    def on_event(side: SideName, event: RunnerEvent) -> None:
        assert busy.acquire(blocking=False)
        seen.append(side)
        busy.release()

    Sides(SETUPS, Runner()).run(BOTH, on_event=on_event)
    assert sorted(seen) == ["base", "head"]


def test_an_error_on_one_side_stops_the_other_and_is_raised() -> None:
    stopped: list[bool] = []
    started = threading.Barrier(2, timeout=10)

    def act(side: str, cancelled: threading.Event) -> None:
        started.wait()
        if side == "base":
            raise OSError("no more processes")
        stopped.append(cancelled.wait(10))

    with pytest.raises(OSError, match="no more processes"):
        Sides(SETUPS, Runner(act)).run(BOTH)
    assert stopped == [True]


def test_an_interrupt_cancels_both_sides_and_waits_for_them() -> None:
    started = threading.Barrier(2, timeout=10)
    ended: list[str] = []

    def act(side: str, cancelled: threading.Event) -> None:
        if started.wait() == 0:
            # To the thread that waits for both, as the kernel does with Ctrl-C.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert cancelled.wait(10)
        ended.append(side)

    # A shell has its background jobs ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sides = Sides(SETUPS, Runner(act))
        found = sides.run(BOTH)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(ended) == sorted(found) == ["base", "head"], "what had ended is kept"
    assert sides.interrupted
    assert sides.run(BOTH) == {}
    assert len(ended) == 2, "and nothing more is run"
