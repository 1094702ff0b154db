"""What the log of a process that died tells of its end."""

from __future__ import annotations

import re
from pathlib import Path

#: Of the text, and of what was written before the dump of a crash.
_MAX_CHARS = 3_000
_BEFORE_CHARS = 800
#: How Python's faulthandler begins a dump, and what it ends with.
_DUMP = "Fatal Python error:"
_EXTENSIONS = "\nExtension modules:"
_THREAD = re.compile(r"^(Current thread|Thread) 0x", re.MULTILINE)
_FRAME = re.compile(r'  File "(?P<file>[^"]*)"')
_BOT = Path(__file__).resolve().parents[1]


def crash_text(log: str) -> str:
    """The end of ``log``, shortened. Of faulthandler's dump the beginning stays, since the innermost frame comes first,
    and the frames of the code that ran: neither other threads' nor the bot's own."""
    before, found, dump = log.rpartition(_DUMP)
    if not found:
        return log.strip()[-_MAX_CHARS:]
    dump, _, after = dump.partition(_EXTENSIONS)
    after = after.partition("\n")[2]
    starts = [match.start() for match in _THREAD.finditer(dump)] or [len(dump)]
    threads = [dump[start:end] for start, end in zip(starts, [*starts[1:], len(dump)], strict=True)]
    own = [thread for thread in threads if thread.startswith("Current")] or threads
    lines = [line for thread in own for line in thread.splitlines() if line.strip() and not _is_of_the_bot(line)]
    told = "\n".join([found + dump[: starts[0]].rstrip(), *lines])
    parts = (before.strip()[-_BEFORE_CHARS:], told[:_MAX_CHARS], after.strip()[-_BEFORE_CHARS:])
    return "\n".join(part for part in parts if part)


def _is_of_the_bot(line: str) -> bool:
    frame = _FRAME.match(line)
    return frame is not None and (frame["file"].startswith("<frozen") or Path(frame["file"]).is_relative_to(_BOT))
