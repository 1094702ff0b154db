"""What the log of a process that died tells of its end."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hfexport_bot.schema import MAX_MESSAGE_CHARS, Outcome, RunnerSetup

#: Of the text, and of what was written before the dump of a crash.
_MAX_CHARS = 3_000
_BEFORE_CHARS = 800
#: Frames that are told where none is of the code under test.
_FRAMES_SHOWN = 12
#: How Python's faulthandler begins a dump: of a crash, or when it was asked; and what ends that of a crash.
_BEGIN = re.compile(r"^(?:Fatal Python error:.*|Stack \(most recent call first\):)$", re.MULTILINE)
_EXTENSIONS = re.compile(r"^Extension modules:.*$", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*$", re.MULTILINE)
_FRAME = re.compile(r'  File "(?P<file>[^"\n]*)", line (?P<line>\d+) in (?P<function>.*)')
_BOT = Path(__file__).resolve().parents[1]


class StackFrame(NamedTuple):
    """A line of a dump."""

    file: str
    line: int
    function: str


class CrashLog(NamedTuple):
    """What was written before a dump, how it begins, its frames, the innermost first, and what was written after.
    Without a dump all is ``before``."""

    before: str
    title: str = ""
    frames: tuple[StackFrame, ...] = ()
    after: str = ""

    def text(self, is_ours: Callable[[str], bool]) -> str:
        """The log, shortened: of the frames those down to the first in a file of the code under test, and of what
        called it the frames that are so too."""
        if not self.title:
            return self.before.strip()[-_MAX_CHARS:]
        first = next((place for place, frame in enumerate(self.frames) if is_ours(frame.file)), None)
        told = self.frames[:_FRAMES_SHOWN]
        if first is not None:
            told = (
                *self.frames[: first + 1][-_FRAMES_SHOWN:],
                *(f for f in self.frames[first + 1 :] if is_ours(f.file)),
            )
        lines = [self.title, *(f'  File "{file}", line {line} in {function}' for file, line, function in told)]
        if left := len(self.frames) - len(told):
            lines.append(f"  ... and {left} more")
        text = "\n".join(lines)[:_MAX_CHARS]
        parts = (self.before.strip()[-_BEFORE_CHARS:], text, self.after.strip()[-_BEFORE_CHARS:])
        return "\n".join(part for part in parts if part)


def read_crash(log: str) -> CrashLog:
    """Read the end of a log. Of faulthandler's last dump only the frames of the code that ran: neither other threads'
    nor the bot's own."""
    begins_at = list(_BEGIN.finditer(log))
    if not begins_at:
        return CrashLog(log)
    begin = begins_at[-1]
    dump, after = log[begin.end() :], ""
    if end := _EXTENSIONS.search(dump):
        dump, after = dump[: end.start()], dump[end.end() :]
    threads = [match.span() for match in _THREAD.finditer(dump)]
    for (start, begins), (ends, _) in itertools.pairwise([*threads, (len(dump), 0)]):
        if dump.startswith("Current", start):
            dump = dump[begins:ends]
            break
    found = (StackFrame(each["file"], int(each["line"]), each["function"]) for each in _FRAME.finditer(dump))
    return CrashLog(log[: begin.start()], begin[0], tuple(f for f in found if not _is_of_the_bot(f.file)), after)


def with_log(outcome: Outcome, log: str, setup: RunnerSetup) -> Outcome:
    """The outcome of a process that died, with the text of its log."""
    text = read_crash(log).text(lambda _: False)
    return outcome.model_copy(update={"message": f"{outcome.message}\n{text}".strip()[:MAX_MESSAGE_CHARS]})


def _is_of_the_bot(file: str) -> bool:
    return file.startswith("<frozen") or Path(file).is_relative_to(_BOT)
