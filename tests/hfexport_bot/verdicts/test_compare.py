from __future__ import annotations

from datetime import date

import pytest

from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import (
    Blame,
    CaseId,
    CaseReport,
    Component,
    Fingerprint,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    TensorParity,
    UnavailableCause,
    VerdictKind,
)
from hfexport_bot.settings import AcceptedEntry, DriftSettings
from hfexport_bot.verdicts.compare import accept, cases_to_act_on, cause_of, counts, failing, make_cases, red_cases

CASE = CaseId.parse("bert/BertModel/onnx/dynamic/forward")
PASS = Outcome(kind=OutcomeKind.PASS, components=(Component(name="model", max_abs=1e-7),))
TRACE = Outcome(kind=OutcomeKind.ERROR, stage="trace", error_type="GuardError", message="Eq(u0, 1)")


def planned(base: str | None = "a.py", head: str | None = "a.py") -> PlannedCase:
    return PlannedCase(id=CASE, base_module=base, head_module=head, reason="a.py changed")


def one(case: PlannedCase, base: Outcome | None, head: Outcome | None, *accepted: AcceptedEntry) -> CaseReport:
    sides = [{} if side is None else {CASE: side} for side in (base, head)]
    (report,) = make_cases([case], sides[0], sides[1], accepted=accepted)
    return report


def test_the_same_graphs_on_both_sides_are_unchanged() -> None:
    one_graph, others, unknown = (
        PASS.model_copy(update={"fingerprint": Fingerprint(eager=eager, graphs=graphs)})
        for eager, graphs in (("e1", ("g1",)), ("e1", ("g2",)), ("e1", ()))
    )
    moved = one_graph.model_copy(update={"fingerprint": Fingerprint(eager="e2", graphs=("g1",))})
    assert one(planned(), one_graph, one_graph).verdict == "unchanged"
    assert one(planned(), one_graph, moved).verdict == "unchanged", "a graph is not its weights"
    assert one(planned(), one_graph, others).verdict == "ok"
    assert one(planned(), unknown, unknown).verdict == "ok"
    assert one(planned(), one_graph, TRACE).verdict == "regression"


def test_a_regression_carries_heads_outcome_and_both_sides() -> None:
    report = one(planned(), PASS, TRACE)
    assert report.verdict == "regression"
    assert (report.outcome, report.stage, report.message) == ("error", "trace", "Eq(u0, 1)")
    assert (report.base, report.head, report.reason) == (PASS, TRACE, "a.py changed")
    assert report.signature.startswith("error | trace | GuardError")


def test_inputs_from_two_sources_are_no_interface_that_moved() -> None:
    def made(source: str, *inputs: str) -> Outcome:
        component = Component(name="model", inputs=inputs, nodes=len(inputs) * 10)
        return Outcome(kind=OutcomeKind.PASS, source=source, components=(component,))

    tests, synthesised = made("model tests: BertModelTest", "a", "b"), made("synthesised", "b")
    assert one(planned(), tests, made("model tests: BertModelTest", "b")).verdict == "interface"
    assert one(planned(), tests, synthesised).verdict == "ok"


@pytest.mark.parametrize(
    ("case", "base", "head", "verdict"),
    [
        (planned(), PASS, PASS, "ok"),
        (planned(), TRACE, PASS, "fixed"),
        (planned(), TRACE, TRACE.model_copy(update={"message": "Eq(u9, 1)"}), "known"),
        (planned(), TRACE, TRACE.model_copy(update={"message": "Ne(u9, 1)"}), "changed"),
        (planned(base=None), None, TRACE, "new"),
        (planned(head=None), PASS, None, "removed"),
        (planned(), None, TRACE, "no-baseline"),
        (planned(), PASS, None, "regression"),
    ],
)
def test_verdicts(case: PlannedCase, base: Outcome | None, head: Outcome | None, verdict: str) -> None:
    assert one(case, base, head).verdict == verdict


def test_a_head_that_gave_nothing_is_a_crash() -> None:
    report = one(planned(), PASS, None)
    assert report.outcome == "crash"
    assert "no result" in report.message


def test_a_removed_case_shows_base() -> None:
    report = one(planned(head=None), TRACE, None)
    assert (report.outcome, report.base, report.head) == ("error", TRACE, None)


def test_without_a_baseline_nothing_is_compared() -> None:
    (report,) = make_cases([planned(base=None)], None, {CASE: TRACE})
    assert (report.verdict, report.base) == ("no-baseline", None)


def test_drift_is_what_the_settings_say() -> None:
    case = planned()
    before, after = (
        Outcome(kind=OutcomeKind.PASS, components=(Component(name="model", nodes=nodes),)) for nodes in (100, 120)
    )
    wide = DriftSettings(nodes=0.5)
    (by_default,) = make_cases([case], {case.id: before}, {case.id: after})
    (accepted,) = make_cases([case], {case.id: before}, {case.id: after}, drift=wide)
    assert (by_default.verdict, accepted.verdict) == (VerdictKind.DRIFT, VerdictKind.OK)


def test_an_accepted_entry_makes_a_regression_known_and_says_so() -> None:
    entry = AcceptedEntry(id="bert/*/onnx/*", reason="waits for onnxscript", expires=date(2030, 1, 2))
    report = one(planned(), PASS, TRACE, entry)
    assert report.verdict == "known"
    assert report.details == ("accepted until 2030-01-02: waits for onnxscript",)
    assert one(planned(), PASS, TRACE, AcceptedEntry(id="gpt2/*", reason="x")).verdict == "regression"
    assert one(planned(), PASS, PASS, entry).details == ()


def test_a_change_says_what_was_before() -> None:
    crash = Outcome(kind=OutcomeKind.CRASH, stage="run", message="\n segmentation fault \n")
    assert one(planned(), crash, TRACE).details == ("before: crash at run: segmentation fault",)


def test_an_input_that_nothing_can_guess_any_more_is_told_with_those_before() -> None:
    before = PASS.model_copy(update={"fed": ("input_ids", "attention_mask")})
    lost = Outcome(kind=OutcomeKind.UNAVAILABLE, stage="source", cause=UnavailableCause.UNKNOWN_INPUTS)
    case = one(planned(), before, lost)
    assert case.verdict == "regression"
    assert case.details == (
        "base was fed input_ids, attention_mask: an input that is new or renamed moves the interface",
        "if it is meant so, give its values by a function that `cases` in the settings names",
    )
    for base, head in ((lost, lost), (before, lost.model_copy(update={"cause": UnavailableCause.MISSING_LIBRARY}))):
        assert one(planned(), base, head).details == ()


def test_what_moved_is_named() -> None:
    output = TensorParity(name="logits", shape=(2, 3), dtype="float32")
    base = Component(name="model", max_abs=1e-7, nodes=100, outputs=(output,))
    moved = output.model_copy(update={"dtype": "float16"})
    head = base.model_copy(update={"outputs": (moved,), "nodes": 150})
    report = one(
        planned(), PASS.model_copy(update={"components": (base,)}), PASS.model_copy(update={"components": (head,)})
    )
    assert report.verdict == "interface"
    assert report.details == ("output logits: float32 → float16", "100 → 150 nodes")


def test_a_regression_that_has_a_graph_tells_what_moved_in_it() -> None:
    base = Component(name="model", nodes=100)
    head = base.model_copy(update={"unread": ("attention_mask",), "nodes": 50})
    wrong = Outcome(kind=OutcomeKind.PARITY, stage="parity", message="logits differ", components=(head,))
    report = one(planned(), PASS.model_copy(update={"components": (base,)}), wrong)
    assert (report.verdict, report.details) == ("regression", ("inputs without use: now attention_mask",))


def test_the_order_is_the_plans() -> None:
    ids = [CaseId.parse(f"{model}/M/onnx/dynamic/forward") for model in ("z", "a", "m")]
    plan = [PlannedCase(id=each, base_module=None, head_module="x", reason="") for each in ids]
    cases = make_cases(plan, {}, dict.fromkeys(ids, PASS))
    assert [case.id for case in cases] == ids


def report_of(*cases: CaseReport, command: str = "run", fail_on: tuple[str, ...] = ("regression",)) -> Report:
    return Report.model_validate(
        {"command": command, "head": Revision(name="head"), "cases": cases, "fail_on": fail_on}
    )


def test_counts() -> None:
    regression, ok = one(planned(), PASS, TRACE), one(planned(), PASS, PASS)
    other = regression.model_copy(update={"id": CaseId.parse("bert/BertModel/dynamo/dynamic/forward")})
    found = counts(report_of(regression, other, ok))
    assert (found.cases, found.classes, found.passing, found.causes) == (3, 1, 1, 1)
    assert found.verdicts == {VerdictKind.REGRESSION: 2, VerdictKind.OK: 1}
    assert found.outcomes == {OutcomeKind.ERROR: 2, OutcomeKind.PASS: 1}


def test_an_error_is_one_cause_on_all_backends_and_wrong_numbers_one_on_each() -> None:
    error = one(planned(), PASS, TRACE)
    wrong = one(planned(), PASS, Outcome(kind=OutcomeKind.PARITY, stage="parity", message="logits differ"))
    elsewhere = CaseId.parse("bert/BertModel/executorch/dynamic/forward")
    assert cause_of(error) == cause_of(error.model_copy(update={"id": elsewhere}))
    assert cause_of(wrong) != cause_of(wrong.model_copy(update={"id": elsewhere}))
    assert cause_of(error) != cause_of(wrong)
    for kind in (OutcomeKind.NONDETERMINISTIC, OutcomeKind.TIMEOUT, OutcomeKind.CRASH):
        early, late = (one(planned(), PASS, Outcome(kind=kind, stage=stage)) for stage in ("eager", "lower"))
        assert cause_of(early) == cause_of(early.model_copy(update={"id": elsewhere}))
        assert cause_of(late) != cause_of(late.model_copy(update={"id": elsewhere}))


def test_what_looks_alike_and_is_blamed_on_two_changed_places_has_two_causes() -> None:
    def blamed(file: str, line: int, **fields: object) -> CaseReport:
        location = {"file": file, "line": line, "function": "forward"}
        noisy = one(planned(), PASS, Outcome(kind=OutcomeKind.NONDETERMINISTIC, stage="eager", message="random"))
        blame = Blame.model_validate({"location": location, "changed": True, **fields})
        return noisy.model_copy(update={"blame": blame})

    suspect = cause_of(blamed("a.py", 35, suspected=True))
    assert suspect == cause_of(blamed("a.py", 35, suspected=True))
    assert suspect != cause_of(blamed("b.py", 35, suspected=True))
    assert suspect != cause_of(blamed("a.py", 95, suspected=True)), "forward of another class"
    assert cause_of(blamed("a.py", 35)) == cause_of(blamed("a.py", 36)), "an error's line moves in its function"
    assert cause_of(blamed("a.py", 35)) != cause_of(blamed("b.py", 35))
    assert cause_of(blamed("a.py", 35, changed=False)) == cause_of(blamed("b.py", 35, changed=False))


def test_failing_run_follows_fail_on() -> None:
    regression, new = one(planned(), PASS, TRACE), one(planned(base=None), None, TRACE)
    assert not failing(report_of())
    assert failing(report_of(regression))
    assert not failing(report_of(new))
    assert failing(report_of(new, fail_on=("new",)))
    assert not failing(report_of(regression, fail_on=()))
    assert failing(report_of().model_copy(update={"failure": "no runner worked"}))


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_failing_check_lets_only_passes_and_skips_through(kind: OutcomeKind) -> None:
    case = one(planned(base=None), None, Outcome(kind=kind))
    assert failing(report_of(case, command="check")) is (kind not in {"pass", "skipped"})


def test_what_to_act_on_is_what_is_red_then_what_moved_and_what_is_new_and_fails() -> None:
    ids = [CaseId.parse(f"bert/{name}/onnx/dynamic/forward") for name in ("Old", "New", "Moved", "Fresh", "Red")]
    cases = [
        one(planned(), TRACE, TRACE),
        one(planned(base=None), None, TRACE),
        one(planned(), PASS, PASS).model_copy(update={"verdict": VerdictKind.INTERFACE}),
        one(planned(base=None), None, PASS),
        one(planned(), PASS, TRACE),
    ]
    old, new, moved, fresh, red = (case.model_copy(update={"id": id}) for case, id in zip(cases, ids, strict=True))
    report = report_of(old, new, moved, fresh, red)
    assert red_cases(report) == (red,)
    assert cases_to_act_on(report) == (red, new, moved)
    assert cases_to_act_on(report_of(old, fresh)) == ()


def test_an_accepted_regression_is_known_and_says_why() -> None:
    regression = one(planned(), PASS, TRACE)
    report = report_of(regression)
    accepted = accept(report, [AcceptedEntry(id="bert/*", reason="shipped without ONNX (ada)")])
    assert not failing(accepted)
    assert accepted.cases[0].verdict == "known"
    assert accepted.cases[0].details == (*regression.details, "accepted: shipped without ONNX (ada)")
    assert report.cases[0].verdict == "regression"


@pytest.mark.parametrize("pattern", ["llama/*", "bert/BertModel/onnx/dynamic/generate", "bert"])
def test_accepting_what_is_no_regression_changes_nothing_and_says_so(pattern: str) -> None:
    report = report_of(one(planned(), PASS, TRACE), one(planned(), TRACE, TRACE))
    with pytest.raises(ValueError, match="no regression of this report has an id like"):
        accept(report, [AcceptedEntry(id="bert/*", reason="why"), AcceptedEntry(id=pattern, reason="because")])
