"""What is said between the trusted side and a runner."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from hfexport_bot.schema.case_id import CaseId
from hfexport_bot.schema.outcomes import Fingerprint, Outcome
from hfexport_bot.schema.words import Backend, Engine, Name, Record, Source, Span, Text


class Layout(StrEnum):
    """Where a revision's models live."""

    TRANSFORMERS = "transformers"  # a checkout: src/transformers/models/*
    MODELING = "modeling"  # a repository's own modeling_*.py
    INSTALLED = "installed"  # the installed transformers


class Limits(Record):
    """What one case may use: seconds of wall clock, seconds of CPU, bytes of resident memory, files at a time."""

    wall_seconds: float = 300.0
    cpu_seconds: int = 600
    memory_bytes: int = 8 << 30
    files: int = 100_000

    @property
    def disk_bytes(self) -> int:
        """What a case's files may take at a time: they are made of what lies in memory."""
        return self.memory_bytes // 2


class RunnerSetup(Record):
    """First line on a runner's standard input.

    ``backends`` are those that the cases will be exported to, and ``engines`` those that will do it, for the runner to
    get warm with. ``jobs`` may change from one batch of cases to the next.
    ``checkpoints`` are local folders by class name or model, and ``no_checkpoints`` says why others have none;
    ``sources`` are the only ones to ask (all by default); ``search_path`` are folders to import from before all that is
    installed; ``watched`` are statements by file, of which each outcome tells whether they were executed. ``keep`` is a
    folder for what the stages of a case make.
    """

    layout: Layout
    tree: str | None = None
    limits: Limits = Limits()
    jobs: int = 1
    seed: int = 0
    cases_hook: str | None = None
    workarounds_file: str | None = None
    disabled_workarounds: tuple[str, ...] = ()
    log_dir: str | None = None
    checkpoints: dict[str, str] = Field(default_factory=dict)
    no_checkpoints: dict[str, str] = Field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    backends: tuple[Backend, ...] = ()
    engines: tuple[Engine, ...] = ()
    search_path: tuple[str, ...] = ()
    watched: dict[str, tuple[Span, ...]] = Field(default_factory=dict)
    keep: str | None = None

    def without(self, workarounds: Sequence[str]) -> RunnerSetup:
        """The same with more workarounds switched off."""
        return self.model_copy(update={"disabled_workarounds": (*self.disabled_workarounds, *workarounds)})


class CaseRequest(Record):
    """One case to run: ``module`` is a path relative to the tree, or ``transformers.models.x.modeling_x``.

    ``twin`` is the other side's fingerprint: a case that comes to the same one ends there, ``skipped``, since the rest
    is known from the other side. ``survey`` ends the case after its eager forward.

    ``eager_to`` is a file to write weights, inputs and eager's outputs to, where they are others than the twin's;
    ``eager_from`` one that the other side wrote: then the model is run on that in eager and compared, and not exported.
    ``disabled`` are workarounds to switch off in this case beside those of the setup. ``source`` is the only one to
    ask, in place of the setup's.
    """

    id: CaseId
    module: str
    twin: Fingerprint | None = None
    survey: bool = False
    eager_to: str | None = None
    eager_from: str | None = None
    disabled: tuple[Name, ...] = ()
    source: Source | None = None


class Batch(Record):
    """Every further line on a runner's standard input: cases to run, and how many at a time."""

    requests: tuple[CaseRequest, ...]
    jobs: int = 1


class Ready(Record):
    """The runner is warm. ``unprotected``: by what the machine does not let it be confined, and why."""

    type: Literal["ready"] = "ready"
    versions: dict[str, str] = Field(default_factory=dict)
    unprotected: tuple[Name, ...] = ()


class StageBegan(Record):
    """A case entered a stage."""

    type: Literal["stage"] = "stage"
    id: CaseId
    stage: Name
    component: Name = ""


class CaseFinished(Record):
    """A case's only result."""

    type: Literal["outcome"] = "outcome"
    id: CaseId
    outcome: Outcome


class Fatal(Record):
    """The runner cannot work at all, for example because the tree's transformers does not import."""

    type: Literal["fatal"] = "fatal"
    message: Text


RunnerEvent = Annotated[Ready | StageBegan | CaseFinished | Fatal, Field(discriminator="type")]


class WorkaroundInfo(Record):
    """One registered workaround. ``unresolved`` are those of its ``targets`` that lead nowhere in the installed
    versions."""

    id: Name
    kind: Name
    backend: Backend
    stage: Name
    reason: Text
    upstream: Name = ""
    model_change: Text = ""
    targets: tuple[Name, ...] = ()
    unresolved: tuple[Name, ...] = ()


class ExporterTarget(Record):
    """What a patch or an input preparer of a revision's own exporters reaches for: a dotted path, or a name that it
    looks up on models. ``owner`` is the patch or preparer, as in outcomes (``repo:exporter_onnx._patch_where``)."""

    kind: Literal["patch", "marker"]
    owner: Name
    target: Name
    resolved: bool
