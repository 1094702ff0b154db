"""The JSON that crosses processes and jobs.

Everything that passes the trust line (design: the runner is untrusted) or is written for another job is one of
the models here, validated on the trusted side. This module imports nothing heavier than pydantic.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer, model_validator

SCHEMA_VERSION: Final = 1

#: Longest line accepted from a runner, in bytes. A longer one ends the runner.
MAX_LINE_BYTES = 1 << 20
#: Longest text kept of one error message, in characters.
MAX_MESSAGE_CHARS = 8_000
#: Longest name (of a tensor, a stage, a file) in characters.
MAX_NAME_CHARS = 300
#: Most sources asked, and inputs fed, that an outcome lists.
MAX_TRIES = 100


def _encodable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


Text = Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
#: Text from git or the command line, which may hold bytes that are no UTF-8: those become question marks.
Said = Annotated[str, BeforeValidator(_encodable)]


class Backend(StrEnum):
    """What a model is exported to."""

    DYNAMO = "dynamo"
    ONNX = "onnx"
    EXECUTORCH = "executorch"


class Shapes(StrEnum):
    """Whether the exported graph takes other sizes than the traced ones."""

    DYNAMIC = "dynamic"
    STATIC = "static"


class Task(StrEnum):
    """What is exported: one forward without a cache, or prefill and decode."""

    FORWARD = "forward"
    GENERATE = "generate"


class Engine(StrEnum):
    """Who exports."""

    OWN = "own"  # this project's ``exporters``
    REPO = "repo"  # the ``transformers.exporters`` of the revision under test


class EngineChoice(StrEnum):
    """Which engines a run asks for: ``auto`` is both where the revision is a checkout that has exporters."""

    OWN = "own"
    REPO = "repo"
    BOTH = "both"
    AUTO = "auto"


#: Every stage of a case in the order it runs. A failure names one of them.
STAGES: dict[str, tuple[str, ...]] = {
    "prepare": ("source", "eager"),
    "dynamo": ("signature", "model_patches", "pytree", "shapes", "trace", "state_cleanup"),
    "onnx": (
        "torch_patches",
        "onnx_patches",
        "node_fixes",
        "decompose",
        "translate",
        "optimize",
        "ir_fixes",
    ),
    "executorch": (
        "backend_preparation",
        "torch_patches",
        "executorch_patches",
        "program_fixes",
        "node_fixes",
        "lower",
        "emit",
    ),
    "check": ("load", "run", "parity"),
}


#: Components that reports know by name; one alone is ``model``.
COMPONENTS: tuple[str, ...] = (
    "model",
    "encoder",
    "prefill",
    "decode",
    "prompt_encoder",
    "vision_encoder",
    "audio_encoder",
    "multi_modal_projector",
    "embedding",
    "language_model",
    "lm_head",
)


class OutcomeKind(StrEnum):
    """How one case ended on one revision. Only ``PASS`` is a pass."""

    PASS = "pass"
    PARITY = "parity"
    ERROR = "error"
    UNSUPPORTED = "unsupported"
    TIMEOUT = "timeout"
    OOM = "oom"
    CRASH = "crash"
    UNAVAILABLE = "unavailable"
    NONDETERMINISTIC = "nondeterministic"
    SKIPPED = "skipped"


class UnavailableCause(StrEnum):
    """Why no model or no inputs could be made; a closed list."""

    MISSING_LIBRARY = "missing library"
    HUB_ACCESS = "hub access"
    STATEFUL_FORWARD = "stateful forward"
    NO_FORWARD = "no forward"
    INVALID_CONFIG = "invalid config"
    UNKNOWN_INPUTS = "unknown inputs"
    TIMEOUT = "timeout"
    TOO_BIG = "too big"


class Source(StrEnum):
    """Where a model and its inputs may come from, in the order they are asked."""

    REPOSITORY = "repository"  # the function that the repository's settings name
    MODEL_TESTS = "model tests"  # the checkout's own tests of the model
    SYNTHESISED = "synthesised"  # a tiny configuration made from the config class
    CHECKPOINT = "hub checkpoint"  # a checkpoint that the settings name


class Variant(StrEnum):
    """A model's own switch, turned. Which of them a class has is for the runner to find out."""

    CROSS_ATTENTION = "cross_attention"
    CACHE = "cache"
    EAGER_ATTENTION = "eager_attention"
    SDPA = "sdpa"
    TWO_IMAGES = "two_images"


class VerdictKind(StrEnum):
    """What a change did to a case: base against head."""

    REGRESSION = "regression"
    FIXED = "fixed"
    CHANGED = "changed"
    KNOWN = "known"
    DRIFT = "drift"
    INTERFACE = "interface"
    FLAKY = "flaky"
    NEW = "new"
    REMOVED = "removed"
    OK = "ok"
    UNCHANGED = "unchanged"
    NO_BASELINE = "no-baseline"


_ID_PATTERN = re.compile(r"(?P<path>[\w.\-]+(/[\w.\-]+)*)(\+(?P<variant>\w+))?(@(?P<engine>\w+))?")


class CaseId(BaseModel):
    """One case: class x backend x shapes x task.

    Written as a path wherever it appears, ``llama/LlamaForCausalLM/onnx/dynamic/forward``. ``model`` is the model's
    folder in a transformers checkout and the module's path, which may have several segments, elsewhere. A run may have
    a case several times: with one of the model's own switches turned, its ``variant``, and with another engine. Then
    the path goes on, ``.../forward+eager_attention@repo``.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    class_name: str
    backend: Backend
    shapes: Shapes = Shapes.DYNAMIC
    task: Task = Task.FORWARD
    variant: Variant | None = None
    engine: Engine = Engine.OWN

    def __str__(self) -> str:
        path = "/".join((self.model, self.class_name, self.backend, self.shapes, self.task))
        variant = f"+{self.variant}" if self.variant else ""
        return path + variant + (f"@{self.engine}" if self.engine is not Engine.OWN else "")

    @classmethod
    def parse(cls, text: str) -> CaseId:
        """Read a path. Raises ``ValueError`` that says what the path should look like."""
        found = _ID_PATTERN.fullmatch(text)
        parts = found["path"].split("/") if found else []
        if found is None or len(parts) < 5:
            raise ValueError(
                f"{text!r} is no case id; expected MODEL/CLASS/BACKEND/SHAPES/TASK, and +VARIANT or @ENGINE behind it"
            )
        model, (class_name, backend, shapes, task) = "/".join(parts[:-4]), parts[-4:]
        return cls(
            model=model,
            class_name=class_name,
            backend=Backend(backend),
            shapes=Shapes(shapes),
            task=Task(task),
            variant=Variant(found["variant"]) if found["variant"] else None,
            engine=Engine(found["engine"] or Engine.OWN),
        )

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        if isinstance(value, str):
            return cls.parse(value).__dict__
        return value

    @model_serializer
    def _to_path(self) -> str:
        return str(self)


class Record(BaseModel):
    """Base of everything that is serialised: immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# -- What a runner measures ------------------------------------------------------------------------------------


class Location(Record):
    """A place in a modeling file; ``file`` is relative to the revision's tree (or to site-packages)."""

    file: Name
    line: int
    function: Name = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class TensorParity(Record):
    """One output tensor, eager against the runtime. Errors are absolute or relative values, ``mismatched`` is the
    share of elements outside the tolerance (0 to 1)."""

    name: Name
    shape: tuple[int, ...]
    dtype: Name
    max_abs: float | None = None
    max_rel: float | None = None
    mismatched: float = 0.0
    note: Text = ""


class ProbeResult(Record):
    """The artifact run at one other shape or padding.

    ``status``: ``pass``; ``parity`` (numbers differ); ``error`` (the artifact refuses what eager accepts); ``static``
    (eager refuses it too: no fault of the export).
    """

    name: Name
    status: Literal["pass", "parity", "error", "static"]
    max_abs: float | None = None
    message: Text = ""


class Axis(Record):
    """One axis of one input of an exported graph. ``lower`` and ``upper`` are sizes; equal when static."""

    input: Name
    axis: int
    dynamic: bool
    lower: int
    upper: int | None
    symbol: Name = ""


class Component(Record):
    """One exported graph of a case (``model``, ``prefill``, ``decode``, ...) and how it compares with eager."""

    name: Name
    max_abs: float | None = None
    outputs: tuple[TensorParity, ...] = ()
    probes: tuple[ProbeResult, ...] = ()
    inputs: tuple[Name, ...] = ()
    axes: tuple[Axis, ...] = ()
    nodes: int | None = None
    delegates: int | None = None
    size_bytes: int | None = None
    opset: int | None = None


class SourceTry(Record):
    """One source that was asked for a model and inputs. ``name`` is its test class or checkpoint; ``cause`` and
    ``message`` say why it had none, and are empty where it had."""

    source: Name
    name: Name = ""
    cause: UnavailableCause | None = None
    message: Text = ""


class Outcome(Record):
    """What one case came to on one revision. Written by the untrusted side: size-capped, never trusted for more than
    its own case. ``source`` made model and inputs, the last of those ``tried``; ``parameters`` counts the model's, and
    ``fed`` names the tensors that its forward got."""

    kind: OutcomeKind
    stage: Name = ""
    component: Name = ""
    message: Text = ""
    error_type: Name = ""
    location: Location | None = None
    cause: UnavailableCause | None = None
    seconds: float = 0.0
    stage_seconds: dict[str, float] = Field(default_factory=dict)
    peak_memory_bytes: int | None = None
    components: tuple[Component, ...] = ()
    workarounds: dict[str, int] = Field(default_factory=dict)
    notes: tuple[Text, ...] = ()
    source: Name = ""
    tried: Annotated[tuple[SourceTry, ...], Field(max_length=MAX_TRIES)] = ()
    parameters: int | None = None
    fed: Annotated[tuple[Name, ...], Field(max_length=MAX_TRIES)] = ()


# -- Between the trusted side and a runner ---------------------------------------------------------------------


class Layout(StrEnum):
    """Where a revision's models live."""

    TRANSFORMERS = "transformers"  # a checkout: src/transformers/models/*
    MODELING = "modeling"  # a repository's own modeling_*.py
    INSTALLED = "installed"  # the installed transformers


class Limits(Record):
    """What one case may use: seconds of wall clock, seconds of CPU, bytes of resident memory."""

    wall_seconds: float = 300.0
    cpu_seconds: int = 600
    memory_bytes: int = 8 << 30


class RunnerSetup(Record):
    """First line on a runner's standard input.

    ``checkpoints`` are local folders by class name or model, and ``no_checkpoints`` says why others have none;
    ``sources`` are the only ones to ask (all by default); ``survey`` ends each case after its eager forward;
    ``search_path`` are folders to import from before all that is installed.
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
    survey: bool = False
    search_path: tuple[str, ...] = ()


class CaseRequest(Record):
    """One case to run: ``module`` is a path relative to the tree, or ``transformers.models.x.modeling_x``."""

    id: CaseId
    module: str


class Ready(Record):
    """The runner is warm."""

    type: Literal["ready"] = "ready"
    versions: dict[str, str] = Field(default_factory=dict)


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


# -- The report -----------------------------------------------------------------------------------------------


class Revision(Record):
    """A commit under comparison: the name it was asked for by, and its full sha (empty for a plain folder)."""

    name: Said
    sha: str = ""


class CaseReport(Record):
    """One case in the report: ``outcome``, ``stage``, ``message``, ``seconds`` and ``components`` are head's (base's
    for a removed case); ``base`` and ``head`` hold both sides whole."""

    id: CaseId
    verdict: VerdictKind
    outcome: OutcomeKind
    stage: str = ""
    message: str = ""
    seconds: float = 0.0
    components: tuple[Component, ...] = ()
    signature: str = ""
    reason: Said = ""
    base: Outcome | None = None
    head: Outcome | None = None
    details: tuple[str, ...] = ()


class NotRun(Record):
    """Something the change touches that was not run, and why."""

    kind: Literal["file", "class", "case"]
    name: Said
    reason: Said


class Report(Record):
    """What a run found. ``schema_version`` moves whenever a reader would have to change. ``failure`` says why the
    run failed as a whole, so that its verdicts tell nothing of the change; empty when it did not."""

    schema_version: Literal[1] = SCHEMA_VERSION
    command: Literal["run", "check"]
    base: Revision | None = None
    head: Revision
    cases: tuple[CaseReport, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    notes: tuple[Said, ...] = ()
    failure: Said = ""
    seconds: float = 0.0
    versions: dict[str, str] = Field(default_factory=dict)
    fail_on: tuple[VerdictKind, ...] = (VerdictKind.REGRESSION,)


# -- The census -----------------------------------------------------------------------------------------------


class CensusEntry(Record):
    """One class: whether some source makes it run in eager. ``outcome`` is ``pass`` where it does, otherwise ``cause``
    (of `unavailable`) and ``message`` say why not. ``seconds`` are wall time, building included."""

    model: Said
    class_name: Said
    task: Task
    outcome: OutcomeKind
    source: Name = ""
    tried: tuple[SourceTry, ...] = ()
    cause: UnavailableCause | None = None
    message: Text = ""
    parameters: int | None = None
    fed: tuple[Name, ...] = ()
    seconds: float = 0.0


class Census(Record):
    """Which classes of one revision have a model and inputs, and why the others have none."""

    schema_version: Literal[1] = SCHEMA_VERSION
    revision: Revision
    entries: tuple[CensusEntry, ...] = ()
    notes: tuple[Said, ...] = ()
    failure: Said = ""
    seconds: float = 0.0
    versions: dict[str, str] = Field(default_factory=dict)
