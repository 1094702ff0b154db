"""What a change does to the failures that its repository expects: an entry for each that it adds or removes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hfexport_bot.reporting.summary import plural
from hfexport_bot.schema import CaseReport, OutcomeKind
from hfexport_bot.verdicts.expectations import NOT_NEEDED


class ExpectationLine(NamedTuple):
    """``entry`` and ``reason`` are untrusted text, ``said`` is ours."""

    entry: str
    said: str
    reason: str


def expectation_lines(cases: Iterable[CaseReport]) -> tuple[ExpectationLine, ...]:
    """A line for each entry that was added or removed and has a case, in the order of the report."""
    groups: dict[tuple[str, str, str], list[CaseReport]] = {}
    for case in cases:
        expected = case.expected
        if expected is not None and expected.change != "in force" and case.head is not None:
            groups.setdefault((expected.entry, expected.change, expected.reason), []).append(case)
    return tuple(
        ExpectationLine(entry, f"{change}: {_said(change, group)}", reason)
        for (entry, change, reason), group in groups.items()
    )


def _said(change: str, cases: list[CaseReport]) -> str:
    failing = sum(case.outcome is not OutcomeKind.PASS for case in cases)
    count = f"{failing:,} of {plural(len(cases), 'case')}"
    if change == "removed":
        return f"{count} still do not pass" if failing else f"{plural(len(cases), 'case')} of it pass"
    return f"{count} do not pass" if failing else NOT_NEEDED
