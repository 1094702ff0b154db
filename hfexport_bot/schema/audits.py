"""What an audit of workarounds found."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from hfexport_bot.schema.case_id import CaseId
from hfexport_bot.schema.reports import Revision
from hfexport_bot.schema.words import SCHEMA_VERSION, Name, OutcomeKind, Record, Said, Seconds, Text


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


class Audit(Record):
    """Workarounds of one revision, with the versions that they were audited with."""

    schema_version: Literal[1] = SCHEMA_VERSION
    revision: Revision
    workarounds: tuple[WorkaroundAudit, ...] = ()
    notes: tuple[Said, ...] = ()
    failure: Said = ""
    seconds: Seconds = 0.0
    versions: dict[str, str] = Field(default_factory=dict)
