"""What native code prints when it fails. ExecuTorch's errors are a number; the reason stands in its log only."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager

#: Most lines of a log that are told with an error, and most bytes of it that are read for them.
MAX_LINES = 6
MAX_BYTES = 1 << 16

#: A line of ExecuTorch's log that tells of a fault: the file and line it comes from, and what it says.
_LINE = re.compile(r"^\[\w+\.cpp:\d+\] (.+)$", re.MULTILINE)
#: What it says in any case: of the machine, and of each argument of a kernel that failed.
_NOISE = re.compile(r"cpu ?info|midr|/sys/devices|cpus don|^arg \d+ with type id", re.IGNORECASE)


@contextmanager
def native_log() -> Iterator[None]:
    """Add what ExecuTorch logs meanwhile to an error that is raised, as a note.

    Only where standard error is a file, as it is in a runner's cases: reading it disturbs nobody, and a crash loses
    none of it.
    """
    begin = _size()
    try:
        yield
    except Exception as error:
        lines = _lines(begin)
        if lines:
            error.add_note("\n".join(lines))
        raise


def _size() -> int | None:
    found = os.fstat(2)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _lines(begin: int | None) -> list[str]:
    end = _size()
    if begin is None or end is None:
        return []
    try:
        text = os.pread(2, MAX_BYTES, max(begin, end - MAX_BYTES)).decode(errors="replace")
    except OSError:  # opened for writing only
        return []
    said = dict.fromkeys(line for line in _LINE.findall(text) if not _NOISE.search(line))
    return list(said)[:MAX_LINES]  # the fault comes first, then what fails for it
