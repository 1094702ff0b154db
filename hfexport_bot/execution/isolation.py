"""The user that a runner runs as. The trusted half of isolation; the other is what a runner gives up itself.

Root starts each runner as a user of its own, so that it reaches neither this process, nor the other side's runner, nor
this user's files and sockets, and so that its processes can be told from all others and ended. Whoever is not root has
only one user: then this process closes its memory and its environment, tokens among it, to that user's processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pydantic

import hfexport_bot
from hfexport_bot.execution.environment import runner_environment
from hfexport_bot.schema import RunnerSetup

#: Variable with the users that runners may run as, by names or numbers, and its default. Accounts for nothing else.
WORKERS = "HFEXPORT_WORKERS"
WORKER_NAMES = "hfexport-worker1,hfexport-worker2"

_PR_SET_DUMPABLE = 4
#: Where only root may write: nobody else can hold the locks.
_LOCKS = Path("/run")
_PROBE_SECONDS = 60.0
_KILL_SECONDS = 10.0
#: Says which of its arguments cannot be read, or which folders not written.
_PROBE = """
import os, sys
for path in sys.argv[1:]:
    if not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)): sys.exit(path)
"""
_KILL_ALL = f"import os; os.kill(-1, {int(signal.SIGKILL)})"  # which spares the one that asks


class _NotToBeHad(Exception):
    """There is no user for a runner; the message says why."""


@dataclass(frozen=True)
class Worker:
    """A user of a runner's own, or none (0): then ``missing`` says why it has this process's."""

    uid: int = 0
    gid: int = 0
    missing: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `subprocess.Popen` that start a process as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": ()} if self.uid else {}


@contextlib.contextmanager
def worker(
    home: Path, reads: Sequence[str], *, python: str = sys.executable, environment: Mapping[str, str] = os.environ
) -> Iterator[Worker]:
    """A user for a runner, whose processes are all ended afterwards.

    Args:
        home: the runner's folder, given to the user with the folders in it.
        reads: files and folders that it has to read beside what is installed.
    """
    _close_to_others()
    with contextlib.ExitStack() as stack:
        try:
            found = _leased(stack, environment.get(WORKERS) or WORKER_NAMES)
            stack.callback(_end_processes, found, python)
            _give(home, found.uid, found.gid)
            _require_access(found, python, [str(home), *reads])
        except (_NotToBeHad, OSError) as error:
            if os.geteuid() == 0:
                _give(home, 0, 0)
            found = Worker(missing=f"a user of its own ({error})")
        yield found


def read_by(setup: RunnerSetup) -> list[str]:
    """What a runner reads that is not installed."""
    return [*filter(None, [setup.tree]), *setup.search_path, *setup.checkpoints.values()]


def _give(home: Path, uid: int, gid: int) -> None:
    """Make a folder, and the folders in it, a user's."""
    for folder in (home, *filter(Path.is_dir, home.iterdir())):
        os.chown(folder, uid, gid)


def _close_to_others() -> None:
    """Nothing of this process's memory, descriptors and environment is for other processes of its user."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _leased(stack: contextlib.ExitStack, names: str) -> Worker:
    """The first user that no other runner has, until the stack closes."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise _NotToBeHad("only root on Linux can give it one")
    accounts = [found for name in names.split(",") if (found := _account(name.strip())) is not None]
    if not accounts:
        raise _NotToBeHad(f"there is no account {names.replace(',', ' or ')}; {WORKERS} names others")
    for account in accounts:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(_LOCKS / f"hfexport-worker-{account.uid}.lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        stack.callback(os.close, lock)
        return account
    raise _NotToBeHad(f"{names.replace(',', ' and ')} are taken by other runners")


def _account(name: str) -> Worker | None:
    """A user by name or number; one with a number needs no account. None where there is none, and for root."""
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
        found = Worker(entry.pw_uid, entry.pw_gid)
    except (KeyError, OverflowError):
        found = Worker(int(name), int(name)) if name.isdecimal() else Worker()
    return found if found.uid and found.gid else None


def _require_access(user: Worker, python: str, reads: Sequence[str]) -> None:
    """Make sure that a user can be started and read what it needs. Raises ``_NotToBeHad``."""
    installed = [str(Path(str(module.__file__)).parent) for module in (hfexport_bot, pydantic)]
    try:
        done = _run(user, python, _PROBE, *installed, *reads)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise _NotToBeHad(f"{python} cannot be started by other users: {reason}") from None
    if done.returncode:
        raise _NotToBeHad(f"other users cannot read {done.stderr.strip()[-300:] or python}")


def _end_processes(user: Worker, python: str) -> None:
    """Kill every process of a user, also those that left their parents and sessions, until none is left."""
    deadline = time.monotonic() + _KILL_SECONDS
    while True:
        # All at once, and without a look first: what forks and ends outruns a list, and may be in none.
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _run(user, python, _KILL_ALL)
        if not (left := _processes_of(user)) or time.monotonic() > deadline:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()


def _processes_of(user: Worker) -> list[psutil.Process]:
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.uids().real == user.uid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _run(user: Worker, python: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", "-S", "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=runner_environment(os.environ, Path("/")),
        timeout=_PROBE_SECONDS,
        **user.options,
    )
