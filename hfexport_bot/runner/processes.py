"""What the runner asks of the operating system: who descends from whom, limits, and an end for everything.

Linux gives all of it. Elsewhere, parents are not told of each other's death and address space is not limited.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import stat
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import psutil

from hfexport_bot.schema import Limits

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: Address space beyond what the process has and may use: torch and the runtimes reserve far more than they touch.
_ADDRESS_SPACE_SLACK = 4 << 30
#: Seconds of CPU between SIGXCPU, which a case may pass over, and SIGKILL.
_CPU_SECONDS_SLACK = 10
#: Seconds in which everything that was sent SIGKILL should be gone.
_KILL_SECONDS = 10.0


class ProcessEntry(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    session: int


def process_table() -> list[ProcessEntry]:
    """Every process of the machine; those that end meanwhile are left out."""
    entries = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            if sys.platform == "linux":
                # "pid (name) state parent group session ...", where the name may hold spaces and brackets
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                entries.append(ProcessEntry(pid, int(fields[1]), int(fields[3])))
            else:
                entries.append(ProcessEntry(pid, psutil.Process(pid).ppid(), os.getsid(pid)))
    return entries


def descendants(pid: int, table: list[ProcessEntry]) -> set[int]:
    """The processes below ``pid``, itself excluded."""
    children = defaultdict(list)
    for entry in table:
        children[entry.parent].append(entry.pid)
    found: set[int] = set()
    pending = [pid]
    while pending:
        new = [child for child in children[pending.pop()] if child not in found]
        found.update(new)
        pending.extend(new)
    return found


def family(pid: int, table: list[ProcessEntry]) -> set[int]:
    """``pid``, everything below it, and what it left behind in its session or theirs."""
    members = {pid} | descendants(pid, table)
    for entry in table:
        if entry.session == pid and entry.pid not in members:
            members |= {entry.pid} | descendants(entry.pid, table)
    return members


def resident_bytes(pid: int, members: set[int]) -> int:
    """Memory in use by a family: all that is resident of ``pid``, and what its other members do not share with it."""
    total = 0
    for member in members:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(member)
            total += process.memory_info().rss if member == pid else process.memory_full_info().uss
    return total


def nameless_bytes(members: set[int]) -> int:
    """What the files of processes take that have no name any more, or never had one."""
    sizes: dict[tuple[int, int], int] = {}
    for member in members if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{member}/fd").iterdir():
                with contextlib.suppress(OSError):  # closed in between
                    status = descriptor.stat()
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def threads_of_user() -> int:
    """How many threads this user's processes have, which is what the limit on processes counts."""
    count = 0
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            count += process.num_threads() if process.uids().real == os.getuid() else 0
    return count


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed for want of memory since the machine started; 0 where unknown."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/vmstat").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])
    return 0


def signal_name(number: int) -> str:
    """``SIGKILL``, or ``signal 40`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def kill(pids: set[int]) -> None:
    """Send SIGKILL to each, without waiting. Processes that are gone already are fine."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process instead of init's, so that none is lost sight of."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Have ``signal_number`` sent to this process when ``parent``, its parent, dies; exit if that has happened."""
    prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(1)


def limit_resources(limits: Limits) -> None:
    """Limit this process's CPU time, address space and files, and forbid core dumps."""
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_CPU, limits.cpu_seconds, _CPU_SECONDS_SLACK)
    lower(resource.RLIMIT_FSIZE, limits.disk_bytes)
    if sys.platform == "linux":
        lower(resource.RLIMIT_AS, psutil.Process().memory_info().vms + limits.memory_bytes + _ADDRESS_SPACE_SLACK)


@contextlib.contextmanager
def less_address_space(size: int) -> Iterator[None]:
    """Give this process no more than ``size`` bytes of address space beyond what it has, for a while."""
    if sys.platform != "linux":
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = psutil.Process().memory_info().vms + size
    resource.setrlimit(resource.RLIMIT_AS, (wanted if before[0] < 0 else min(wanted, before[0]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def stand_guard() -> None:
    """Fork, and return in the child only, which goes on as the runner.

    The parent loads nothing of a revision. It waits for the runner, for SIGTERM, or for the death of its own parent,
    then kills everything below itself, orphans included, and exits as the runner did.
    """
    ending = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending | {signal.SIGCHLD})
    adopt_orphans()
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    guard = os.getpid()
    runner = os.fork()
    if runner == 0:
        die_with_parent(guard)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending | {signal.SIGCHLD})
        return
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the events' end among them, which only the runner may hold
    _guard(runner, ending | {signal.SIGCHLD})


def _guard(runner: int, signals: set[signal.Signals]) -> NoReturn:
    status = 128 + signal.SIGTERM
    while True:
        ended = _reap()
        if runner in ended:
            status = ended[runner]
            break
        if signal.sigwait(signals) is not signal.SIGCHLD:
            break
    deadline = time.monotonic() + _KILL_SECONDS
    while (left := descendants(os.getpid(), process_table())) and time.monotonic() < deadline:
        kill(left)
        _reap()
        time.sleep(0.01)
    os._exit(status)


def _reap() -> dict[int, int]:
    """Exit codes of the children that have ended, by pid; 128 and the signal's number for a killed one."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(found[1])
            ended[found[0]] = code if code >= 0 else 128 - code
    return ended


def lower(what: int, value: int, slack: int = 0) -> None:
    """Limit a resource of this process and all below it, for good; ``slack`` is what comes between the signal that says
    so and the end."""
    hard = resource.getrlimit(what)[1]
    wanted = value + slack
    hard = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(what, (min(value, hard), hard))


def prctl(option: int, value: int) -> None:
    """Set something of this process; nothing where there is no such call."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
