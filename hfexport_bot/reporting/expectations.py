"""What a change does to the failures that its repository expects: an entry for each that it adds or removes. Pure."""

from __future__ import annotations

from typing import NamedTuple

from hfexport_bot.reporting.summary import plural
from hfexport_bot.schema import CaseReport, OutcomeKind, Report
from hfexport_bot.verdicts.expectations import ENDED, NOT_NEEDED, TELLS_NOTHING

NOT_TRIED = "not tried"


class ExpectationLine(NamedTuple):
    """``entry`` and ``reason`` are untrusted text, ``said`` is ours."""

    entry: str
    said: str
    reason: str


def expectation_lines(report: Report) -> tuple[ExpectationLine, ...]:
    """A line for each entry that was added or removed: first those with a case, in the order of the report."""
    groups: dict[tuple[str, str, str], list[CaseReport]] = {}
    for case in report.cases:
        expected = case.expected
        if expected is not None and expected.change != "in force" and case.head is not None:
            groups.setdefault((expected.entry, expected.change, expected.reason), []).append(case)
    return tuple(
        ExpectationLine(entry, f"{change}: {_said(change, group)}", reason)
        for (entry, change, reason), group in groups.items()
    ) + tuple(ExpectationLine(each.entry, f"{each.change}, {NOT_TRIED}", each.reason) for each in report.untried)


def to_heed(report: Report) -> bool:
    """Whether the change's author should look at an entry: one that is not needed, or that nothing tells of."""
    return any(line.said.endswith((NOT_NEEDED, NOT_TRIED)) for line in expectation_lines(report))


def _said(change: str, cases: list[CaseReport]) -> str:
    cases = [case for case in cases if case.outcome not in TELLS_NOTHING]
    if not cases:
        return NOT_TRIED
    failing = sum(case.outcome is not OutcomeKind.PASS for case in cases)
    count = f"{failing:,} of {plural(len(cases), 'case')}"
    do = "does" if failing == 1 else "do"
    if change in ENDED:
        passing = f"{plural(len(cases), 'case')} of it {'passes' if len(cases) == 1 else 'pass'}"
        return f"{count} still {do} not pass" if failing else passing
    return f"{count} {do} not pass" if failing else NOT_NEEDED
