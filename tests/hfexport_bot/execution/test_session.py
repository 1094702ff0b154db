"""What runs on which side and what is not run twice, with runners of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hfexport_bot.execution.client import RunResult
from hfexport_bot.execution.session import SessionResult, run_session
from hfexport_bot.execution.sides import SideName
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import (
    Backend,
    CaseFinished,
    CaseId,
    CaseRequest,
    Fingerprint,
    Layout,
    Outcome,
    OutcomeKind,
    RunnerEvent,
    RunnerSetup,
)

BASE, HEAD = (RunnerSetup(layout=Layout.MODELING, tree=f"/{side}") for side in ("base", "head"))
PASS = Outcome(kind=OutcomeKind.PASS)
ONE, OTHER = (Fingerprint(eager="e", graphs=(graph,)) for graph in ("g1", "g2"))


def case(name: str, base: str | None = "m.py", head: str | None = "m.py") -> PlannedCase:
    return PlannedCase(CaseId(model="m", class_name=name, backend=Backend.DYNAMO), base, head, "changed")


def outcome(kind: OutcomeKind = OutcomeKind.PASS, fingerprint: Fingerprint | None = None, **more: Any) -> Outcome:
    return Outcome(kind=kind, fingerprint=fingerprint, **more)


class Runners:
    """Both sides' runners: note what they are asked, and give each side's outcomes by class; a pass to the others.

    As the real one does, they end a case that has the fingerprint of its twin.
    """

    def __init__(self, **outcomes: Mapping[str, Outcome]) -> None:
        self.outcomes = outcomes
        self.asked: list[tuple[str, int, list[CaseRequest]]] = []

    def __call__(
        self,
        setup: RunnerSetup,
        requests: Sequence[CaseRequest],
        *,
        on_event: Callable[[RunnerEvent], None] | None = None,
        cancelled: Any = None,
    ) -> RunResult:
        side = (setup.tree or "")[1:]
        self.asked.append((side, setup.jobs, list(requests)))
        found = {}
        for request in requests:
            result = self.outcomes.get(side, {}).get(request.id.class_name, PASS)
            if request.twin and result.fingerprint == request.twin:
                result = Outcome(kind=OutcomeKind.SKIPPED, stage="trace", fingerprint=request.twin, seconds=2.0)
            found[request.id] = result
            if on_event is not None:
                on_event(CaseFinished(id=request.id, outcome=result))
        return RunResult(found, {"torch": "2"})

    def run(self, *cases: PlannedCase, **options: Any) -> SessionResult:
        return run_session(cases, base=BASE, head=HEAD, run_cases=self, **options)

    def names(self, side: str) -> list[str]:
        return [f"{r.id.class_name}:{r.module}" for asked, _, requests in self.asked if asked == side for r in requests]


def test_each_side_runs_the_classes_it_has() -> None:
    runners = Runners()
    cases = (case("Both", "old.py", "new.py"), case("Removed", head=None), case("New", base=None))
    result = runners.run(*cases, jobs=4)
    assert runners.names("base") == ["Both:old.py", "Removed:m.py"]
    assert runners.names("head") == ["Both:new.py", "New:m.py"]
    assert set(result.base) == {cases[0].id, cases[1].id}
    assert set(result.head) == {cases[0].id, cases[2].id}
    assert result.versions == {"torch": "2"}
    assert result.ran == ("base", "head")


def test_base_comes_after_head_and_both_have_all_jobs() -> None:
    runners = Runners()
    runners.run(case("A"), jobs=4)
    assert [(side, jobs) for side, jobs, _ in runners.asked] == [("head", 4), ("base", 4)]


def test_versions_that_differ_are_told_for_both_sides() -> None:
    def run(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: object) -> RunResult:
        side = {"transformers": "5.24.0", "timm": "1.0"} if setup.tree == "/base" else {"transformers": "5.23.0"}
        return RunResult({request.id: PASS for request in requests}, {"torch": "2", **side})

    result = run_session([case("A")], base=BASE, head=HEAD, run_cases=run)
    assert result.versions == {"torch": "2", "transformers": "5.23.0 (base 5.24.0)", "timm": "1.0"}
    assert run_session([case("A", None)], base=BASE, head=HEAD, run_cases=run).versions["transformers"] == "5.23.0"


def test_without_a_baseline_only_head_runs() -> None:
    runners = Runners()
    result = run_session([case("A")], base=None, head=HEAD, run_cases=runners)
    assert runners.names("base") == []
    assert result.ran == ("head",)
    assert result.base == {}


def test_a_runner_that_cannot_work_is_named() -> None:
    def run(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: object) -> RunResult:
        fatal = "torch is broken" if setup.tree == "/base" else ""
        return RunResult({request.id: PASS for request in requests}, {}, fatal)

    result = run_session([case("A")], base=BASE, head=HEAD, run_cases=run)
    assert result.fatal == {"base": "torch is broken"}


def test_the_same_graphs_run_once_whatever_head_came_to() -> None:
    failed = outcome(OutcomeKind.TIMEOUT, ONE, stage="lower", message="not done", seconds=300.0)
    passed = outcome(OutcomeKind.PASS, ONE, workarounds={"w": 1})
    runners = Runners(
        head={"Slow": failed, "Fine": passed},
        base={"Slow": outcome(fingerprint=ONE), "Fine": outcome(OutcomeKind.ERROR, ONE)},
    )
    told: list[tuple[SideName, str, OutcomeKind]] = []

    def on_event(side: SideName, event: RunnerEvent) -> None:
        assert isinstance(event, CaseFinished)
        told.append((side, event.id.class_name, event.outcome.kind))

    slow, fine = case("Slow"), case("Fine")
    result = runners.run(slow, fine, on_event=on_event)
    assert result.base[slow.id] == failed.model_copy(update={"seconds": 2.0}), "its own seconds, head's end"
    assert result.base[fine.id] == passed.model_copy(update={"seconds": 2.0})
    assert told[2:] == [("base", "Slow", OutcomeKind.TIMEOUT), ("base", "Fine", OutcomeKind.PASS)]


def test_another_graph_or_an_unknown_one_runs_on_both_sides() -> None:
    broken, untraced = outcome(OutcomeKind.ERROR, OTHER, stage="emit"), outcome(OutcomeKind.ERROR, stage="trace")
    eager_only = outcome(OutcomeKind.ERROR, Fingerprint(eager="e"), stage="trace")
    runners = Runners(
        head={"Other": broken, "Untraced": untraced, "EagerOnly": eager_only},
        base=dict.fromkeys(("Other", "Untraced", "EagerOnly"), outcome(fingerprint=ONE)),
    )
    cases = [case(name) for name in ("Other", "Untraced", "EagerOnly")]
    result = runners.run(*cases)
    assert [result.base[each.id] for each in cases] == [outcome(fingerprint=ONE)] * 3
    requests = next(requests for side, _, requests in runners.asked if side == "base")
    assert [request.twin for request in requests] == [OTHER, None, None]
