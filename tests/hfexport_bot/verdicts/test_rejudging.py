"""Reports judged anew: what is honest stays as it is, and what outcomes do not bear out goes."""

from __future__ import annotations

from datetime import date

from hfexport_bot.execution.reruns import Tries
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import (
    Blame,
    CaseId,
    CaseReport,
    Component,
    Expected,
    Location,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    VerdictKind,
)
from hfexport_bot.settings import AcceptedEntry, SettingsFile, in_force
from hfexport_bot.verdicts.compare import make_cases
from hfexport_bot.verdicts.expectations import Expectations, of_accepted
from hfexport_bot.verdicts.rejudging import differing, rejudged
from hfexport_bot.verdicts.stability import told

TODAY = date(2026, 11, 30)
PASS = Outcome(kind=OutcomeKind.PASS, components=(Component(name="model", max_abs=1e-7, inputs=("x",)),))
FAIL = Outcome(kind=OutcomeKind.ERROR, stage="trace", message="guard")
OTHER = Outcome(kind=OutcomeKind.ERROR, stage="run", message="no kernel")
RENAMED = Outcome(kind=OutcomeKind.PASS, components=(Component(name="model", max_abs=1e-7, inputs=("y",)),))
WORSE = Outcome(kind=OutcomeKind.PASS, components=(Component(name="model", max_abs=1e-3, inputs=("x",)),))

#: What each class came to on base and on head; None is a class that is not there, and ... one without an outcome.
SIDES = {
    "Ok": (PASS, PASS),
    "Regression": (PASS, FAIL),
    "Fixed": (FAIL, PASS),
    "Changed": (FAIL, OTHER),
    "Known": (FAIL, FAIL),
    "Interface": (PASS, RENAMED),
    "Drift": (PASS, WORSE),
    "New": (None, FAIL),
    "Removed": (PASS, None),
    "NoBaseline": (..., PASS),
    "Lost": (..., None),
    "Flaky": (PASS, FAIL),
    "Accepted": (PASS, FAIL),
    "GivenUp": (PASS, FAIL),
}
SETTINGS = SettingsFile(
    accepted=tuple(AcceptedEntry(id=f"a/{name}/*", reason="why") for name in ("Accepted", "GivenUp", "Unheard"))
)


def case_id(name: str, engine: str = "") -> CaseId:
    return CaseId.parse(f"a/{name}/onnx/dynamic/forward{engine}")


def honest() -> Report:
    """A report with every verdict, made as a run makes it."""
    planned = [
        PlannedCase(case_id(name), base and "m.py", head and "m.py", f"why {name}")  # type: ignore[arg-type]
        for name, (base, head) in SIDES.items()
    ]
    sides = [
        {case_id(name): side[at] for name, side in SIDES.items() if isinstance(side[at], Outcome)} for at in (0, 1)
    ]
    accepted, _ = in_force(SETTINGS.accepted, TODAY)
    now = [entry for entry in accepted if "GivenUp" not in entry.id]
    cases = make_cases(
        planned,
        sides[0],
        sides[1],
        accepted,
        tried={case_id("Flaky"): told(Tries((PASS, PASS), (FAIL, PASS)))},
        expected_of=Expectations(of_accepted(accepted), of_accepted(now)).of,
    )
    blame = Blame(location=Location(file="m.py", line=3))
    cases = tuple(case.model_copy(update={"blame": blame}) for case in cases)
    return Report(command="run", base=Revision(name="b"), head=Revision(name="h"), cases=cases)


def test_an_honest_report_stays_as_it_is() -> None:
    report = honest()
    found = {case.id.class_name: case.verdict.value for case in report.cases}
    assert found == {
        **{name: name.lower() for name in SIDES},
        "NoBaseline": "no-baseline",
        "Lost": "removed",
        "Accepted": "known",
        "GivenUp": "regression",
    }
    assert rejudged(report, SETTINGS, TODAY) == report
    assert differing(report, rejudged(report, SETTINGS, TODAY)) == ()
    check = report.model_copy(
        update={"command": "check", "base": None, "cases": (_alone("A", PASS), _alone("B", FAIL))}
    )
    assert rejudged(check, SETTINGS, TODAY) == check


def _alone(name: str, head: Outcome) -> CaseReport:
    (case,) = make_cases([PlannedCase(case_id(name), None, "m.py", "why")], None, {case_id(name): head})
    return case


def test_lies_go_whatever_they_are() -> None:
    report = honest()
    lie = {
        "verdict": VerdictKind.OK,
        "outcome": OutcomeKind.PASS,
        "stage": "",
        "message": "",
        "signature": "x",
        "details": ("all is well",),
        "components": (),
        "seconds": 0.0,
    }
    forged = report.model_copy(update={"cases": tuple(case.model_copy(update=lie) for case in report.cases)})
    judged = rejudged(forged, SETTINGS, TODAY)
    told_of_lost = {case_id("NoBaseline"), case_id("Lost")}  # only the verdict tells that there was a class on base
    both = [(a, b) for a, b in zip(judged.cases, report.cases, strict=True) if a.id not in told_of_lost]
    assert all(a == b for a, b in both)
    settled = {"Ok", "Drift"}  # other settings could say so
    assert {case.class_name for case in differing(forged, judged)} == SIDES.keys() - settled


def test_an_expectation_of_the_settings_has_to_be_there_and_others_are_for_the_checkouts_exporters() -> None:
    def judge(entry: str, engine: str = "") -> VerdictKind:
        excuse = Expected(entry=entry, reason="mine", change="in force")
        (case,) = honest().cases[1:2]
        excused = case.model_copy(update={"id": case_id("Regression", engine), "expected": excuse})
        report = honest().model_copy(update={"cases": (excused,)})
        return rejudged(report, SETTINGS, TODAY).cases[0].verdict

    assert judge("accepted (a/*)") is VerdictKind.REGRESSION
    assert judge('EXPORT_SKIPS["all"]["Regression"]') is VerdictKind.REGRESSION
    assert judge('EXPORT_SKIPS["all"]["Regression"]', "@repo") is VerdictKind.KNOWN
    assert judge("accepted (a/*)", "@repo") is VerdictKind.REGRESSION
