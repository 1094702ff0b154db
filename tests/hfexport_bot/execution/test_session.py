"""Both sides of a run, with a runner of the test's own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from hfexport_bot.execution.session import SideName, run_session
from hfexport_bot.plan import PlannedCase
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

BASE, HEAD = (RunnerSetup(layout=Layout.MODELING, tree=f"/{side}") for side in ("base", "head"))
PASS = Outcome(kind=OutcomeKind.PASS)


def case(name: str, base: str | None = "m.py", head: str | None = "m.py") -> PlannedCase:
    return PlannedCase(CaseId(model="m", class_name=name, backend=Backend.DYNAMO), base, head, "changed")


@dataclass
class Result:
    outcomes: dict[CaseId, Outcome]
    versions: dict[str, str] = field(default_factory=lambda: {"torch": "2"})
    fatal: str = ""


class Runner:
    """Notes what it is asked, and passes everything."""

    def __init__(self, act: Callable[[str, threading.Event], None] = lambda side, cancelled: None) -> None:
        self.asked: dict[str, tuple[RunnerSetup, list[str]]] = {}
        self.act = act

    def __call__(
        self,
        setup: RunnerSetup,
        requests: Sequence[CaseRequest],
        *,
        on_event: Callable[[RunnerEvent], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> Result:
        assert setup.tree is not None
        assert cancelled is not None
        assert on_event is not None
        self.asked[setup.tree[1:]] = (setup, [f"{r.id.class_name}:{r.module}" for r in requests])
        on_event(Ready())
        self.act(setup.tree[1:], cancelled)
        return Result({request.id: PASS for request in requests})


def test_each_side_runs_the_classes_it_has() -> None:
    runner = Runner()
    cases = (case("Both", "old.py", "new.py"), case("Removed", head=None), case("New", base=None))
    result = run_session(cases, base=BASE, head=HEAD, run_cases=runner, jobs=4)
    assert runner.asked["base"][1] == ["Both:old.py", "Removed:m.py"]
    assert runner.asked["head"][1] == ["Both:new.py", "New:m.py"]
    assert set(result.base) == {cases[0].id, cases[1].id}
    assert set(result.head) == {cases[0].id, cases[2].id}
    assert result.versions == {"torch": "2"}


def test_versions_that_differ_are_told_for_both_sides() -> None:
    def run(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: object) -> Result:
        side = {"transformers": "5.24.0", "timm": "1.0"} if setup == BASE else {"transformers": "5.23.0"}
        return Result({request.id: PASS for request in requests}, {"torch": "2", **side})

    result = run_session([case("A")], base=BASE, head=HEAD, run_cases=run)
    assert result.versions == {"torch": "2", "transformers": "5.23.0 (base 5.24.0)", "timm": "1.0"}
    assert run_session([case("A", None)], base=BASE, head=HEAD, run_cases=run).versions["transformers"] == "5.23.0"


@pytest.mark.parametrize(("jobs", "share"), [(1, 1), (2, 1), (5, 2)])
def test_two_sides_share_the_jobs(jobs: int, share: int) -> None:
    runner = Runner()
    run_session([case("A")], base=BASE, head=HEAD, run_cases=runner, jobs=jobs)
    assert {side: setup.jobs for side, (setup, _) in runner.asked.items()} == {"base": share, "head": share}


def test_the_only_side_with_cases_gets_all_jobs_and_the_other_no_runner() -> None:
    runner = Runner()
    result = run_session([case("New", base=None)], base=BASE, head=HEAD, run_cases=runner, jobs=4)
    assert runner.asked.keys() == {"head"}
    assert runner.asked["head"][0].jobs == 4
    assert result.ran == ("head",)
    assert result.base == {}


def test_without_a_baseline_only_head_runs() -> None:
    runner = Runner()
    run_session([case("A")], base=None, head=HEAD, run_cases=runner, jobs=3)
    assert runner.asked.keys() == {"head"}


def test_both_sides_run_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=10)
    run_session([case("A")], base=BASE, head=HEAD, run_cases=Runner(lambda *_: meeting.wait() and None))


def test_events_carry_their_side_one_at_a_time() -> None:
    seen: list[SideName] = []
    busy = threading.Lock()

    def on_event(side: SideName, event: RunnerEvent) -> None:
        assert busy.acquire(blocking=False)
        seen.append(side)
        busy.release()

    run_session([case("A")], base=BASE, head=HEAD, run_cases=Runner(), on_event=on_event)
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
        run_session([case("A")], base=BASE, head=HEAD, run_cases=Runner(act))
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
        with pytest.raises(KeyboardInterrupt):
            run_session([case("A")], base=BASE, head=HEAD, run_cases=Runner(act))
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(ended) == ["base", "head"]


def test_a_runner_that_cannot_work_is_named() -> None:
    class Broken(Runner):
        def __call__(self, setup, requests, **options):  # type: ignore[no-untyped-def]
            result = super().__call__(setup, requests, **options)
            result.fatal = "torch is broken" if setup.tree == "/base" else ""
            return result

    result = run_session([case("A")], base=BASE, head=HEAD, run_cases=Broken())
    assert result.fatal == {"base": "torch is broken"}
