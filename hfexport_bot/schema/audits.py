"""What an audit of workarounds found."""

from __future__ import annotations

from enum import StrEnum

from hfexport_bot.schema.case_id import CaseId
from hfexport_bot.schema.words import Name, OutcomeKind, Record, Seconds, Text


class Need(StrEnum):
    """Whether a workaround is still of use, as far as cases show."""

    NEEDED = "still needed"
    NOT_NEEDED = "no longer needed"
    UNKNOWN = "cannot tell"


class AuditedCase(Record):
    """A case that hits a workaround, and what it came to with the workaround switched off. ``said`` is one line."""

    id: CaseId
    need: Need
    outcome: OutcomeKind
    stage: Name = ""
    said: Text = ""
    seconds: Seconds = 0.0


class WorkaroundAudit(Record):
    """One workaround: ``said`` is one line on its need, ``cases`` are those that were run without it."""

    id: Name
    need: Need
    said: Text
    cases: tuple[AuditedCase, ...] = ()
