"""What a confined process may not do, tried for real: as this user, and from root as another one."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hfexport_bot.runner.confine import landlock_version
from tests.hfexport_bot.users import NOBODY, open_folder

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64", reason="the numbers of system calls are those of x86"
    ),
]

#: Confines itself as a runner does and, in a fork, as its case does, then tries what it is asked for; prints what came
#: of each as JSON. The names of the attempts are those of the tests' assertions.
SCRIPT = """
import ctypes, errno, json, os, resource, shutil, socket, sys, threading
from pathlib import Path
from hfexport_bot.runner.confine import confine, confine_case

home, outside, trusted = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
own, others = home / "own", home / "others"
own.mkdir(); others.mkdir()
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    if (result := libc.syscall(number, *arguments)) < 0: raise OSError(ctypes.get_errno(), "")
    return result

def thread():
    started = threading.Thread(target=lambda: None)
    started.start(); started.join()

TRIALS = {
    "inet": lambda: socket.socket(socket.AF_INET),
    "inet6": lambda: socket.socket(socket.AF_INET6),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "unix": lambda: socket.socket(socket.AF_UNIX),
    "io_uring": lambda: call(425, 1, 0),
    "user namespace": lambda: call(272, 0x10000000),
    "ptrace": lambda: call(101, 16, os.getppid(), 0, 0),
    "socket pair": lambda: socket.socketpair(),
    "thread": thread,
    "process": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "write to own folder": lambda: (own / "x").write_text("x"),
    "move in own folder": lambda: ((own / "a").mkdir(), (own / "x").rename(own / "a" / "y")),
    "/dev/null": lambda: Path("/dev/null").write_text("x"),
    "own environment": lambda: Path("/proc/self/environ").read_bytes(),
    "read": lambda: Path("/etc/passwd").read_bytes(),
    "write to another case's folder": lambda: (others / "x").write_text("x"),
    "write outside": lambda: (outside / "x").write_text("x"),
    "remove outside": lambda: (outside / "kept").unlink(),
    "truncate outside": lambda: os.truncate(outside / "kept", 0),
    "shared memory": lambda: Path("/dev/shm/hfexport-test").write_text("x"),
    "environment of the runner": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "memory of the runner": lambda: open(f"/proc/{os.getppid()}/mem", "rb").close(),
    "descriptors of the runner": lambda: open(f"/proc/{os.getppid()}/fd/1", "wb").close(),
    "environment of the trusted side": lambda: Path(f"/proc/{trusted}/environ").read_bytes(),
    "signal to the runner": lambda: os.kill(os.getppid(), 0),
    "signal to the trusted side": lambda: os.kill(trusted, 0),
    "more descriptors": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192)),
    "core dumps": lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, 1)),
    "limits of the trusted side": lambda: resource.prlimit(trusted, resource.RLIMIT_CORE, (0, 0)),
    "limits of the runner": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0)),
    "priority of the runner": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
    "priority of the user": lambda: os.setpriority(os.PRIO_USER, 0, 19),
    "priority of the runner's reads": lambda: call(251, 1, os.getppid(), 3 << 13),
    "descriptor of the runner": lambda: os.close(os.pidfd_open(os.getppid())),
    "pages of the runner": lambda: call(279, os.getppid(), 0, None, None, None, 0),
    "shared memory of System V": lambda: call(31, call(29, 0, 4096, 0o1600), 0, None),
    "semaphore of System V": lambda: call(66, call(64, 0, 1, 0o1600), 0, 0),
    "queue of System V": lambda: call(71, call(68, 0, 0o1600), 0, None),
    "queue of POSIX": lambda: call(240, b"hfexport-test", os.O_CREAT | os.O_RDWR, 0o600, None),
    "attribute": lambda: os.setxattr(outside / "kept", "user.x", b"x"),
    "no attribute": lambda: os.removexattr(outside / "kept", "user.x"),
    "new attribute": lambda: call(463, -100, bytes(outside / "kept"), 0, b"user.x", None, 0),
    "own limits": lambda: resource.setrlimit(resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK)),
    "own priority": lambda: (os.nice(1), call(251, 1, 0, 2 << 13 | 7)),
    "own processors": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "copy": lambda: ((own / "from").write_text("x"), shutil.copy2(own / "from", own / "to")),
    "a mount": lambda: call(165, b"none", str(own).encode(), b"tmpfs", 0, None),
}

# Said to be done, and not done.
SILENT = (
    lambda: (outside / "kept").chmod(0),
    lambda: call(452, -100, bytes(outside / "kept"), 0, 0),
    lambda: outside.chmod(0),
    lambda: os.chown(outside / "kept", os.getuid(), os.getgid()),
    lambda: os.utime(outside / "kept", (1, 1)),
    lambda: os.sched_setaffinity(trusted, {min(os.sched_getaffinity(0))}),
    lambda: os.sched_setscheduler(trusted, os.SCHED_IDLE, os.sched_param(0)),
)

missing = confine(home)
read_end, write_end = os.pipe()
if os.fork() == 0:
    confine_case([own])
    found = {}
    for name, attempt in TRIALS.items():
        try:
            attempt()
            found[name] = "done"
        except OSError as error:
            found[name] = errno.errorcode.get(error.errno or 0, str(error))
        except ValueError:
            found[name] = "EPERM"  # of setrlimit
    if found["descriptor of the runner"] == "ENOSYS":  # there is a filter
        for attempt in SILENT:
            attempt()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    found |= {name: status[name].strip() for name in ("CapEff", "CapPrm", "NoNewPrivs", "Seccomp", "Groups")}
    os.write(write_end, json.dumps(found).encode())
    os._exit(0)
os.close(write_end)
print(json.dumps([missing, json.loads(os.read(read_end, 1 << 16))]))
"""


def metadata(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_mode, status.st_uid, status.st_mtime_ns, status.st_ctime_ns


@pytest.fixture(params=["this user", "nobody"])
def trials(request: pytest.FixtureRequest) -> Iterator[tuple[list[str], dict[str, str]]]:
    """What could not be had, and what came of each attempt."""
    options = {}
    if request.param == "nobody":
        if os.geteuid() != 0:
            pytest.skip("only root can start a process as another user")
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": ()}
    with open_folder() as folder, open_folder() as outside:
        python = request.getfixturevalue("python_for_others") if options else sys.executable
        home = folder / "home"
        home.mkdir()
        (outside / "kept").write_text("kept")
        processors, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
        if options:
            for path in (home, outside, outside / "kept"):  # nobody's, so that only the confinement protects it
                os.chown(path, NOBODY, NOBODY)
        as_they_were = {path: metadata(path) for path in (outside, outside / "kept")}
        command = [python, "-P", "-c", SCRIPT, str(home), str(outside), str(os.getpid())]
        environment = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        done = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, check=False, **options
        )
        assert done.returncode == 0, done.stderr
        missing, found = json.loads(done.stdout)
        assert (outside / "kept").exists()
        assert as_they_were == {path: metadata(path) for path in as_they_were}
        assert (os.sched_getaffinity(0), os.sched_getscheduler(0)) == (processors, policy)
        yield missing, found


DONE = (
    *("socket pair", "thread", "process", "write to own folder", "move in own folder", "/dev/null", "read"),
    *("own limits", "own priority", "own processors", "copy"),
)
BY_SECCOMP = (
    *("inet", "inet6", "netlink", "unix", "user namespace", "ptrace"),
    *("limits of the trusted side", "limits of the runner", "priority of the runner", "priority of the user"),
    *("priority of the runner's reads", "pages of the runner"),
    *("shared memory of System V", "semaphore of System V", "queue of System V", "queue of POSIX"),
)
BY_LANDLOCK = (
    *("write to another case's folder", "write outside", "remove outside", "truncate outside", "shared memory"),
    *("environment of the runner", "environment of the trusted side"),
)


def test_a_confined_process(trials: tuple[list[str], dict[str, str]]) -> None:
    missing, found = trials
    lacking = " ".join(missing)
    assert {name: found[name] for name in DONE} == dict.fromkeys(DONE, "done")
    assert found["own environment"] == "done"
    assert (found["CapEff"], found["CapPrm"], found["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert (found["more descriptors"], found["core dumps"], found["a mount"]) == ("EPERM", "EPERM", "EPERM")
    assert found["memory of the runner"] in ("EACCES", "EPERM")
    assert found["descriptors of the runner"] in ("EACCES", "EPERM")
    if "seccomp" not in lacking:
        assert {name: found[name] for name in BY_SECCOMP} == dict.fromkeys(BY_SECCOMP, "EPERM")
        assert (found["io_uring"], found["descriptor of the runner"], found["Seccomp"]) == ("ENOSYS", "ENOSYS", "2")
        assert {found[name] for name in ("attribute", "no attribute", "new attribute")} == {"ENOTSUP"}
    if "Landlock)" not in lacking:
        assert landlock_version() > 0
        assert {name: found[name] for name in BY_LANDLOCK} == dict.fromkeys(BY_LANDLOCK, "EACCES")
    if "Landlock" not in lacking:
        assert (found["signal to the runner"], found["signal to the trusted side"]) == ("EPERM", "EPERM")


def test_what_is_missing_is_told_and_the_rest_is_given_up(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from hfexport_bot.runner import confine
sys.modules["pyseccomp"] = None
confine.landlock_version = lambda: 0
print(*confine.confine(Path.cwd()), sep="\\n")
print(next(line for line in open("/proc/self/status") if line.startswith("NoNewPrivs")).split()[1])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    network, writes, no_new_privileges = done.stdout.splitlines()
    assert network.startswith("a network filter (seccomp: import of pyseccomp halted")
    assert writes == "write protection (the kernel has no Landlock)"
    assert no_new_privileges == "1"
