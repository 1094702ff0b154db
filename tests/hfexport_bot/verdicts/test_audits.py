from __future__ import annotations

import pytest

from hfexport_bot.schema import Backend, CaseId, CaseReport, Component, Need, Outcome, OutcomeKind, VerdictKind
from hfexport_bot.verdicts.audits import (
    Trial,
    choose_trials,
    hit_ids,
    judge_trial,
    judge_workaround,
    rounds,
    with_removed,
)


def case(name: str, backend: Backend = Backend.ONNX) -> CaseId:
    return CaseId(model="tiny", class_name=name, backend=backend)


def hit(*names: str, seconds: float = 1.0, kind: OutcomeKind = OutcomeKind.PASS, nodes: int = 100) -> Outcome:
    component = Component(name="model", max_abs=0.0, nodes=nodes)
    return Outcome(kind=kind, seconds=seconds, workarounds=dict.fromkeys(names, 1), components=(component,))


def test_a_workaround_is_tried_on_its_cheapest_cases_of_every_backend() -> None:
    outcomes = {
        case("A", Backend.DYNAMO): hit("w", seconds=1),
        case("B", Backend.DYNAMO): hit("w", seconds=2),
        case("A", Backend.EXECUTORCH): hit("w", seconds=30),
        case("A"): hit("w", seconds=5),
        case("C"): hit("w", seconds=4),
        case("D"): hit(seconds=0.1),
    }
    chosen = [trial.case for trial in choose_trials(["w"], outcomes)]
    assert chosen == [case("A", Backend.DYNAMO), case("C"), case("A", Backend.EXECUTORCH)]
    assert [trial.case for trial in choose_trials(["w"], outcomes, most=1)] == [case("A", Backend.DYNAMO)]


def test_a_case_that_is_run_anyway_goes_before_a_cheaper_one() -> None:
    outcomes = {case("A"): hit("v", "w", seconds=5), case("B"): hit("w", seconds=1)}
    assert choose_trials(["v", "w"], outcomes, most=1) == (Trial("v", case("A")), Trial("w", case("A")))


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind not in (OutcomeKind.PASS, OutcomeKind.SKIPPED)])
def test_a_case_that_fails_with_a_workaround_tells_nothing(kind: OutcomeKind) -> None:
    assert choose_trials(["w"], {case("A"): hit("w", kind=kind)}) == ()


def test_a_skipped_case_is_audited_like_any_other() -> None:
    outcomes = {case("A"): hit("onnx/source/slow", kind=OutcomeKind.SKIPPED)}
    assert choose_trials(hit_ids(outcomes.values()), outcomes) == (Trial("onnx/source/slow", case("A")),)


def test_no_round_has_a_case_twice_and_none_is_lost() -> None:
    trials = [Trial(name, case(where)) for name, where in ("vA", "vB", "wA", "xA", "xB")]
    grouped = rounds(trials)
    assert [[(t.workaround, t.case.class_name) for t in group] for group in grouped] == [
        [("v", "A"), ("v", "B")],
        [("w", "A"), ("x", "B")],
        [("x", "A")],
    ]
    assert rounds([]) == ()


@pytest.mark.parametrize(
    ("kind", "need"),
    [
        (OutcomeKind.PASS, Need.NOT_NEEDED),
        (OutcomeKind.PARITY, Need.NEEDED),
        (OutcomeKind.ERROR, Need.NEEDED),
        (OutcomeKind.UNSUPPORTED, Need.NEEDED),
        *((kind, Need.UNKNOWN) for kind in (OutcomeKind.TIMEOUT, OutcomeKind.OOM, OutcomeKind.CRASH)),
        (OutcomeKind.UNAVAILABLE, Need.UNKNOWN),
        (OutcomeKind.NONDETERMINISTIC, Need.UNKNOWN),
        (OutcomeKind.SKIPPED, Need.UNKNOWN),
    ],
)
def test_what_a_case_comes_to_without_it_decides(kind: OutcomeKind, need: Need) -> None:
    without = Outcome(kind=kind, stage="translate", message="first\nsecond", seconds=3)
    audited = judge_trial(Trial("w", case("A")), hit("w"), without)
    assert (audited.need, audited.outcome, audited.seconds) == (need, kind, 3)
    if kind is OutcomeKind.ERROR:
        assert (audited.stage, audited.said) == ("translate", "error at translate: first")


def test_a_graph_that_doubles_is_for_a_person_to_judge() -> None:
    trial, control = Trial("w", case("A")), hit("w", nodes=100)
    assert judge_trial(trial, control, hit(nodes=200)).need is Need.NOT_NEEDED
    grown = judge_trial(trial, control, hit(nodes=201))
    assert (grown.need, grown.said) == (Need.UNKNOWN, "passes without it, but 100 → 201 nodes")


def test_one_failing_case_is_enough_and_one_unclear_case_too_much() -> None:
    passing, failing, stuck = (
        judge_trial(Trial("w", case(name)), hit("w"), Outcome(kind=kind, stage="run"))
        for name, kind in (("A", OutcomeKind.PASS), ("B", OutcomeKind.PARITY), ("C", OutcomeKind.TIMEOUT))
    )
    needed = judge_workaround("w", [passing, stuck, failing])
    assert (needed.need, needed.said) == (Need.NEEDED, "tiny/B/onnx/dynamic/forward: parity at run")
    assert judge_workaround("w", [passing, stuck]).need is Need.UNKNOWN
    free = judge_workaround("w", [passing])
    assert (free.need, free.said) == (Need.NOT_NEEDED, "tiny/A/onnx/dynamic/forward passes without it")
    assert judge_workaround("w", [], "no case hits it").said == "no case hits it"
    assert judge_workaround("w", []).need is Need.UNKNOWN


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (hit("v", kind=OutcomeKind.ERROR), ("w",)),
        (hit("v", kind=OutcomeKind.PARITY), ("w",)),
        (hit("v", "w", kind=OutcomeKind.ERROR), ()),  # another file registers it now
        (hit("v"), ()),
    ],
)
def test_a_failure_names_the_removed_workarounds_that_base_hit(head: Outcome, told: tuple[str, ...]) -> None:
    report = CaseReport(
        id=case("A"),
        verdict=VerdictKind.REGRESSION,
        outcome=head.kind,
        base=hit("v", "w"),
        head=head,
        details=("head failed 3 of 3 runs",),
    )
    found = with_removed(report, {"w", "x"})
    said = "removed by this change, and base hit it in this case: w"
    assert found.removed == told
    assert found.details == ((said,) if told else ()) + report.details
    assert with_removed(report.model_copy(update={"base": None}), {"w"}).removed == ()
