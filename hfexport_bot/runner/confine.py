"""What the runner gives up before any code of a revision is imported, for good and for all that it starts.

It gains no rights from the programs it starts, has no capability, no socket, and no hold on processes that are not its
own, and it writes to its own folder only. Linux has all of that, as root and not; what is not to be had is returned in
words, and everything else is given up all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hfexport_bot.runner.processes import lower, prctl, threads_of_user
from hfexport_bot.runner.system_calls import filter_calls

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522

_MAX_DESCRIPTORS = 4_096
#: Threads of this user's, beside those that it has before.
_MAX_THREADS = 8_192

_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446  # on every architecture
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
#: By the version that brought them: to write, remove and make files of each kind; to move between folders; to truncate;
#: to control devices.
_WRITES = {1: 0b1_1111_1111_0010, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_OF_A_FILE = 1 << 1 | 1 << 14 | 1 << 15
#: TCP; abstract sockets and signals to processes that are not below.
_TCP = {4: 0b11}
_SCOPES = {6: 0b11}
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def confine(home: Path) -> tuple[str, ...]:
    """Confine this process, which has one thread, and all that it starts; it goes on writing below ``home``.

    Returns what could not be had, each with its reason.
    """
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS)
    lower(resource.RLIMIT_NPROC, threads_of_user() + _MAX_THREADS)
    if sys.platform != "linux":
        return ("a network filter and write protection (only on Linux)",)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    missing = [*filter_calls(), *_write_only_to([home])]
    _drop_capabilities()
    hide()
    return tuple(missing)


def confine_case(writable: Iterable[Path]) -> None:
    """Confine a case's own process once more: to some of the runner's folders, and to processes below itself."""
    if sys.platform == "linux":
        prctl(_PR_SET_DUMPABLE, 1)  # or the runner could not measure its memory
        list(_write_only_to(writable))  # what is not to be had, the runner has told already


def hide() -> None:
    """Close this process's memory, descriptors and environment to processes of the same user."""
    prctl(_PR_SET_DUMPABLE, 0)


# -- Landlock ----------------------------------------------------------------------------------------------------


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """Which version of Landlock the kernel has; 0: none."""
    with contextlib.suppress(OSError):
        return _call(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)
    return 0


def _write_only_to(folders: Iterable[Path]) -> Iterator[str]:
    """Write-protect all but ``folders``; nothing of what a process may not do already comes back."""
    version = landlock_version()
    if version == 0:
        yield "write protection (the kernel has no Landlock)"
        return
    writes = _known(_WRITES, version)
    rules = _Ruleset(writes, _known(_TCP, version), _known(_SCOPES, version))
    ruleset = _call(_LANDLOCK_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    try:
        for folder in folders:
            _allow(ruleset, str(folder), writes)
        for device in filter(os.path.exists, _DEVICES):
            _allow(ruleset, device, writes & _OF_A_FILE)
        _call(_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    if version < min(_SCOPES):
        yield "protection of its processes from one another (Landlock 6, of Linux 6.12)"


def _allow(ruleset: int, path: str, access: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(access, parent)
        _call(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(parent)


def _known(by_version: dict[int, int], version: int) -> int:
    return sum(bits for since, bits in by_version.items() if since <= version)


# -- Capabilities ------------------------------------------------------------------------------------------------


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _drop_capabilities() -> None:
    """What root may do beyond other users; nothing for these."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    if _libc().capset(ctypes.byref(header), (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")


def _call(number: int, *arguments: object) -> int:
    result: int = _libc().syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}: {os.strerror(ctypes.get_errno())}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
