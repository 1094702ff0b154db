"""The one thing that crosses from the untrusted stage to the one with the token: a report.json, taken with care."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hfexport_bot.errors import UsageError
from hfexport_bot.reporting.reading import parse_report
from hfexport_bot.schema import Report

#: Longest report that is read. One of 5,000 cases, a fifth of them failing, takes about half of it.
MAX_REPORT_BYTES = 128 << 20
#: What it is called in a folder.
REPORT_NAME = "report.json"


class NoReport(UsageError):
    """There is none."""


def read_report(path: Path) -> Report:
    """Read ``path``, or ``report.json`` in the folder ``path``.

    Raises `UsageError`, one line, for what is missing, too long or not of this version's schema. No link is followed:
    the file's maker must not choose what is read.
    """
    file = path / REPORT_NAME if path.is_dir() else path
    content = _read(file)
    if len(content) > MAX_REPORT_BYTES:
        raise UsageError(f"{file.name} is longer than {MAX_REPORT_BYTES >> 20} MiB and was not read")
    return parse_report(content, file.name)


def _read(file: Path) -> bytes:
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NoReport(f"there is no {file.name}: the run ended before it could write one") from None
    except OSError as error:
        raise UsageError(f"{file.name} cannot be read: {error.strerror}") from None
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UsageError(f"{file.name} is no file")
        return stream.read(MAX_REPORT_BYTES + 1)
