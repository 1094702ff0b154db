"""The system calls that a runner, and all that it starts, goes without.

A filter sees numbers, not the paths and structures that they point to. So a call that only some paths would be refused
for is refused for all of them, and one that may name another process is allowed for the process that makes it only.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

#: Sockets of any kind, as a socket of this machine may be Docker's; pairs stay. What reaches into processes of the same
#: user. What kernels had most holes in. What System V and POSIX name in a place of their own, where it stays behind.
_REFUSED = (
    *("socket", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "pidfd_send_signal", "kcmp"),
    *("process_madvise", "process_mrelease", "migrate_pages", "move_pages"),
    *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "unshare", "setns"),
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)
#: As if the kernel did not have them, so that libraries take the older way: their arguments lie where no filter sees
#: them, or they make descriptors of processes.
_MISSING = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3", "pidfd_open")

#: Landlock, which keeps writes to a case's own folder, does not govern what a file's owner does to the file itself. Of
#: one user, a case could take the other side's code out of its reach. Not done, and said to be: copying a file changes
#: the copy's mode and times, and would fail. Numbers where libseccomp may be older; they are the same everywhere.
_FCHMODAT2, _SETXATTRAT, _REMOVEXATTRAT, _FILE_SETATTR = 452, 463, 466, 469
_PASSED_OVER = (
    *("chmod", "fchmod", "fchmodat", _FCHMODAT2, "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", _FILE_SETATTR),
)
#: As on a file system that has none.
_UNSUPPORTED = (
    *("setxattr", "lsetxattr", "fsetxattr", _SETXATTRAT),
    *("removexattr", "lremovexattr", "fremovexattr", _REMOVEXATTRAT),
)

#: By call: arguments, and the only values that they may have, those of the process itself.
_OF_ITSELF = {"prlimit64": {0: 0}, "setpriority": {0: 0, 1: 0}, "ioprio_set": {0: 1, 1: 0}}
#: The same for the thread that calls. Runtimes bind their other threads to processors too, which only saves time.
_OF_ITS_THREAD = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
#: A namespace of users would give capabilities back.
_CLONE_NEWUSER = 0x10000000


def filter_calls() -> Iterator[str]:
    """Filter the calls of this process, which has one thread, for good. Yields in words what could not be had."""
    try:
        import pyseccomp as seccomp

        calls = seccomp.SyscallFilter(defaction=seccomp.ALLOW)
        refuse = seccomp.ERRNO(errno.EPERM)
        pass_over = seccomp.ERRNO(0)
        for action, names in (
            (refuse, _REFUSED),
            (seccomp.ERRNO(errno.ENOSYS), _MISSING),
            (seccomp.ERRNO(errno.ENOTSUP), _UNSUPPORTED),
            (pass_over, _PASSED_OVER),
        ):
            for name in names:
                calls.add_rule(action, name)
        for name, values in _OF_ITSELF.items():
            for place, value in values.items():
                calls.add_rule(refuse, name, seccomp.Arg(place, seccomp.NE, value))
        for name in _OF_ITS_THREAD:
            calls.add_rule(pass_over, name, seccomp.Arg(0, seccomp.NE, 0))
        calls.add_rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_NEWUSER, _CLONE_NEWUSER))
        calls.load()
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        yield f"a network filter (seccomp: {error})"
