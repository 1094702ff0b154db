from __future__ import annotations

import pytest

from hfexport_bot.reporting.failures import blamed_line, error_name
from hfexport_bot.reporting.summary import (
    causes,
    cell,
    column_title,
    columns,
    count_line,
    duration,
    error_size,
    headline,
    merge_safety,
    origins,
    plural,
    row_labels,
    rows,
    sample_lines,
)
from hfexport_bot.schema import (
    Backend,
    CaseId,
    CaseReport,
    Component,
    EagerChange,
    NotRun,
    Outcome,
    OutcomeKind,
    OutputChange,
    ProbeResult,
    Report,
    Revision,
    Sample,
    Unreached,
    VerdictKind,
)
from hfexport_bot.verdicts.compare import counts


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m 00s"), (112, "1m 52s"), (7500, "2h 05m")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3e-7, "3e-7"),
        (3.14e-7, "3.1e-7"),
        (0.031, "0.031"),
        (2.0, "2"),
        (12345.0, "1.2e4"),
        (float("nan"), "nan"),
    ],
)
def test_error_size(value: float, text: str) -> None:
    assert error_size(value) == text


def test_plural() -> None:
    assert [plural(1, "class"), plural(2, "class"), plural(0, "case"), plural(1500, "entry")] == [
        "1 class",
        "2 classes",
        "0 cases",
        "1,500 entries",
    ]


def case_of(outcome: str, verdict: str = "no-baseline", stage: str = "", error: float | None = None) -> CaseReport:
    return CaseReport(
        id=CaseId.parse("bert/BertModel/onnx/dynamic/forward"),
        verdict=VerdictKind(verdict),
        outcome=OutcomeKind(outcome),
        stage=stage,
        components=(Component(name="prefill", max_abs=0.0), Component(name="decode", max_abs=error)),
    )


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (case_of("pass", error=3e-7), "✅ 3e-7"),
        (case_of("pass", "fixed", error=3e-7), "✅ 3e-7 · fixed"),
        (case_of("pass", "unchanged"), "✅ 0"),
        (case_of("error", "regression", "trace"), "❌ trace"),
        (case_of("error", "known", "trace"), "❌ trace · known"),
        (case_of("error", stage="<b>@x</b>"), "❌ error"),
        (case_of("parity", stage="parity", error=0.5), "❌ parity 0.5"),
        (case_of("timeout", stage="lower"), "❌ timeout lower"),
        (case_of("crash"), "❌ crash"),
        (case_of("unavailable", stage="source"), "⚪ unavailable"),
        (case_of("skipped", "known"), "⚪ skipped · known"),
        # red: these passed on base
        (case_of("skipped", "regression"), "❌ skipped"),
        (case_of("unavailable", "regression", "source"), "❌ unavailable"),
        (case_of("nondeterministic", "regression", "eager"), "❌ nondeterministic"),
    ],
)
def test_cell(case: CaseReport, text: str) -> None:
    assert cell(case) == text


def probed(outcome: str, *probes: tuple[str, float | None]) -> CaseReport:
    results = tuple(ProbeResult.model_validate({"name": "p", "status": s, "max_abs": e}) for s, e in probes)
    component = Component(name="model", max_abs=0.0, probes=results)
    return case_of(outcome).model_copy(update={"components": (component,)})


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (probed("parity", ("pass", 0.9), ("parity", 0.25), ("parity", 0.5)), "❌ parity 0.5"),
        (probed("parity", ("parity", 0.5), ("parity", float("nan"))), "❌ parity nan"),
        (probed("parity", ("parity", None)), "❌ parity"),
        (probed("pass", ("pass", 0.9)), "✅ 0"),
    ],
)
def test_a_cell_shows_the_error_of_the_probe_that_differs(case: CaseReport, text: str) -> None:
    assert cell(case) == text


def test_a_failure_names_its_component_where_it_is_a_known_one() -> None:
    failed = case_of("error", "regression", "trace")
    for component, place in (("decode", "decode trace"), ("<b>@x</b>", "trace")):
        side = Outcome(kind=OutcomeKind.ERROR, stage="trace", component=component)
        case = failed.model_copy(update={"head": side})
        assert cell(case) == f"❌ {place}"
        assert causes([case])[0].where == f"ONNX · {place}"


def test_a_cause_joins_backends_and_classes(run_report: Report) -> None:
    regressions = [case for case in run_report.cases if case.verdict is VerdictKind.REGRESSION]
    found = causes(regressions)
    assert [cause.where for cause in found] == ["torch.export, ONNX, ExecuTorch · trace", "ExecuTorch · parity"]
    assert [cause.classes for cause in found] == [("Branch",), ("Gelu",)]
    assert error_name(found[0].first) == "GuardOnDataDependentSymNode"
    assert str(blamed_line(found[0].first)) == "models/modeling_tiny.py:31"
    assert len(found) == counts(run_report).causes


PASSED = Outcome(kind=OutcomeKind.PASS)
MOVED = EagerChange(moved=(OutputChange(name="logits", note="moved", max_abs=0.21, share=1.0),))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((MOVED, MOVED), "eager moved in 1 class · "),  # two backends of one class
        ((EagerChange(moved=(OutputChange(name="", note="no longer taken"),)),), "eager moved in 1 class · "),
        ((EagerChange(),), ""),
        ((MOVED.model_copy(update={"weights": "a new layer"}),), ""),
        ((EagerChange(problem="head does not run"),), ""),
        ((None,), ""),
    ],
)
def test_the_title_counts_the_classes_whose_own_numbers_moved(
    changes: tuple[EagerChange | None, ...], said: str
) -> None:
    backends = (Backend.DYNAMO, Backend.ONNX)
    cases = [
        case.model_copy(update={"head": PASSED, "eager": change, "id": case.id.model_copy(update={"backend": backend})})
        for change, backend, case in zip(changes, backends, [case_of("pass", "ok")] * 2, strict=False)
    ]
    report = Report(command="run", base=Revision(name="b"), head=Revision(name="h"), cases=tuple(cases))
    assert headline(report) == f"0 regressions · {said}safe to merge: yes"


def test_the_title_counts_what_is_flaky() -> None:
    cases = (case_of("error", "flaky", "trace"), case_of("pass", "ok").model_copy(update={"head": PASSED}))
    report = Report(command="run", base=Revision(name="b"), head=Revision(name="h"), cases=cases)
    assert headline(report) == "0 regressions · 1 flaky · safe to merge: yes"


def test_rows_keep_the_order_within_a_rank(run_report: Report) -> None:
    table = rows(run_report.cases)
    assert row_labels(table) == ["Branch", "Gelu", "Mended", "Broken", "Grown", "Fresh", "Gone"]


def test_headlines_without_cases() -> None:
    empty = Report(command="run", head=Revision(name="x"))
    assert headline(empty) == "nothing affected · safe to merge: yes"
    cut = empty.model_copy(update={"unreached": (Unreached(file="a.py", function="f", lines=((1, 2),)),)})
    assert headline(cut) == "nothing was run · 1 changed function was not judged, see what was not run"
    assert merge_safety(cut) == "unknown"
    assert headline(empty.model_copy(update={"command": "check"})) == "nothing to run"


def test_a_clean_run(run_report: Report) -> None:
    clean = [case for case in run_report.cases if case.verdict is VerdictKind.NEW]
    report = run_report.model_copy(update={"cases": tuple(clean)})
    assert headline(report) == "0 regressions · safe to merge: yes"


def test_a_run_without_a_pass_on_either_side_is_not_called_safe(run_report: Report) -> None:
    broken = [case for case in run_report.cases if case.verdict is VerdictKind.KNOWN]
    report = run_report.model_copy(update={"cases": tuple(broken)})
    assert broken
    assert headline(report) == "0 regressions · safe to merge: unknown, no case passed on either side"
    assert merge_safety(report.model_copy(update={"fail_on": (VerdictKind.KNOWN,)})) == "no"


def test_a_requirement_that_head_did_not_run_with_is_not_called_safe(run_report: Report) -> None:
    def title(*unmet: str) -> str:
        clean = tuple(case for case in run_report.cases if case.verdict is VerdictKind.NEW)
        return headline(run_report.model_copy(update={"cases": clean, "unmet": unmet})).partition(": ")[2]

    rest = "that it did not run with, see the notes"
    assert title("onnxscript 0.7.1") == f"unknown, head asks for onnxscript 0.7.1 {rest}"
    assert title("onnx 1.9", "@ping/<b>") == f"unknown, head asks for onnx 1.9 and 1 more requirement {rest}"
    assert title("www.example.org") == f"unknown, head asks for 1 requirement {rest}"
    assert merge_safety(run_report.model_copy(update={"unmet": ("onnx 1.9",)})) == "no"
    assert headline(Report(command="run", head=Revision(name="x"), unmet=("onnx 1.9",))).endswith("merge: yes")


def test_one_pass_on_either_side_is_enough_to_see_a_regression(run_report: Report) -> None:
    fixed = [case for case in run_report.cases if case.verdict in (VerdictKind.KNOWN, VerdictKind.FIXED)]
    assert merge_safety(run_report.model_copy(update={"cases": tuple(fixed)})) == "yes"
    removed = [case for case in run_report.cases if case.verdict is VerdictKind.REMOVED]
    assert merge_safety(run_report.model_copy(update={"cases": tuple(removed)})) == "yes"


def test_a_run_of_classes_that_do_not_generate_is_not_called_safe() -> None:
    left = NotRun(kind="class", name="bert/BertModel", reason="it does not generate")
    report = Report(command="run", head=Revision(name="x"), not_run=(left,))
    assert headline(report) == "nothing was run · 1 affected class was not judged, see what was not run"


def test_count_line(run_report: Report) -> None:
    assert count_line(counts(run_report)) == "12 cases: 6 pass, 2 parity, 4 error"
    assert count_line(counts(run_report.model_copy(update={"cases": ()}))) == "0 cases"


def broken(path: str) -> CaseReport:
    return CaseReport(
        id=CaseId.parse(path), verdict=VerdictKind.NO_BASELINE, outcome=OutcomeKind.ERROR, stage="trace", signature="s"
    )


def test_two_engines_stand_side_by_side_and_variants_below_each_other() -> None:
    path = "bert/BertModel/onnx/dynamic/forward"
    cases = [broken(path + end) for end in ("", "@repo", "+cache", "+cache@repo")]
    shown = columns(cases)
    assert [column_title(column) for column in shown] == ["ONNX", "ONNX (repo)"]
    table = rows(cases)
    assert row_labels(table) == ["BertModel", "BertModel (cache)"]
    assert [[str(row.cases[column].id) for column in shown] for row in table] == [
        [path, f"{path}@repo"],
        [f"{path}+cache", f"{path}+cache@repo"],
    ]
    assert causes(cases)[0].where == "ONNX, ONNX (repo) · trace"


def test_origins_count_the_sources_of_models() -> None:
    def made(source: str) -> CaseReport:
        outcome = Outcome(kind=OutcomeKind.PASS, source=source)
        return broken("bert/BertModel/onnx/dynamic/forward").model_copy(update={"head": outcome})

    cases = [made("synthesised"), made("model tests: BertModelTest"), made("model tests: BertLongTest"), made("<b>")]
    assert origins(cases) == "models from model tests (2), synthesised (1)"
    assert origins([made("")]) == ""


def test_a_sample_says_which_classes_it_passed_over_and_that_it_tells_nothing() -> None:
    sample = Sample(classes=1, affected=5, limits=("max-models: 1",), estimated_seconds=1, passed_over=2, unlikely=1)
    report = Report(command="run", head=Revision(name="x"), cases=(case_of("unavailable", "known"),), sample=sample)
    told = sample_lines(report)
    assert "Passed over, since they can probably not be built here: 2 classes." in told
    assert "In it for want of others, though hardly to be built: 1 class." in told
    assert "None of its classes could be built and run, so it tells nothing of the change." in told
    clear = sample.model_copy(update={"passed_over": 0, "unlikely": 0})
    ran = report.model_copy(update={"sample": clear, "cases": (case_of("pass", "ok"),)})
    assert sample_lines(ran) == ("A sample: 1 of 5 affected classes, by max-models: 1.",)
