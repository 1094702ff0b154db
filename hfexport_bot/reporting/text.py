"""Text from the untrusted side, made harmless for each place it is shown. Pure.

Messages, names and notes come from code under test. In Markdown they stand only in code spans, `<code>` and
fenced blocks: there nothing pings (`@name`), links (`#12`, addresses) or renders as HTML.
"""

from __future__ import annotations

import html
import re
import unicodedata

#: Longest command that is shown.
MAX_COMMAND_CHARS = 2_000

_BACKTICKS = re.compile(r"`+")
# GitHub's runner takes a log line for a command when it begins with "::", after any blanks, or holds "##[".
_COMMAND = re.compile(r"(?<!\w)::")


def clean(text: str) -> str:
    """``text`` without control characters, colours, text direction marks and unpaired surrogates; tabs become
    blanks and every line break ``\\n``."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = text.expandtabs(4).splitlines()
    return "\n".join("".join(c for c in line if unicodedata.category(c)[0] != "C") for line in lines)


def one_line(text: str, limit: int = 200) -> str:
    """``text`` on one line of at most ``limit`` characters; what was cut is an ellipsis."""
    line = " ".join(clean(text[: 8 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def code(text: str, limit: int = 200) -> str:
    """A Markdown code span of one line, also inside a table; empty for empty text. Backticks and pipes,
    which could end the span or the cell, become their lookalikes: for a command there is `command_code`."""
    line = one_line(text, limit).replace("`", "'").replace("|", "¦")
    return f"`{line}`" if line else ""


def command_line(command: str) -> str:
    """A command as it is, since it is quoted for a shell: nothing in it may be replaced. One that is too long is not
    shown, since a part of it would do something else."""
    if not command.isprintable():  # nothing that came through the schema
        command = one_line(command, MAX_COMMAND_CHARS)
    return command if len(command) <= MAX_COMMAND_CHARS else f"(a command of {len(command):,} characters)"


def command_code(command: str) -> str:
    """The same as a code span that nothing inside can close, outside of tables."""
    line = command_line(command)
    fence, pad = _fence(line, 1), " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _fence(text: str, least: int) -> str:
    """More backticks than anywhere in a text: ``least`` of them or more."""
    return "`" * max(least, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))


def html_code(text: str, limit: int = 200) -> str:
    """The same for a place where Markdown does not apply, such as ``<summary>``."""
    line = html.escape(one_line(text, limit))
    return f"<code>{line}</code>" if line else ""


def fenced(text: str, max_lines: int = 20, max_chars: int = 1500) -> str:
    """A fenced block that nothing inside can close. Lines that were cut are counted in a last one."""
    lines = [line.rstrip() for line in clean(text).splitlines()]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    kept: list[str] = []
    room = max_chars
    for line in lines[:max_lines]:
        if room <= 0:
            break
        kept.append(line if len(line) <= room else line[:room] + "…")
        room -= len(line) + 1
    if len(kept) < len(lines):
        kept.append(f"… {len(lines) - len(kept)} more lines")
    body = "\n".join(kept)
    fence = _fence(body, 3)
    return f"{fence}text\n{body}\n{fence}"


def plain(text: str, limit: int = 200) -> str:
    """One line for a terminal or a log: no control characters, and no command to GitHub's runner."""
    return _COMMAND.sub(": :", one_line(text, limit)).replace("##[", "## [")
