"""Runners get users of their own where root starts them, and nothing of a user's outlives its runner."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hfexport_bot.execution.isolation import Worker, worker
from tests.hfexport_bot.users import NOBODY, WORKERS, open_folder

as_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root on Linux can start a process as another user"
)
ENVIRONMENT = {"HFEXPORT_WORKERS": ",".join(map(str, WORKERS))}


class Home:
    """A runner's folder, and a Python that workers can start."""

    def __init__(self, folder: Path, python: str) -> None:
        self.python = python
        self.path = folder / "home"
        (self.path / "tmp").mkdir(parents=True, mode=0o700)
        self.path.chmod(0o700)


@pytest.fixture
def home(python_for_others: str) -> Iterator[Home]:
    with open_folder() as folder:
        yield Home(folder, python_for_others)


def of_user(uid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has just ended
            found += [process] if process.uids().real == uid and process.status() != psutil.STATUS_ZOMBIE else []
    return found


def test_without_an_account_a_runner_has_this_user(tmp_path: Path) -> None:
    with worker(tmp_path, [], environment={"HFEXPORT_WORKERS": "no-such-user,root,0,-1"}) as found:
        assert (found.uid, found.options) == (0, {})
    root = os.geteuid() == 0 and sys.platform == "linux"
    why = "there is no account no-such-user or root or 0 or -1" if root else "only root on Linux can give it one"
    assert found.missing.startswith(f"a user of its own ({why}")


@as_root
def test_one_of_a_list(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    with worker(home.path, [], python=home.python, environment=ENVIRONMENT) as first:
        assert first == Worker(WORKERS[0], WORKERS[0])
        assert {path.stat().st_uid for path in (home.path, home.path / "tmp")} == {WORKERS[0]}
        with worker(home.path, [], python=home.python, environment=ENVIRONMENT) as second:
            assert second == Worker(WORKERS[1], WORKERS[1])
            with worker(home.path, [], python=home.python, environment=ENVIRONMENT) as third:
                assert (
                    third.missing == f"a user of its own ({' and '.join(map(str, WORKERS))} are taken by other runners)"
                )
                assert home.path.stat().st_uid == 0
    with worker(home.path, [], python=home.python, environment=ENVIRONMENT) as again:
        assert again == first


@as_root
def test_a_user_that_cannot_read_what_it_needs(home: Home, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with worker(home.path, [str(tmp_path)], python=home.python, environment=ENVIRONMENT) as found:
        assert found.missing == f"a user of its own (other users cannot read {tmp_path})"
        assert home.path.stat().st_uid == 0
    with worker(home.path, [], python="/nowhere/python", environment=ENVIRONMENT) as found:
        why = "/nowhere/python cannot be started by other users: No such file or directory"
        assert found.missing == f"a user of its own ({why})"


DAEMONS = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(1)
        while True: time.sleep(600)
print(os.getuid(), os.getgid(), os.getgroups(), flush=True)
"""


@as_root
@pytest.mark.process
def test_a_users_processes_end_with_its_runner(home: Home) -> None:
    with worker(home.path, [], python=home.python, environment=ENVIRONMENT) as found:
        command = [home.python, "-c", DAEMONS]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd="/", **found.options)
        assert done.stdout.strip() == f"{WORKERS[0]} {WORKERS[0]} []"
        assert len(of_user(WORKERS[0])) == 3
        assert all(each.ppid() != os.getpid() for each in of_user(WORKERS[0]))
    assert of_user(WORKERS[0]) == []


@as_root
@pytest.mark.process
def test_a_user_that_forks_without_end_is_ended(home: Home) -> None:
    bomb = (
        "import os, time\nend = time.monotonic() + 60\nwhile time.monotonic() < end:\n    if os.fork(): os._exit(0)\n"
    )
    with worker(home.path, [], python=home.python, environment=ENVIRONMENT) as found:
        for _ in range(3):
            subprocess.run([home.python, "-c", bomb], check=True, cwd="/", **found.options)
    assert of_user(WORKERS[0]) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc")
@pytest.mark.process
def test_the_environment_is_closed_to_the_same_user(request: pytest.FixtureRequest) -> None:
    """Where there is no other user: the file that holds the first environment is not the user's any more."""
    script = """
import os, sys
from pathlib import Path
from hfexport_bot.execution.isolation import worker
home = Path(sys.argv[1])
before = os.stat("/proc/self/environ").st_uid
with worker(home, [], environment={"HFEXPORT_WORKERS": "none"}):
    print(before, os.stat("/proc/self/environ").st_uid)
    try:
        print(len(Path("/proc/self/environ").read_bytes()) > 0)
    except PermissionError:
        print("refused")
"""
    options = {"user": NOBODY, "group": NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}
    with open_folder() as folder:
        python = request.getfixturevalue("python_for_others") if options else sys.executable
        home = folder / "home"
        home.mkdir(mode=0o777)
        environment = {**{n: os.environ[n] for n in ("LD_LIBRARY_PATH",) if n in os.environ}, "GITHUB_TOKEN": "secret"}
        command = [python, "-P", "-c", script, str(home)]
        done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False, **options)
    assert done.stdout.split() == [str(NOBODY if options else os.getuid()), "0", "refused"], done.stderr
