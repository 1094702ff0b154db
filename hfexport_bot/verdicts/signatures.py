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
    # Paths, to their last segment; those in quotes may have blanks in them.
    (re.compile(r"""(["'])(?:[A-Za-z]:)?[/\\][^"'\n]*[/\\]([^"'/\\\n]+)\1"""), r"\1\2\1"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.+~@-]*[/\\])+([\w.+-]+)"), r"\1"),
    (re.compile(r"\btmp[\w-]{6,}\b"), "tmp"),  # names made by tempfile
    (re.compile(r" object at 0x[0-9a-fA-F]+"), " object"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "address"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "hash"),
    (re.compile(r"\b(?=[a-fA-F]*\d)[0-9a-fA-F]{12,}\b"), "hash"),
    (re.compile(r"\b(cpu|cuda|mps|xpu):\d+\b"), r"\1"),  # devices
    (re.compile(r"\b([su]|zuf|zf)\d+\b"), r"\1#"),  # symbols of dynamic shapes: s0, u3, zuf1
    (re.compile(r"([A-Za-z])\d+(?:\.\d+)+"), r"\1#"),  # versions after a name: v5.24.0, python3.11
    (re.compile(r"\b([A-Za-z]\w*?)_\d+\b"), r"\1"),  # the number of a node: the first view has none, others are view_3
    # Numbers and versions. Those inside a name stay (float16, Qwen2Model).
    (re.compile(r"(?<![A-Za-z0-9])-?\d+(?:\.\d+)*(?:[eE][+-]?\d+)?(?:\+\w+|(?:rc|\.?dev)\d+)?"), "#"),
    (re.compile(r"\s+"), " "),
    (re.compile(r"\btensor\([^()]*\)"), "tensor"),  # values
)


def normalise(text: str) -> str:
    """``text`` on one line, without what differs between two runs of one failure: paths, addresses, hashes, symbol ids,
    numbers of nodes and lines, devices, values and versions, and the order of sets and mappings."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return _in_order(text).strip()


def _in_order(text: str) -> str:
    """``text`` with the entries of each pair of braces sorted. What follows a brace that is never closed goes: it was
    cut off somewhere in no order."""
    open_sets = [[""]]  # entries so far, of the outermost to the innermost
    brackets = [0]
    quote = ""
    for character in text:
        inside = len(open_sets) > 1
        if quote:
            quote = "" if character == quote else quote
        elif inside and character in "\"'":
            quote = character
        elif character == "{":
            open_sets.append([""])
            brackets.append(0)
            continue
        elif inside and character == "}":
            entries = sorted(entry.strip() for entry in open_sets.pop())
            brackets.pop()
            open_sets[-1][-1] += f"{{{', '.join(entries)}}}"
            continue
        elif inside and character == "," and not brackets[-1]:
            open_sets[-1].append("")
            continue
        else:
            brackets[-1] += (character in "([") - (character in ")]")
        open_sets[-1][-1] += character
    return open_sets[0][0] + ("{" if len(open_sets) > 1 else "")


def signature(outcome: Outcome) -> str:
    """The canonical signature of a failing outcome, empty for a pass: kind, stage, error type, the first
    lines of the message, and the file and function it is blamed on. Where a limit ended it, it was somewhere by chance:
    only the first line counts."""
    if outcome.kind is OutcomeKind.PASS:
        return ""
    ended = outcome.kind in (OutcomeKind.TIMEOUT, OutcomeKind.OOM) and not outcome.error_type
    lines = [line for line in outcome.message.splitlines() if line.strip()][: 1 if ended else MESSAGE_LINES]
    # Cut before the patterns run, which keeps them fast on whatever a runner sends; and after, evenly.
    message = normalise("\n".join(lines)[: 4 * MESSAGE_CHARS])[:MESSAGE_CHARS]
    cause = outcome.cause.value if outcome.cause else ""
    place = _place(outcome.location) if outcome.location and not ended else ""
    return " | ".join((outcome.kind.value, outcome.stage, outcome.error_type or cause, message, place))


def _place(location: Location) -> str:
    name = PureWindowsPath(location.file).name  # takes both kinds of slash
    return f"{name}:{location.function}"
