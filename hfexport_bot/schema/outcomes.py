"""What a runner measures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from hfexport_bot.schema.words import (
    MAX_EXECUTED,
    MAX_FRAMES,
    MAX_OPERATORS,
    MAX_TRIES,
    Error,
    Name,
    OutcomeKind,
    Record,
    Seconds,
    Share,
    Text,
    UnavailableCause,
)


def largest(errors: Iterable[float | None]) -> float | None:
    """The largest of those errors that were measured. A NaN is larger than any number."""
    measured = [error for error in errors if error is not None]
    return max(measured, default=None, key=lambda error: (math.isnan(error), error))


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
    max_abs: Error | None = None
    max_rel: Error | None = None
    mismatched: Share = 0.0
    note: Text = ""


class ProbeResult(Record):
    """The artifact run at one other shape or padding.

    ``status``: ``pass``; ``parity`` (numbers differ); ``error`` (the artifact refuses what eager accepts); ``static``
    (eager refuses it too: no fault of the export).
    """

    name: Name
    status: Literal["pass", "parity", "error", "static"]
    max_abs: Error | None = None
    message: Text = ""


class Axis(Record):
    """One axis of one input of an exported graph. ``lower`` and ``upper`` are sizes; equal when static."""

    input: Name
    axis: int
    dynamic: bool
    lower: int
    upper: int | None
    symbol: Name = ""


class TensorType(Record):
    """One tensor that an exported graph returns; ``rank`` is None where the program does not say."""

    name: Name
    dtype: Name = ""
    rank: int | None = None


class Component(Record):
    """One exported graph of a case (``model``, ``prefill``, ``decode``, ...) and how it compares with eager.

    ``outputs`` were compared; ``returns`` are all that the graph gives, in order. ``mutated`` names the buffers and
    inputs that it writes into, ``unread`` the inputs that it does nothing with. ``operators`` are sorted, the names of
    those that the runtime needs; where there are more, ``operators_left_out`` counts them. ``computed`` names the
    dtypes of what they give. ``delegated_to`` names what takes over the rest (ExecuTorch).
    """

    name: Name
    max_abs: Error | None = None
    outputs: tuple[TensorParity, ...] = ()
    probes: tuple[ProbeResult, ...] = ()
    inputs: tuple[Name, ...] = ()
    input_dtypes: tuple[Name, ...] = ()
    axes: tuple[Axis, ...] = ()
    returns: tuple[TensorType, ...] = ()
    mutated: tuple[Name, ...] = ()
    unread: tuple[Name, ...] = ()
    operators: Annotated[tuple[Name, ...], Field(max_length=MAX_OPERATORS)] = ()
    operators_left_out: int = 0
    computed: tuple[Name, ...] = ()
    delegated_to: tuple[Name, ...] = ()
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


class Fingerprint(Record):
    """What an outcome depends on. ``eager``: weights, inputs and eager's outputs, bit by bit. ``graphs``: each traced
    graph with its constants and who exported it, in order; empty where the outcome came about before or in a trace."""

    eager: Name
    graphs: Annotated[tuple[Name, ...], Field(max_length=MAX_TRIES)] = ()


#: Begins the note on inputs that eager took on base and refuses on head.
NO_LONGER_TAKEN = "no longer taken"


class OutputChange(Record):
    """One of eager's outputs on head against base's. ``note`` says what became of it, and is empty where it did not
    move; ``share`` is that of the elements that did. ``probe`` names the inputs where it was first seen, and is empty
    for those that were traced."""

    name: Name
    probe: Name = ""
    note: Text = ""
    max_abs: Error | None = None
    share: Share = 0.0


class EagerChange(Record):
    """Eager's outputs on head against base's, on base's weights and inputs. ``weights`` says which of base's do not
    fit, so that numbers may differ for that reason alone; ``configuration`` what head's model is made with that base's
    is not, and that it had base's values for, here; ``problem`` why nothing was compared."""

    max_abs: Error | None = None
    moved: Annotated[tuple[OutputChange, ...], Field(max_length=MAX_TRIES)] = ()
    weights: Text = ""
    configuration: Text = ""
    problem: Text = ""

    @property
    def is_comparable(self) -> bool:
        """Whether numbers that differ tell of the code: both sides ran, on the same weights."""
        return not (self.problem or (self.weights and self.moved))

    @property
    def is_moved(self) -> bool:
        """Whether the code moved an output, or no longer takes some inputs."""
        return self.is_comparable and bool(self.moved)


class Outcome(Record):
    """What one case came to on one revision. Written by the untrusted side: size-capped, never trusted for more than
    its own case. ``source`` made model and inputs, the last of those ``tried``; ``parameters`` counts the model's, and
    ``fed`` names the tensors that its forward got, ``built_from`` the revision's files that its parts are written in.
    ``location`` is the innermost modeling line of a failure, and ``frames`` are the lines of the revision's and of
    transformers' code on the way to it, the innermost first. ``executed`` are the first lines
    of those statements that ran of the ones watched, by file; None where nothing was watched, or the case could not
    tell."""

    kind: OutcomeKind
    stage: Name = ""
    component: Name = ""
    message: Text = ""
    error_type: Name = ""
    location: Location | None = None
    frames: Annotated[tuple[Location, ...], Field(max_length=MAX_FRAMES)] = ()
    cause: UnavailableCause | None = None
    seconds: Seconds = 0.0
    stage_seconds: dict[str, Seconds] = Field(default_factory=dict)
    peak_memory_bytes: int | None = None
    components: tuple[Component, ...] = ()
    workarounds: dict[str, int] = Field(default_factory=dict)
    notes: tuple[Text, ...] = ()
    source: Name = ""
    tried: Annotated[tuple[SourceTry, ...], Field(max_length=MAX_TRIES)] = ()
    parameters: int | None = None
    fed: Annotated[tuple[Name, ...], Field(max_length=MAX_TRIES)] = ()
    fingerprint: Fingerprint | None = None
    eager: EagerChange | None = None
    built_from: Annotated[tuple[Name, ...], Field(max_length=MAX_TRIES)] = ()
    executed: Annotated[dict[Name, tuple[int, ...]] | None, Field(max_length=MAX_EXECUTED)] = None
