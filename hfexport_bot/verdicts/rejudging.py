"""A report whose maker is not trusted, judged anew by the settings of a revision that is. Pure.

Outcomes are taken as they are told, since nothing here can measure them; what they come to is not.
"""

from __future__ import annotations

from datetime import date
from math import inf

from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import CaseId, CaseReport, Engine, Expected, Outcome, Report, Tried, Try, VerdictKind
from hfexport_bot.settings import AcceptedEntry, DriftSettings, SettingsFile, in_force
from hfexport_bot.verdicts.audits import with_removed
from hfexport_bot.verdicts.compare import make_cases
from hfexport_bot.verdicts.expectations import IN_SETTINGS, of_accepted
from hfexport_bot.verdicts.likeness import told_of

_DRIFT_KEYS = ("error-factor", "error-floor", "nodes", "delegates", "bytes")
#: Settings that accept nothing or all, by which every move of a number is a drift or none is.
_EXTREMES = tuple(
    SettingsFile(
        accepted=accepted,
        drift=DriftSettings.model_validate({key: least if key == "error-factor" else share for key in _DRIFT_KEYS}),
    )
    for accepted in ((), (AcceptedEntry(id="*", reason="any"),))
    for least, share in ((1.0, 0.0), (inf, inf))
)


def rejudged(report: Report, settings: SettingsFile, today: date) -> Report:
    """The report with the verdicts that its outcomes come to. Accepted findings and the limits of drift are those of
    ``settings``; what these make red is so, and what the report itself names besides."""
    accepted, _ = in_force(settings.accepted, today)
    entries = of_accepted(accepted)
    cases = {case.id: case for case in report.cases}
    before = {id_: case.base for id_, case in cases.items() if case.base is not None}
    after = {id_: case.head for id_, case in cases.items() if case.head is not None}

    def expected_of(case_id: CaseId) -> Expected | None:
        claimed = cases[case_id].expected
        if claimed is None or claimed.change == "added":  # which excuses nothing
            return claimed
        if case_id.engine is Engine.REPO and not claimed.entry.startswith(IN_SETTINGS):
            return claimed  # read off the checkout's tests, where the outcomes come from too
        entry = next((each for each in entries if each.covers(case_id)), None)
        return claimed.model_copy(update={"entry": str(entry), "reason": entry.reason}) if entry else None

    judged = make_cases(
        [_planned(case) for case in cases.values()],
        before if report.compared else None,
        after,
        accepted,
        settings.drift,
        {id_: tried for id_, case in cases.items() if (tried := _tried(case)) is not None},
        {id_: case.eager for id_, case in cases.items() if case.eager is not None},
        expected_of,
    )
    return report.model_copy(
        update={
            "cases": tuple(
                with_removed(case.model_copy(update={"blame": cases[case.id].blame}), cases[case.id].removed)
                for case in judged
            ),
            "fail_on": tuple(dict.fromkeys((*settings.fail_on, *report.fail_on))),
        }
    )


def differing(claimed: Report, judged: Report) -> tuple[CaseId, ...]:
    """The cases whose verdicts are others than a report claims, and that its outcomes come to by no settings: those
    that it was made by may have been others."""
    claims = {case.id: case.verdict for case in claimed.cases}
    other = {case.id for case in judged.cases if claims.get(case.id) is not case.verdict}
    doubted = claimed.model_copy(update={"cases": tuple(case for case in claimed.cases if case.id in other)})
    for settings in _EXTREMES if other else ():
        other -= {
            case.id for case in rejudged(doubted, settings, date.min).cases if claims.get(case.id) is case.verdict
        }
    return tuple(case.id for case in judged.cases if case.id in other)


def _planned(case: CaseReport) -> PlannedCase:
    """The case as it was planned: a side without an outcome has no such class, or there is no telling."""
    unknown = case.verdict is VerdictKind.NO_BASELINE or case.head is None
    base = "" if case.base is not None or unknown else None
    return PlannedCase(case.id, base, None if case.head is None else "", case.reason)


def _tried(case: CaseReport) -> Tried | None:
    """Its runs, where those that the report has whole are the first of them."""
    tried = case.tried
    if tried is None or case.base is None or case.head is None:
        return None
    return tried if _is_of(tried.base, case.base) and _is_of(tried.head, case.head) else None


def _is_of(runs: tuple[Try, ...], outcome: Outcome) -> bool:
    return runs[0].model_dump_json() == told_of(outcome).model_dump_json()  # in which a NaN is one
