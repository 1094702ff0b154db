"""What one failure has in common with itself on another run, another machine and another revision. Pure."""

from __future__ import annotations

import re
from pathlib import PureWindowsPath

from hfexport_bot.schema import Location, Outcome, OutcomeKind

#: How much of a message counts. Its first lines say what went wrong; what follows (listings of the graph,
#: stacks) moves with every edit.
MESSAGE_LINES = 3
MESSAGE_CHARS = 400

# In this order: a path may hold a hash or an address, a version is made of numbers.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),  # colours
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.+~@-]*[/\\])+([\w.+-]+)"), r"\1"),  # paths, to their last segment
    (re.compile(r"\btmp[\w-]{6,}\b"), "tmp"),  # names made by tempfile
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "address"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{12,}\b"), "hash"),
    (re.compile(r"\b([su]|zuf|zf)\d+\b"), r"\1#"),  # symbols of dynamic shapes: s0, u3, zuf1
    # Numbers and versions. Those inside a name stay (float16, Qwen2Model), a node's number goes (view_3).
    (re.compile(r"(?<![A-Za-z0-9])-?\d+(?:\.\d+)*(?:[eE][+-]?\d+)?(?:\+\w+|(?:rc|\.?dev)\d+)?"), "#"),
    (re.compile(r"\s+"), " "),
)


def normalise(text: str) -> str:
    """``text`` on one line, without what differs between two runs of one failure: paths, addresses, hashes,
    symbol ids, numbers, line numbers and versions."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.strip()


def signature(outcome: Outcome) -> str:
    """The canonical signature of a failing outcome, empty for a pass: kind, stage, error type, the first
    lines of the message, and the file and function it is blamed on."""
    if outcome.kind is OutcomeKind.PASS:
        return ""
    lines = [line for line in outcome.message.splitlines() if line.strip()][:MESSAGE_LINES]
    # Cut before the patterns run, which keeps them fast on whatever a runner sends; and after, evenly.
    message = normalise("\n".join(lines)[: 4 * MESSAGE_CHARS])[:MESSAGE_CHARS]
    cause = outcome.cause.value if outcome.cause else ""
    place = _place(outcome.location) if outcome.location else ""
    return " | ".join((outcome.kind.value, outcome.stage, outcome.error_type or cause, message, place))


def _place(location: Location) -> str:
    name = PureWindowsPath(location.file).name  # takes both kinds of slash
    return f"{name}:{location.function}"
