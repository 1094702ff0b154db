"""From the reports of a plan's shards to one report, and from a sweep to its verdicts against an earlier one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from hfexport_bot.errors import UsageError
from hfexport_bot.execution.session import merged_versions
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import (
    INTERRUPTED,
    Audit,
    AuditedCase,
    CaseId,
    CaseReport,
    NotRun,
    Outcome,
    Report,
    Unreached,
)
from hfexport_bot.settings import in_force
from hfexport_bot.shards import Plan
from hfexport_bot.verdicts.audits import judge_workaround
from hfexport_bot.verdicts.compare import make_cases
from hfexport_bot.verdicts.reaching import is_untold
from hfexport_bot.verdicts.unreached import line_ranges

_LISTED = 5


def merge_reports(plan: Plan, reports: Sequence[Report], problems: Sequence[str] = ()) -> Report:
    """One report of all that was planned. ``problems`` say which reports could not be read.

    A shard without a report, or with one that lacks cases, fails the run; its cases are told as not run. Where one was
    interrupted and none failed in another way, so was the run.
    Raises `UsageError` for a report of another plan, or of a shard that has one already.
    """
    shards = _by_number(plan, reports)
    cases: dict[CaseId, CaseReport] = {}
    missing: list[NotRun] = []
    failures: list[str] = []
    notes = [*problems]
    for number in range(1, len(plan.shards) + 1):
        name, asked = f"shard {number} of {len(plan.shards)}", plan.shards[number - 1]
        report = shards.get(number)
        own = _own(report, set(asked)) if report else {}
        cases |= own
        lacking = [case for case in asked if case not in own]
        ended = report is not None and report.interrupted
        why = f"{name} was interrupted" if ended else f"{name} gave no result"
        missing += [NotRun(kind="case", name=str(case), reason=why) for case in lacking]
        if report is None:
            failures.append(f"{name} gave no report, so {_cases(lacking)} not run")
        elif ended:
            failures.append(f"{name} was interrupted, so {_cases(lacking)} not run")
        elif report.failure:
            failures.append(f"{name} failed: {report.failure}")
        elif lacking:
            failures.append(f"{name} lacks {len(lacking)} of its cases")
        if report and len(own) < len(report.cases):
            others = [str(case.id) for case in report.cases if case.id not in own]
            notes.append(f"{name} told of what it was not asked for, which is left out: {_listed(others)}")
    there = [shards[number] for number in sorted(shards)]
    failing = [report for report in there if report.failure]
    if failing and all(report.interrupted for report in failing):  # then shards without a report are of that, too
        failures[0] = f"{INTERRUPTED}: {failures[0]}"
    place = {case.id: at for at, case in enumerate(plan.cases)}

    def order(case: CaseReport) -> tuple[int, int]:
        added = case.id not in place
        return added, place[_without_variant(case.id) if added else case.id]

    return Report(
        command=plan.command,
        base=plan.base,
        head=plan.head,
        cases=tuple(sorted(cases.values(), key=order)),
        not_run=(*plan.not_run, *missing, *(each for report in there for each in report.not_run if is_untold(each))),
        unreached=_unreached(there),
        notes=tuple(dict.fromkeys([*plan.notes, *(note for each in there for note in each.notes), *notes])),
        failure=_joined(failures),
        seconds=max((report.seconds for report in there), default=0.0),
        versions=_versions(report.versions for report in there),
        fail_on=plan.settings.fail_on,
        rerun=plan.rerun,
        sample=plan.sample,
        unmet=tuple(dict.fromkeys(text for each in there for text in each.unmet)),
        audit=_audit(plan, there),
        untried=tuple(dict.fromkeys(entry for each in there for entry in each.untried)),
    )


def against(sweep: Report, baseline: Report, plan: Plan, today: date) -> Report:
    """A sweep with the verdicts of a comparison with an earlier one, case by case. A case that the earlier one does not
    have is ``no-baseline``; those that only it has are told, where the sweep is of every model."""
    before = {case.id: case.head for case in baseline.cases if case.head is not None}
    reasons = {case.id: case.reason for case in plan.cases}
    planned = [PlannedCase(case.id, "", "", reasons.get(case.id, case.reason)) for case in sweep.cases]
    heads: Mapping[CaseId, Outcome] = {case.id: case.head for case in sweep.cases if case.head is not None}
    accepted, _ = in_force(plan.settings.accepted, today)
    judged = make_cases(planned, before, heads, accepted=accepted, drift=plan.settings.drift)
    blames = {case.id: case.blame for case in sweep.cases}
    gone = sorted(str(case) for case in before.keys() - {case.id for case in plan.cases}) if plan.whole else []
    notes = [f"in the baseline, not in this sweep: {_listed(gone)}"] if gone else []
    versions = merged_versions({"base": baseline.versions, "head": sweep.versions})
    return sweep.model_copy(
        update={
            "base": baseline.head,
            "cases": tuple(case.model_copy(update={"blame": blames[case.id]}) for case in judged),
            "notes": (*sweep.notes, *notes),
            "versions": versions,
        }
    )


def next_baseline(sweep: Report, baseline: Report | None, plan: Plan) -> Report | None:
    """What the next sweep is to be compared with: this one, with the earlier one's cases that it was not about. None
    for a sweep of some models without an earlier one: it says nothing of the others."""
    if plan.whole:
        return sweep
    if baseline is None:
        return None
    own = {case.id for case in sweep.cases} | {case.id for case in plan.cases}
    kept = tuple(case for case in baseline.cases if case.id not in own)
    return sweep.model_copy(update={"cases": (*sweep.cases, *kept)})


def _audit(plan: Plan, reports: Sequence[Report]) -> Audit | None:
    """The audits of all shards as one: each has tried workarounds on cases of its own."""
    audits = [report.audit for report in reports if report.audit is not None]
    if not audits:
        return None
    cases: dict[str, list[AuditedCase]] = {}
    unhit: dict[str, str] = {}
    for each in (each for audit in audits for each in audit.workarounds):
        cases.setdefault(each.id, []).extend(each.cases)
        unhit.setdefault(each.id, each.said)
    return Audit(
        revision=plan.head,
        workarounds=tuple(judge_workaround(name, found, unhit[name]) for name, found in cases.items()),
        notes=tuple(dict.fromkeys(note for audit in audits for note in audit.notes)),
        seconds=max(audit.seconds for audit in audits),
        versions=_versions(audit.versions for audit in audits),
    )


def _by_number(plan: Plan, reports: Sequence[Report]) -> dict[int, Report]:
    found: dict[int, Report] = {}
    for report in reports:
        shard = report.shard
        if shard is None or shard.plan != plan.digest or not 1 <= shard.number <= len(plan.shards):
            what = f"shard {shard.number} of another plan" if shard else "a whole run, not of a shard"
            raise UsageError(f"merge: one of the reports is of {what}; give the reports of this plan's shards")
        if shard.number in found:
            raise UsageError(f"merge: there are two reports of shard {shard.number}; give one of each")
        found[shard.number] = report
    return found


def _own(report: Report, asked: set[CaseId]) -> dict[CaseId, CaseReport]:
    """What a shard tells of cases that it was asked for: also with a switch turned, to reach changed lines."""
    return {case.id: case for case in report.cases if case.id in asked or _without_variant(case.id) in asked}


def _without_variant(case: CaseId) -> CaseId:
    return case.model_copy(update={"variant": None})


def _unreached(reports: Sequence[Report]) -> tuple[Unreached, ...]:
    """The changed lines that no case of any shard ran; a shard none of whose cases could tell does not count."""
    telling = [
        report for report in reports if any(case.head and case.head.executed is not None for case in report.cases)
    ]
    found: dict[tuple[str, str], set[int]] = {}
    for index, report in enumerate(telling):
        own = {(each.file, each.function): _lines(each.lines) for each in report.unreached}
        found = own if index == 0 else {key: lines & own.get(key, set()) for key, lines in found.items()}
    return tuple(
        Unreached(file=file, function=function, lines=tuple(line_ranges(sorted(lines))))
        for (file, function), lines in found.items()
        if lines
    )


def _lines(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {line for first, last in ranges for line in range(first, last + 1)}


def _versions(of_shards: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Each version once, and all of them where shards had others."""
    found: dict[str, list[str]] = {}
    for versions in of_shards:
        for name, version in versions.items():
            if version not in found.setdefault(name, []):
                found[name].append(version)
    return {name: " or ".join(versions) for name, versions in found.items()}


def _joined(failures: Sequence[str]) -> str:
    more = f"; and {len(failures) - _LISTED} more shards" if len(failures) > _LISTED else ""
    return "; ".join(failures[:_LISTED]) + more


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _cases(cases: Sequence[CaseId]) -> str:
    return "1 case was" if len(cases) == 1 else f"{len(cases)} cases were"
