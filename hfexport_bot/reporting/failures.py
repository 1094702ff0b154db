"""What every rendering says of one failure in the same words: what was raised, which line, how large an error. Pure."""

from __future__ import annotations

from hfexport_bot.reporting.summary import error_size, largest_error
from hfexport_bot.schema import Blame, CaseReport, Location, OutcomeKind


def error_name(case: CaseReport) -> str:
    """The class of what was raised, without its module. Untrusted text."""
    side = case.head or case.base
    return side.error_type.rpartition(".")[2] if side else ""


def blamed_line(case: CaseReport) -> Location | None:
    """The line to edit, or else the one that failed."""
    side = case.head or case.base
    return case.blame.location if case.blame else side.location if side else None


def whose(blame: Blame) -> str:
    """What the line is to the change: continues what names it."""
    if not blame.changed:
        return ""
    return ", where what this case ran of the change begins" if blame.suspected else ", a line of this change"


def largest_error_line(case: CaseReport) -> str:
    """How far off the worst of several comparisons is: a message is about the first that failed. Empty otherwise.
    Holds the name of a component or a probe, which is untrusted text."""
    size = largest_error(case)
    if case.outcome is not OutcomeKind.PARITY or size is None:
        return ""
    found = [
        (probe.max_abs, f"probe {probe.name}")
        for component in case.components
        for probe in component.probes
        if probe.status == "parity"
    ]
    found += [(component.max_abs, component.name) for component in case.components]
    # By text: a NaN is no equal of itself.
    where = next((name for error, name in found if str(error) == str(size)), "")
    return f"largest error: {error_size(size)}, {where}" if sum(error is not None for error, _ in found) > 1 else ""
