"""What a run, a check, a census and an audit of workarounds found."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hfexport_bot.schema.audits import WorkaroundAudit
from hfexport_bot.schema.case_id import CaseId
from hfexport_bot.schema.outcomes import Component, EagerChange, Location, Outcome, SourceTry
from hfexport_bot.schema.words import (
    MAX_RUNS,
    MAX_TRIES,
    SCHEMA_VERSION,
    Argument,
    Error,
    Name,
    OutcomeKind,
    Record,
    Said,
    Seconds,
    Sha,
    Source,
    Task,
    Text,
    UnavailableCause,
    Variant,
    VerdictKind,
)

#: Why a run failed that somebody ended, or how that begins.
INTERRUPTED = "the run was interrupted"


class Revision(Record):
    """A commit under comparison: the name it was asked for by, and its full sha (empty for a plain folder)."""

    name: Said
    sha: Sha = ""


class Blame(Record):
    """The line to edit for a failure. ``changed``: the change wrote it; ``suspected``: the failure names no line, and
    this is where what the case ran of the change begins; ``workaround``: it is in the repository's own workarounds.
    ``ran`` is the line that ran, where that is generated or copied from ``location``. ``source`` are the lines around
    it, the first of them number ``first``."""

    location: Location
    changed: bool = False
    suspected: bool = False
    workaround: bool = False
    ran: Location | None = None
    first: int = 1
    source: tuple[str, ...] = ()


class Expected(Record):
    """An entry by which the repository expects a case to fail, and what the change does to it: ``expired`` is one that
    head still has, with a last day that is past."""

    entry: Said
    reason: Said = ""
    change: Literal["in force", "added", "removed", "expired"]


class Try(Record):
    """How one of several runs of a case ended. Of one that failed, ``errors`` holds the largest error of each output
    and each probe that was compared, by name (None: there are no numbers), and ``off`` names those that failed."""

    kind: OutcomeKind
    signature: Said = ""
    errors: Annotated[dict[Name, Error | None], Field(max_length=MAX_TRIES)] = Field(default_factory=dict)
    off: Annotated[tuple[Name, ...], Field(max_length=MAX_TRIES)] = ()


class Tried(Record):
    """All runs of a case that was run again, the first of each side included."""

    base: Annotated[tuple[Try, ...], Field(min_length=1, max_length=MAX_RUNS)]
    head: Annotated[tuple[Try, ...], Field(min_length=1, max_length=MAX_RUNS)]


class CaseReport(Record):
    """One case in the report: ``outcome``, ``stage``, ``message``, ``seconds`` and ``components`` are head's (base's
    for a removed case); ``base`` and ``head`` hold both sides whole. ``blame`` is of head's failure, ``removed`` are
    workarounds that base hit and that the change takes away from it. The verdict follows from the sides, ``tried``,
    ``expected`` and base's settings: who publishes the report finds it out anew."""

    id: CaseId
    verdict: VerdictKind
    outcome: OutcomeKind
    stage: str = ""
    message: str = ""
    seconds: Seconds = 0.0
    components: tuple[Component, ...] = ()
    signature: str = ""
    reason: Said = ""
    base: Outcome | None = None
    head: Outcome | None = None
    details: tuple[str, ...] = ()
    eager: EagerChange | None = None
    blame: Blame | None = None
    expected: Expected | None = None
    tried: Tried | None = None
    removed: tuple[Name, ...] = ()


class NotRun(Record):
    """Something the change touches that was not run, and why."""

    kind: Literal["file", "symbol", "class", "case"]
    name: Said
    reason: Said


class Unreached(Record):
    """Changed lines of one function, or of module-level code (no ``function``), that no case ran: from line to line."""

    file: Said
    function: Said
    lines: tuple[tuple[int, int], ...]


class Rerun(Record):
    """What a case is run again with, beside its id: the folder that its models are in, as the command line takes it
    (empty: the installed transformers), and the options that were given. With ``rev`` the folder is a repository, and
    that commit of it is what ran. ``settings`` is the path of its settings file, where that is not the usual one.
    ``out`` is the folder of the report."""

    tree: Argument = ""
    rev: Sha = ""
    settings: Argument = ""
    out: Argument = "hfexport-out"
    sources: tuple[Source, ...] = ()
    disabled_workarounds: Annotated[tuple[Argument, ...], Field(max_length=MAX_TRIES)] = ()
    install: bool = False
    seconds: Seconds | None = None
    memory_gb: float | None = None


class Sample(Record):
    """What stands for all that a change affects: numbers of classes, the limits that cut it down (``max-models: 40``),
    about how long it takes, the kinds of model in it, and the changed symbols and kinds of which it has no class. Of
    those that can probably not be built here, ``unlikely`` are in it, and ``passed_over`` made room for others."""

    classes: int
    affected: int
    limits: tuple[Said, ...]
    estimated_seconds: Seconds
    kinds: tuple[Said, ...] = ()
    missed_causes: tuple[Said, ...] = ()
    missed_kinds: tuple[Said, ...] = ()
    unlikely: int = 0
    passed_over: int = 0


class Shard(Record):
    """Which part of a plan a report is of: number ``number`` of ``of``. ``plan`` is the plan's digest."""

    number: int = Field(ge=1)
    of: int = Field(ge=1)
    plan: Name


class Audit(Record):
    """Workarounds of one revision, with the versions that they were audited with. ``notes`` of one that is part of a
    report say what of the change called for it."""

    schema_version: Literal[2] = SCHEMA_VERSION
    revision: Revision
    workarounds: tuple[WorkaroundAudit, ...] = ()
    notes: tuple[Said, ...] = ()
    failure: Said = ""
    seconds: Seconds = 0.0
    versions: dict[str, str] = Field(default_factory=dict)


class Report(Record):
    """What a run found. ``schema_version`` moves whenever a reader would have to change. ``failure`` says why the
    run failed as a whole, so that its verdicts tell nothing of the change; empty when it did not. ``sample``: only
    some of the affected classes were run. ``shard``: these are some of a plan's cases. A ``sweep`` runs the models of
    one revision, as ``check`` does, but is judged as ``run`` is, against an earlier sweep. ``unmet``: what head, and
    not base, asks to be installed and did not run with: ``onnxscript 0.7.1``, or a line on what cannot be installed.
    ``audit``: of the workarounds that the change is about, on head; None where it is about none. ``untried`` are the
    entries for expected failures that the change adds or removes, and that none of its cases is for."""

    schema_version: Literal[2] = SCHEMA_VERSION
    command: Literal["run", "check", "sweep"]
    base: Revision | None = None
    head: Revision
    cases: tuple[CaseReport, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    unreached: tuple[Unreached, ...] = ()
    notes: tuple[Said, ...] = ()
    failure: Said = ""
    seconds: Seconds = 0.0
    versions: dict[str, str] = Field(default_factory=dict)
    fail_on: tuple[VerdictKind, ...] = (VerdictKind.REGRESSION,)
    rerun: Rerun = Rerun()
    sample: Sample | None = None
    shard: Shard | None = None
    unmet: tuple[Said, ...] = ()
    audit: Audit | None = None
    untried: tuple[Expected, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether its verdicts are those of a comparison. The first sweep has nothing to compare with."""
        return self.command == "run" or self.base is not None

    @property
    def interrupted(self) -> bool:
        """Whether somebody ended the run: what it found until then stands."""
        return self.failure.startswith(INTERRUPTED)


class CensusEntry(Record):
    """One class: whether some source makes it run in eager. ``outcome`` is ``pass`` where it does, otherwise ``cause``
    (of `unavailable`) and ``message`` say why not. ``notes`` tell what its source changed for the process, and the
    like. ``seconds`` are wall time, building included."""

    model: Said
    class_name: Said
    task: Task
    variant: Variant | None = None
    outcome: OutcomeKind
    source: Name = ""
    tried: tuple[SourceTry, ...] = ()
    cause: UnavailableCause | None = None
    message: Text = ""
    parameters: int | None = None
    fed: tuple[Name, ...] = ()
    notes: tuple[Text, ...] = ()
    seconds: Seconds = 0.0


class Census(Record):
    """Which classes of one revision have a model and inputs, and why the others have none."""

    schema_version: Literal[2] = SCHEMA_VERSION
    revision: Revision
    entries: tuple[CensusEntry, ...] = ()
    notes: tuple[Said, ...] = ()
    failure: Said = ""
    seconds: Seconds = 0.0
    versions: dict[str, str] = Field(default_factory=dict)
