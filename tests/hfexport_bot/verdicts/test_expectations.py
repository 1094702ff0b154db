"""Entries for failures, on both sides of a change, from a case to what the report says of it."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.expectations import Expectation
from hfexport_bot.github.comment import CommentWhen, make_body
from hfexport_bot.plan import PlannedCase
from hfexport_bot.reporting.expectations import expectation_lines
from hfexport_bot.reporting.markdown import render
from hfexport_bot.schema import Backend, CaseId, CaseReport, Engine, Expected, Outcome, OutcomeKind, Report, Revision
from hfexport_bot.settings import AcceptedEntry
from hfexport_bot.verdicts.compare import make_cases
from hfexport_bot.verdicts.expectations import Expectations, changed_accepted, of_accepted

CASE = CaseId(model="a", class_name="AModel", backend=Backend.ONNX, engine=Engine.REPO)
ENTRY = Expectation('EXPORT_SKIPS["onnx"]', "AModel", "no kernel", "*/AModel/*@repo", frozenset({"onnx"}))
OTHER = Expectation('EXPORT_SKIPS["all"]', "AModel", "no kernel at all", "*/AModel/*@repo")
PASS = Outcome(kind=OutcomeKind.PASS)
FAIL = Outcome(kind=OutcomeKind.ERROR, stage="trace", message="x")
WORSE = Outcome(kind=OutcomeKind.CRASH, stage="run")
NONE = Outcome(kind=OutcomeKind.UNAVAILABLE, stage="source")

WITH, WITHOUT = (ENTRY,), ()


def judged(base: Outcome, head: Outcome, expectations: Expectations) -> CaseReport:
    planned = (PlannedCase(CASE, "m", "m", "r"),)
    (case,) = make_cases(planned, {CASE: base}, {CASE: head}, expected_of=expectations.of)
    return case


@pytest.mark.parametrize(
    ("base", "head", "entries", "verdict", "said"),
    [
        # removed: it must pass
        (FAIL, FAIL, (WITH, WITHOUT), "regression", "its expectation was removed by this change: "),
        (FAIL, WORSE, (WITH, WITHOUT), "regression", "its expectation was removed by this change: "),
        (PASS, FAIL, (WITH, WITHOUT), "regression", "its expectation was removed by this change: "),
        (FAIL, PASS, (WITH, WITHOUT), "fixed", "its expectation was removed by this change, and it passes: "),
        (NONE, NONE, (WITH, WITHOUT), "known", "its expectation was removed by this change: "),
        # added: it must fail on either side, and does not switch off its own check
        (PASS, PASS, (WITHOUT, WITH), "ok", "the entry is not needed: it passes: "),
        (PASS, FAIL, (WITHOUT, WITH), "regression", "this change expects it to fail: "),
        (FAIL, FAIL, (WITHOUT, WITH), "known", "this change expects it to fail: "),
        # in force
        (PASS, FAIL, (WITH, WITH), "known", "expected to fail: "),
        (FAIL, WORSE, (WITH, WITH), "known", "expected to fail: "),
        (PASS, PASS, (WITH, WITH), "ok", ""),
        # given up for another one that covers the case as well
        (PASS, FAIL, (WITH, (OTHER,)), "known", "expected to fail: "),
        (PASS, FAIL, (WITHOUT, WITHOUT), "regression", ""),
    ],
)
def test_entries_of_either_side(
    base: Outcome, head: Outcome, entries: tuple[tuple[Expectation, ...], ...], verdict: str, said: str
) -> None:
    case = judged(base, head, Expectations(*entries))
    assert case.verdict == verdict
    told = [line for line in case.details if "AModel" in line]
    assert told == ([f'{said}EXPORT_SKIPS["onnx"]["AModel"]: no kernel'] if said else [])


def test_a_finding_that_is_no_longer_accepted_must_pass_too() -> None:
    accepted = of_accepted([AcceptedEntry(id="a/*", reason="later")])
    case = judged(FAIL, FAIL, Expectations(accepted, ()))
    assert case.verdict == "regression"
    assert "its expectation was removed by this change: accepted (a/*): later" in case.details
    assert judged(PASS, FAIL, Expectations(accepted, accepted)).verdict == "known"


def test_a_finding_that_head_lets_expire_is_not_told_as_removed() -> None:
    accepted = of_accepted([AcceptedEntry(id="a/*", reason="later")])
    case = judged(FAIL, FAIL, Expectations(accepted, (), frozenset({"a/*"})))
    assert case.verdict == "regression"
    assert "its expectation expired by this change: accepted (a/*): later" in case.details
    report = Report(command="run", base=Revision(name="b"), head=Revision(name="h"), cases=(case,))
    assert [line.said for line in expectation_lines(report)] == ["expired: 1 of 1 case still does not pass"]
    changes = changed_accepted(accepted, of_accepted([AcceptedEntry(id="b/*", reason="new")]), frozenset({"a/*"}))
    assert [(entry.name, change) for entry, change in changes] == [("a/*", "expired"), ("b/*", "added")]
    assert [change for _, change in changed_accepted(accepted, ())] == ["removed"]


def test_the_report_tells_what_came_and_went() -> None:
    cases = (
        judged(FAIL, FAIL, Expectations(WITH, WITHOUT)),
        judged(PASS, PASS, Expectations(WITHOUT, (OTHER,))),
        judged(PASS, FAIL, Expectations(WITH, WITH)),
    )
    gone = Expected(entry="accepted (zoo/*)", reason="later", change="removed")
    report = Report(command="run", base=Revision(name="b"), head=Revision(name="h"), cases=cases, untried=(gone,))
    assert [line.said for line in expectation_lines(report)] == [
        "removed: 1 of 1 case still does not pass",
        "added: the entry is not needed: it passes",
        "removed, not tried",
    ]
    text = render(report)
    assert "- `accepted (zoo/*)`, removed, not tried (`later`)\n" in text
    assert text in make_body(report, CommentWhen.ON_FINDING, "").text
    needed, idle = judged(FAIL, FAIL, Expectations(WITHOUT, WITH)), judged(NONE, NONE, Expectations(WITH, ()))
    assert idle.verdict == "known"
    for case, untried, wanted in ((cases[1], (), True), (needed, (), False), (idle, (), True), (needed, (gone,), True)):
        told = report.model_copy(update={"cases": (case,), "untried": untried})
        assert make_body(told, CommentWhen.ON_FINDING, "").wanted is wanted, expectation_lines(told)
    assert '- `EXPORT_SKIPS["onnx"]["AModel"]`, removed: 1 of 1 case still does not pass (`no kernel`)' in text


@pytest.mark.parametrize(
    ("entries", "heads", "said"),
    [
        ((WITH, WITHOUT), (FAIL,), "removed: 1 of 1 case still does not pass"),
        ((WITH, WITHOUT), (FAIL, PASS), "removed: 1 of 2 cases still does not pass"),
        ((WITH, WITHOUT), (FAIL, FAIL), "removed: 2 of 2 cases still do not pass"),
        ((WITH, WITHOUT), (PASS,), "removed: 1 case of it passes"),
        ((WITH, WITHOUT), (PASS, PASS), "removed: 2 cases of it pass"),
        ((WITHOUT, WITH), (FAIL,), "added: 1 of 1 case does not pass"),
        ((WITHOUT, WITH), (FAIL, FAIL), "added: 2 of 2 cases do not pass"),
    ],
)
def test_one_case_and_several(
    entries: tuple[tuple[Expectation, ...], ...], heads: tuple[Outcome, ...], said: str
) -> None:
    cases = tuple(judged(FAIL, head, Expectations(*entries)) for head in heads)
    report = Report(command="run", base=Revision(name="b"), head=Revision(name="h"), cases=cases)
    assert [line.said for line in expectation_lines(report)] == [said]
