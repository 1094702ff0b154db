"""The hostile pull request: its models try what code under test must not be able to do, in the real action."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from markdown_it import MarkdownIt

from hfexport_bot.schema import CaseReport, Report
from tests.hfexport_bot.small_models import SOUND, repository_of
from tests.hfexport_bot.users import NOBODY, WORKERS, open_folder

pytestmark = [
    pytest.mark.export,
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux confines what runs"),
]

SECRET = "ghs_0123456789thesecret"
MARKUP = "](javascript:alert(1)) @everyone <img src=x>"
#: The argument of the daemons, by which they are found.
SLEEP = "86399.25"

#: What each model does in its forward, before it computes anything.
ATTACKS = {
    # looks for a token, for a way out, and for something to break; tells what came of it in an error
    "Thief": """
import ctypes, json, os, resource, signal, socket
from pathlib import Path

def attempt(trial):
    try:
        return f"DONE {trial()}"
    except OSError as error:
        return type(error).__name__

def environments():
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            found.append(attempt((place / "environ").read_bytes))
    return [text for text in found if "SECRET" in text]

def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "SLEEP"])
        os._exit(0)
    return "started"

def mode_of_own_code():
    before = os.stat(__file__)
    os.chmod(__file__, 0)
    os.utime(__file__, (1, 1))
    return os.stat(__file__) == before

def limits_of_others():
    found, pid = set(), os.getppid()
    while pid > 1:
        found.add(attempt(lambda: resource.prlimit(pid, resource.RLIMIT_CPU)))
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return sorted(found)

def left_behind():
    libc = ctypes.CDLL(None, use_errno=True)
    return [libc.shmget(0, 4096, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600)]

def steal():
    print("\\n::set-output name=conclusion::success", flush=True)
    print("\\n::add-mask::regression", flush=True)
    print(dict(os.environ), flush=True)
    raise RuntimeError(json.dumps({
        "variables": [name for name in os.environ if name.startswith(("GITHUB", "INPUT", "ACTIONS", "RUNNER", "HFEX"))],
        "environments": environments(),
        "internet": attempt(lambda: socket.create_connection(("127.0.0.1", PORT)).close()),
        "docker": attempt(lambda: socket.socket(socket.AF_UNIX).connect("PLACE/docker.sock")),
        "outside": attempt(lambda: Path("PLACE/written").write_text("x")),
        "outputs": attempt(lambda: open("PLACE/outputs", "a").write("conclusion=success")),
        "own code": attempt(lambda: Path(__file__).chmod(0o644) or Path(__file__).write_text("x")),
        "runner": attempt(lambda: os.kill(os.getppid(), signal.SIGKILL)),
        "own mode": mode_of_own_code(),
        "limits": limits_of_others(),
        "left": left_behind(),
        "daemon": daemon(),
    }))
""",
    # says what came of another case, and that its own passed
    "Forger": """
import json, os
from pathlib import Path

def forge():
    other = "modeling_good/GoodModel/dynamo/dynamic/forward"
    lines = {"type": "outcome", "id": other, "outcome": {"kind": "error"}}, {"outcome": {"kind": "pass"}}
    data = b"".join(json.dumps(line).encode() + b"\\n" for line in lines)
    parents = (Path("/proc") / str(os.getppid()) / "fd" / str(number) for number in range(64))
    for place in [*Path("/proc/self/fd").iterdir(), *parents]:
        try:
            with open(place, "wb", buffering=0) as stream: stream.write(data)
        except OSError: pass
    os._exit(0)
""",
    "Half": """
import os

def half():
    for fd in range(3, 64):
        try: os.write(fd, b'{"outcome": {"kind": "pa')
        except OSError: pass
    os._exit(0)
""",
    "Flood": """
import os

def flood():
    for fd in [1, *range(3, 64)]:
        try:
            for _ in range(100): os.write(fd, b"x" * (1 << 20))
        except OSError: pass
    os._exit(0)
""",
    "Markup": """
def markup():
    raise type("MARKUP", (Exception,), {})("MARKUP\\n::error::MARKUP\\n\\n## MARKUP\\n::add-mask::regression")
""",
}  # fmt: skip
CALLS = {
    "Thief": "steal()",
    "Forger": "forge()",
    "Half": "half()",
    "Flood": "flood()",
    "Markup": "markup()",
    "Good": "",
}


@dataclass
class Place:
    """A repository and what lies around it, with a token that only the action has."""

    root: Path
    python: str
    with_users: bool
    options: dict[str, Any]
    listener: socket.socket

    def files(self, hostile: bool, names: tuple[str, ...]) -> dict[str, str]:
        values = {"PORT": str(self.listener.getsockname()[1]), "PLACE": str(self.root), "SECRET": SECRET[:-6]}
        values |= {"SLEEP": SLEEP, "MARKUP": MARKUP}
        preambles = {name: ATTACKS.get(name, "") for name in names}
        for key, value in values.items():
            preambles = {name: own.replace(key, value) for name, own in preambles.items()}
        calls = {name: CALLS[name] if hostile and CALLS[name] else f"pass  # {hostile}" for name in names}
        bodies = {name: f"{call}\n        {SOUND}".replace("MARKUP", MARKUP) for name, call in calls.items()}
        return repository_of(bodies, preambles, "reruns: 0\n")

    def act(self, repository: Path, sha: str, **inputs: str) -> tuple[subprocess.CompletedProcess[str], Report]:
        """What the action said and reported."""
        environment = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ} | {
            "HOME": str(self.root / "user"),
            "TMPDIR": str(self.root / "tmp"),
            "OMP_NUM_THREADS": "1",
            "HFEXPORT_WORKERS": ",".join(map(str, WORKERS)),
            "GITHUB_TOKEN": SECRET,
            "INPUT_TOKEN": SECRET,
            "ACTIONS_RUNTIME_TOKEN": SECRET,
            "GITHUB_OUTPUT": str(self.root / "outputs"),
            "GITHUB_STEP_SUMMARY": str(self.root / "summary"),
            "GITHUB_EVENT_NAME": "workflow_dispatch",
            "GITHUB_EVENT_PATH": str(self.root / "event.json"),
            "GITHUB_REPOSITORY": "octo/zoo",
            "GITHUB_SHA": sha,
            "INPUT_MODE": "run",
            "INPUT_BACKENDS": "dynamo",
            "INPUT_OUT": str(self.root / "out"),
            **{f"INPUT_{name.upper()}": value for name, value in inputs.items()},
        }
        done = subprocess.run(
            [self.python, "-P", "-m", "hfexport_bot", "action"],
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            **self.options,
        )
        report = self.root / "out" / "report.json"
        assert report.exists(), done.stderr
        return done, Report.model_validate_json(report.read_text())


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """As the user of the tests, with users for the runners where that is root; or as the user without rights."""
    python, options = None, {}
    if request.param == "nobody":
        if os.geteuid() != 0:
            pytest.skip("the tests are not root's: this user is tried already")
        python = request.getfixturevalue("python_for_others")
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": ()}
    elif os.geteuid() == 0:
        python = request.getfixturevalue("others_python")
    with open_folder() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        (folder / "event.json").write_text("{}")
        for path in (folder, folder / "user", folder / "tmp"):
            path.mkdir(exist_ok=True)
            path.chmod(0o777)
        yield Place(folder, python or sys.executable, python is not None and not options, options, listener)


def by_name(report: Report) -> dict[str, CaseReport]:
    return {case.id.class_name.removesuffix("Model"): case for case in report.cases}


def daemons() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            found += [process] if SLEEP in process.cmdline() else []
        except psutil.Error:
            continue
    return found


def require_nothing_stolen(case: CaseReport, report: Report, place: Place) -> None:
    """What the thief tells is that it got nothing; where this machine lacks a protection, the report says so."""
    told = json.loads(case.message.partition(": ")[2] if case.message.startswith("RuntimeError") else case.message)
    lacking = " ".join(report.notes)
    assert (told["variables"], told["environments"], told["daemon"]) == ([], [], "started")
    if "network filter" not in lacking:
        assert (told["internet"], told["docker"]) == ("PermissionError", "PermissionError")
        assert (told["own mode"], told["limits"], told["left"]) == (True, ["PermissionError"], [-1, -1, -1])
    if "write protection" not in lacking:
        assert {told[name] for name in ("outside", "outputs", "own code")} == {"PermissionError"}
        assert not (place.root / "written").exists()
    if "from one another" not in lacking:
        assert told["runner"] == "PermissionError"
    assert daemons() == []


@pytest.mark.parametrize("place", ["this user"], indirect=True)
def test_the_hostile_pull_request(place: Place, make_repository: Any, tmp_path: Path) -> None:
    names = ("Good", *ATTACKS)
    repository = make_repository("hostile")
    repository.commit(place.files(False, names))
    repository.git("checkout", "-q", "-b", "topic")
    head = repository.commit(place.files(True, names))
    done, report = place.act(repository.path, head, base="main")
    assert done.returncode == 0, done.stderr
    cases = by_name(report)

    # each costs its own case only, and the report says what was refused
    assert {name: case.verdict.value for name, case in cases.items()} == {
        "Good": "unchanged",
        **dict.fromkeys(ATTACKS, "regression"),
    }
    require_nothing_stolen(cases["Thief"], report, place)
    assert cases["Forger"].message.startswith("the case sent what is no result")
    assert cases["Half"].message.startswith(
        ("exited with code 0 and without a result", "the case sent what is no result")
    )
    assert cases["Flood"].message.startswith("the case's result is too long to be sent")
    assert all(case.base is not None and case.base.kind == "pass" for case in cases.values())
    assert ("a user of its own" in " ".join(report.notes)) is not place.with_users

    # nothing leaks, nothing is a command to GitHub
    outputs, summary = (place.root / "outputs").read_text(), (place.root / "summary").read_text()
    written = [path.read_text(errors="replace") for path in (place.root / "out").rglob("*") if path.is_file()]
    assert not any(SECRET in text for text in [done.stdout, done.stderr, outputs, summary, *written])
    lines = (done.stdout + done.stderr).splitlines()
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    assert outputs.count("conclusion") <= 1
    assert all(len(text) < 33 << 20 for text in written)

    # nothing pings or links
    for markdown in (summary, (place.root / "out" / "report.md").read_text()):
        assert "everyone" in markdown
        tokens = [
            each
            for token in MarkdownIt("commonmark").enable("table").parse(markdown)
            for each in (token, *(token.children or ()))
        ]
        assert not {"link_open", "image", "html_inline"} & {token.type for token in tokens}
        prose = " ".join(token.content for token in tokens if token.type == "text")
        html = " ".join(token.content for token in tokens if token.type == "html_block")
        for text in (prose, re.sub(r"<code>[^<]*</code>", "", html)):
            assert "everyone" not in text
            assert "javascript" not in text
        assert "<img" not in html


@pytest.mark.parametrize("place", ["nobody"], indirect=True)
def test_a_thief_where_there_is_one_user_only(place: Place) -> None:
    repository = place.root / "repository"
    for name, text in place.files(True, ("Thief",)).items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    done, report = place.act(repository, "a" * 40, models="modeling_thief.py")
    (case,) = report.cases
    require_nothing_stolen(case, report, place)
    assert "a user of its own (only root on Linux can give it one)" in " ".join(report.notes)
    assert SECRET not in done.stdout + done.stderr + (place.root / "out" / "report.json").read_text()
