"""What runs on which side and what is not run twice, with runners of the test's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.execution.client import RunResult
from hfexport_bot.execution.reruns import Reruns, Tries
from hfexport_bot.execution.session import SessionResult, run_session
from hfexport_bot.execution.sides import OnEvent, SideName, Sides
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import (
    Backend,
    CaseFinished,
    CaseId,
    CaseRequest,
    EagerChange,
    Engine,
    Fingerprint,
    Layout,
    Outcome,
    OutcomeKind,
    OutputChange,
    RunnerEvent,
    RunnerSetup,
    Source,
    SourceTry,
    UnavailableCause,
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

    As the real one does, they end a case that has the fingerprint of its twin. A list has the outcomes of one run after
    the other.
    """

    def __init__(self, **outcomes: Mapping[str, Outcome | list[Outcome]]) -> None:
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
            given = self.outcomes.get(side, {}).get(request.id.class_name, PASS)
            result = given.pop(0) if isinstance(given, list) else given
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


def test_runners_are_told_what_to_get_warm_with() -> None:
    told = []

    def run(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: object) -> RunResult:
        told.append((setup.backends, setup.engines))
        return RunResult({request.id: PASS for request in requests})

    ours, theirs = case("A"), case("B")
    theirs = replace(theirs, id=theirs.id.model_copy(update={"backend": Backend.ONNX, "engine": Engine.REPO}))
    run_session([ours, theirs], base=BASE, head=HEAD, run_cases=run)
    assert told == [((Backend.DYNAMO, Backend.ONNX), (Engine.OWN, Engine.REPO))] * 2


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
    result = runners.run(slow, fine, watch=lambda total, what: nullcontext(on_event))
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
    assert [request.twin for request in requests] == [OTHER, None, Fingerprint(eager="e")]


def differ(base: Outcome, head: Outcome) -> bool:
    return base.kind is not head.kind


class Watcher:
    """Keeps what it is shown: each phase's runs as they were announced, and the cases that ended in it."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, int, list[RunnerEvent]]] = []

    def __call__(self, total: int, what: str) -> AbstractContextManager[OnEvent]:
        told: list[RunnerEvent] = []
        self.phases.append((what, total, told))
        return nullcontext(lambda side, event: told.append(event))

    def check(self, *expected: tuple[str, int]) -> None:
        assert [(what, total) for what, total, _ in self.phases] == [*expected]
        assert [len(told) for _, _, told in self.phases] == [total for _, total in expected], "all that was announced"


def test_only_what_differs_is_run_again_whole_on_both_sides() -> None:
    error = outcome(OutcomeKind.ERROR, OTHER, stage="emit")
    runners = Runners(base={"Same": error}, head={"Same": error, "Chance": [error, PASS, error], "Real": error})
    same, chance, real = case("Same"), case("Chance"), case("Real")
    watcher = Watcher()
    result = runners.run(same, chance, real, jobs=2, reruns=Reruns(2, differ), watch=watcher)
    assert result.tries == {
        chance.id: Tries((PASS,) * 3, (error, PASS, error)),
        real.id: Tries((PASS,) * 3, (error,) * 3),
    }
    assert (result.base[chance.id], result.head[chance.id]) == (PASS, error), "the first run is what is reported"
    again = runners.asked[2:]
    assert sorted(side for side, _, _ in again) == ["base", "base", "head", "head"]
    for _, jobs, requests in again:
        assert jobs == 1, "half of them each"
        assert [(request.id, request.twin) for request in requests] == [(chance.id, None), (real.id, None)]
    watcher.check(("", 6), ("again", 4), ("again", 4))


def test_what_a_busy_machine_may_have_ended_is_run_alone() -> None:
    late = outcome(OutcomeKind.TIMEOUT, stage="lower")
    runners = Runners(head={"Late": [late, PASS]})
    one = case("Late")
    result = runners.run(one, jobs=8, reruns=Reruns(1, differ))
    assert [(side, jobs) for side, jobs, _ in runners.asked] == [("head", 8), ("base", 8), ("base", 1), ("head", 1)]
    assert result.tries == {one.id: Tries((PASS, PASS), (late, PASS))}


def test_reruns_end_with_the_time_there_is() -> None:
    slow, quick = (outcome(OutcomeKind.ERROR, seconds=seconds) for seconds in (1000.0, 1.0))
    runners = Runners(head={"Slow": slow, "Quick": quick})
    cases = case("Slow"), case("Quick")
    result = runners.run(*cases, jobs=2, reruns=Reruns(2, differ, time.monotonic() + 60))
    assert (set(result.tries), result.late) == ({cases[1].id}, (cases[0].id,))
    result = runners.run(*cases, reruns=Reruns(2, differ, time.monotonic() - 1))
    assert (result.tries, result.late) == ({}, (cases[0].id, cases[1].id))
    result = runners.run(*cases, reruns=Reruns(0, differ))
    assert (result.tries, result.late) == ({}, ()), "nobody wanted them"


def test_what_an_interrupt_kept_from_running_again_is_not_said_to_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    runners = Runners(head={"A": outcome(OutcomeKind.ERROR)})
    run = Sides.run

    def interrupted(sides: Sides, *arguments: Any, **options: Any) -> Any:
        found = run(sides, *arguments, **options)
        sides.interrupted |= "base" in found
        return found

    monkeypatch.setattr(Sides, "run", interrupted)
    result = runners.run(case("A"), reruns=Reruns(2, differ))
    assert (result.interrupted, result.tries, result.late) == (True, {}, ())


def test_where_eager_may_have_moved_head_runs_on_what_base_kept_once_a_model(tmp_path: Path) -> None:
    moved = EagerChange(max_abs=0.5, moved=(OutputChange(name="y", note="moved", max_abs=0.5, share=1.0),))

    class Keeping(Runners):
        """Base's writes its files, head's compares."""

        def __call__(self, setup: RunnerSetup, requests: Sequence[CaseRequest], **options: Any) -> RunResult:
            result = super().__call__(setup, requests, **options)
            for request in requests:
                if request.eager_to and result.outcomes[request.id].fingerprint != request.twin:
                    Path(request.eager_to).touch()
                if request.eager_from:
                    ended = request.id.class_name == "Moved"
                    error = outcome(OutcomeKind.ERROR, stage="eager", message="no such input")
                    result.outcomes[request.id] = outcome(eager=moved) if ended else error
            return result

    before, after = Fingerprint(eager="1", graphs=("g",)), Fingerprint(eager="2", graphs=("g",))
    names = ("Moved", "Same", "Broken")
    runners = Keeping(
        base=dict.fromkeys(names, outcome(fingerprint=before)),
        head={
            "Moved": outcome(fingerprint=after),
            "Same": outcome(fingerprint=before),
            "Broken": outcome(fingerprint=after),
        },
    )
    cases = [case(name) for name in names]
    onnx = replace(cases[0], id=cases[0].id.model_copy(update={"backend": Backend.ONNX}))
    watcher = Watcher()
    result = runners.run(*cases, onnx, exchange=tmp_path, watch=watcher)
    assert result.eager == {
        cases[0].id: moved,
        onnx.id: moved,
        cases[2].id: EagerChange(problem="error: no such input"),
    }
    (side, _, requests) = runners.asked[-1]
    assert (side, [request.id.class_name for request in requests]) == ("head", ["Moved", "Broken"])
    assert all(request.twin is None for request in requests)
    watcher.check(("", 8), ("eager on base's weights", 2))
    assert result.base[cases[0].id].kind is OutcomeKind.PASS, "other numbers in eager: base ran whole"


def made(source: str, *failed: str, kind: OutcomeKind = OutcomeKind.PASS, **more: Any) -> Outcome:
    """An outcome whose inputs come from a source, after test classes that ``failed``."""
    tries = [
        SourceTry(source="model tests", name=name, cause=UnavailableCause.UNKNOWN_INPUTS, message=f"{name} exits")
        for name in failed
    ]
    return outcome(kind, source=source, tried=tuple(tries), **more)


def test_base_runs_again_on_the_source_that_head_fell_back_to() -> None:
    head = made("synthesised", "ATest", fingerprint=ONE)
    runners = Runners(
        head={"A": head}, base={"A": [made("model tests: ATest", fingerprint=OTHER), made("synthesised")]}
    )
    result = runners.run(case("A"))
    id_ = case("A").id
    assert [(side, request.source) for side, _, (request,) in runners.asked] == [
        ("head", None),
        ("base", None),
        ("base", Source.SYNTHESISED),
    ]
    assert result.base[id_].source == "synthesised"
    (note,) = result.head[id_].notes
    assert (
        note == "head has no inputs from model tests: ATest, since ATest exits; base was run again on synthesised too"
    )


def test_a_second_run_leaves_what_eager_ran_on_in_a_file_of_its_own(tmp_path: Path) -> None:
    head = made("synthesised", "ATest", fingerprint=ONE)
    runners = Runners(
        head={"A": head}, base={"A": [made("model tests: ATest", fingerprint=OTHER), made("synthesised")]}
    )
    runners.run(case("A"), exchange=tmp_path)
    first, second = (requests[0].eager_to for side, _, requests in runners.asked if side == "base")
    assert first
    assert second
    assert first != second
    assert Path(second).parent == tmp_path


def test_the_source_of_a_second_run_that_ends_as_heads_twin_gives_heads_outcome() -> None:
    head = made("synthesised", "ATest", fingerprint=ONE)
    runners = Runners(head={"A": head}, base={"A": [made("model tests: ATest"), made("synthesised", fingerprint=ONE)]})
    base = runners.run(case("A")).base[case("A").id]
    assert (base.kind, base.source, base.fingerprint) == (OutcomeKind.PASS, "synthesised", ONE)


def test_what_base_cannot_have_from_heads_source_stays_and_is_told() -> None:
    lacks = outcome(OutcomeKind.UNAVAILABLE)
    runners = Runners(head={"A": made("model tests: ATest")}, base={"A": [made("synthesised", "ATest"), lacks]})
    result = runners.run(case("A"))
    assert result.base[case("A").id].source == "synthesised"
    (note,) = result.head[case("A").id].notes
    assert note.startswith("base has no inputs from model tests: ATest, since ATest exits: the sides' inputs")


def test_another_tester_of_the_same_tests_is_told_and_a_renamed_one_is_not() -> None:
    head = {"A": made("model tests: Other", "ATest"), "B": made("model tests: Renamed")}
    runners = Runners(head=head, base={"A": made("model tests: ATest"), "B": made("model tests: BTest")})
    result = runners.run(case("A"), case("B"))
    assert len(runners.asked) == 2
    assert [bool(result.head[case(name).id].notes) for name in "AB"] == [True, False]
