"""What a runner writes, it writes in its own home; what of it was asked for is carried out from here.

Logs as they grow, files for the other side, and what the stages of a case made. Only regular files come out, opened by
descriptor and never through a link: what a runner leaves in its home may be anything.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from hfexport_bot.schema import CaseFinished, CaseId, CaseRequest, RunnerEvent, RunnerSetup, StageBegan

_MAX_LOG_BYTES = 32 << 20
_LOGS, _EAGER, _KEPT = "logs", "eager", "kept"


class Handover:
    """The places of a runner's home, and where what is in them belongs.

    Attributes:
        setup: the runner's setup, as it is told it.
    """

    def __init__(self, home: Path, setup: RunnerSetup) -> None:
        self._places: dict[str, int] = {}
        for name in (_LOGS, _EAGER, _KEPT):
            (home / name).mkdir()
            self._places[name] = os.open(home / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._home = home
        self._log_dir, self._keep = setup.log_dir, setup.keep
        #: The cases in the runner's hands, and where what eager ran on is wanted.
        self._asked: dict[CaseId, Path | None] = {}
        self._read: dict[str, int] = {}
        inside = {
            "log_dir": str(home / _LOGS) if setup.log_dir else None,
            "keep": str(home / _KEPT) if setup.keep else None,
        }
        self.setup = setup.model_copy(update=inside)

    def requests(self, requests: Sequence[CaseRequest]) -> tuple[CaseRequest, ...]:
        """Requests as the runner is told them: what they are to write lies in its home."""
        told = []
        for request in requests:
            target = self._asked[request.id] = Path(request.eager_to) if request.eager_to else None
            inside = {"eager_to": str(self._home / _EAGER / target.name) if target else None}
            told.append(request.model_copy(update=inside))
        return tuple(told)

    def take(self, event: RunnerEvent) -> None:
        """Carry out what a case has written by now."""
        if not isinstance(event, StageBegan | CaseFinished) or event.id not in self._asked:
            return
        self._copy_log(event.id.log_name)
        if isinstance(event, CaseFinished):
            self._read.pop(event.id.log_name, None)  # its next run begins a log of its own
            if (target := self._asked.pop(event.id)) is not None:
                self._move_file(target)

    def close(self) -> None:
        """Carry out what is left, once the runner is no more."""
        try:
            for name in list(self._read):
                self._copy_log(name)
            if self._keep is not None:
                _copy_files(self._places[_KEPT], Path(self._keep))
        finally:
            for folder in self._places.values():
                os.close(folder)

    def _copy_log(self, name: str) -> None:
        """Append to the user's log what is new in the runner's, or begin it anew where that was cut."""
        if self._log_dir is None:
            return
        with contextlib.suppress(OSError), _regular_file(name, self._places[_LOGS]) as log:
            begun = self._read.get(name, 0)
            begun = begun if log.seek(0, os.SEEK_END) >= begun else 0
            log.seek(begun)
            data = log.read(_MAX_LOG_BYTES)
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if begun else os.O_TRUNC)
            with open(os.open(Path(self._log_dir) / name, flags, 0o644), "wb") as copy:
                copy.write(data)
            self._read[name] = begun + len(data)

    def _move_file(self, target: Path) -> None:
        """Move a file that the other side is to read."""
        folder = self._places[_EAGER]
        with contextlib.suppress(OSError), _regular_file(target.name, folder) as file:
            os.fchown(file.fileno(), os.geteuid(), os.getegid())
            os.fchmod(file.fileno(), 0o644)
            os.rename(target.name, target, src_dir_fd=folder)


@contextlib.contextmanager
def _regular_file(name: str, folder: int) -> Iterator[IO[bytes]]:
    """Open a file of a folder. Raises ``OSError`` for what is none."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # nobody may ever write to a pipe
    with open(os.open(name, flags, dir_fd=folder), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileNotFoundError(name)
        yield file


def _copy_files(source: int, target: Path) -> None:
    """Copy a folder's regular files, and those of the folders in it."""
    for place, _, names, folder in os.fwalk(".", dir_fd=source):
        for name in names:
            with contextlib.suppress(OSError), _regular_file(name, folder) as file:
                (target / place).mkdir(parents=True, exist_ok=True)
                with open(target / place / name, "wb") as copy:
                    shutil.copyfileobj(file, copy)
