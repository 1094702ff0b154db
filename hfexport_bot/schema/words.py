"""The words of a case and its outcome, the limits of what is told of them, and the base of all records."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

SCHEMA_VERSION: Final = 2

#: Longest line accepted from a runner, in bytes. A longer one ends the runner.
MAX_LINE_BYTES = 1 << 20
#: Longest text kept of one error message, in characters.
MAX_MESSAGE_CHARS = 8_000
#: Longest name (of a tensor, a stage, a file) in characters.
MAX_NAME_CHARS = 300
#: Most sources asked, and inputs fed, that an outcome lists.
MAX_TRIES = 100
#: Most lines of code that an outcome lists on the way to its failure.
MAX_FRAMES = 20
#: Most changed statements of which an outcome tells that they ran.
MAX_EXECUTED = 20_000
#: Most runs of one case on one side that a report tells of.
MAX_RUNS = 100
#: Most operators that a component lists.
MAX_OPERATORS = 300
#: Longest word of a command that a report shows, such as a path.
MAX_ARGUMENT_CHARS = 1_000

#: What is left out of them: a shell acts on it where quotes are lost, or GitHub's runner in a log.
_UNFIT = re.compile(r'[`$"\\;|<>!]|::|##\[')


def _encodable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def first_problem(error: ValidationError) -> str:
    """What is wrong with the JSON of somebody else's, in a few words and without any of it."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))[:200]
    return f"{where}: {first['msg']}" if where else first["msg"]


def unfit(word: str) -> str:
    """Why a report could not show a command with this word, for anybody to copy; empty where it can."""
    if not word.isprintable():
        return "it has characters that cannot be seen, so no report could show a command with it"
    found = _UNFIT.search(word)
    return f"it has {found[0]}, which no command that a report shows may have" if found else ""


def fit(word: str) -> str:
    """A word that a report can show in a command. Raises ``ValueError`` for another."""
    if problem := unfit(word):
        raise ValueError(problem)
    return word


Text = Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
#: Text from git or the command line, which may hold bytes that are no UTF-8: those become question marks.
Said = Annotated[str, BeforeValidator(_encodable)]
#: A word of a command that a report shows.
Argument = Annotated[str, BeforeValidator(_encodable), Field(max_length=MAX_ARGUMENT_CHARS), AfterValidator(fit)]
#: A full commit id, or none.
Sha = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$")]
#: A duration, which a JSON of somebody else's could make negative or endless.
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: An error of numbers, which may be none: JSON has ``NaN`` and ``Infinity`` as text then.
Error = Annotated[
    float, WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"], "type": "string"}]})
]
#: A part of a whole.
Share = Annotated[float, Field(ge=0, le=1)]


#: A statement: its first line, its last, and whether it runs when its file is imported.
Span = tuple[int, int, bool]


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


#: Begins the ids of what acts in a revision's own exporters, and tells them from our workarounds:
#: ``repo:exporter_onnx._patch_where``.
REPO_PREFIX = "repo:"


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
    # transformers.exporters' own names
    "image_encoder",
    "connector",
    "embed_vision",
    "embed_audio",
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


class Record(BaseModel):
    """Base of everything that is serialised: immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
