"""Every case gets an outcome, whatever the runner does, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hfexport_bot.execution.client import Runners, RunResult, run_cases
from hfexport_bot.schema import (
    Backend,
    CaseFinished,
    CaseId,
    CaseRequest,
    Engine,
    Fatal,
    Layout,
    Limits,
    OutcomeKind,
    Ready,
    RunnerEvent,
    RunnerSetup,
    StageBegan,
)

pytestmark = pytest.mark.process

#: The real runner, but for its imports and its cases, which are the functions below.
SERVE = """
import ctypes, os, subprocess, sys, time
from hfexport_bot.runner import server
from hfexport_bot.runner.processes import stand_guard
from hfexport_bot.schema import Outcome

def good(): return Outcome(kind="pass")
def hang(): time.sleep(600)
def segfault(): ctypes.string_at(0)
def huge(): bytearray(50 << 30)
def leave(): os._exit(0)
def kill_runner():
    time.sleep(0.3)  # until the stage has been passed on
    os.kill(os.getppid(), 11)
    time.sleep(600)
def slow():
    time.sleep(1.0)
    return good()
def killed_before(): kill_runner()
def grandchild():
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(600)

def run_case(request, setup, on_stage, on_fingerprint):
    on_stage("trace", "model")
    return globals()[request.id.class_name.rstrip("0123456789")]()

stand_guard()
server.warm_up = lambda setup, backends: {"torch": "2"}
setup, batches = server.read_input(sys.stdin.buffer)
sys.exit(server.serve(setup, batches, server.EventStream(int(sys.argv[-1])), run_case))
"""

#: A runner that says whatever it likes: `say` writes a line, `outcome` and `stage` make one.
SAY = """
import json, os, sys, time
fd = int(sys.argv[-1])
setup, batch = (json.loads(sys.stdin.readline()) for _ in range(2))
ids = [request["id"] for request in batch["requests"]]
def say(event):
    data = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\\n"
    while data: data = data[os.write(fd, data):]
def ready(): say({"type": "ready", "versions": {"torch": "2"}})
def stage(id): say({"type": "stage", "id": id, "stage": "lower", "component": "decode"})
def outcome(id, kind="pass", **more): say({"type": "outcome", "id": id, "outcome": {"kind": kind, **more}})
"""


def case_id(name: str) -> CaseId:
    return CaseId(model="tiny", class_name=name, backend=Backend.ONNX)


class Client:
    """Runs cases with a script for a runner, in a temporary folder of its own, and keeps the events."""

    def __init__(self, temporary: Path) -> None:
        self.temporary = temporary
        self.events: list[RunnerEvent] = []

    def run(
        self,
        script: str,
        *names: str,
        wall: float = 20.0,
        warm_up: float = 60.0,
        grace: float = 20.0,
        cancelled: threading.Event | None = None,
        log_dir: Path | None = None,
        jobs: int = 1,
        told: Callable[[RunnerEvent], None] = lambda event: None,
    ) -> RunResult:
        limits = Limits(wall_seconds=wall, memory_bytes=1 << 30)
        log = str(log_dir) if log_dir else None
        result = run_cases(
            RunnerSetup(layout=Layout.INSTALLED, limits=limits, log_dir=log, jobs=jobs),
            [CaseRequest(id=case_id(name), module="m") for name in names],
            on_event=lambda event: (self.events.append(event), told(event))[0],
            cancelled=cancelled,
            command=[sys.executable, "-P", "-c", script],
            warm_up_seconds=warm_up,
            grace_seconds=grace,
        )
        ended = [case_id(name) for name in names]
        if cancelled is not None and cancelled.is_set():
            ended = [each for each in ended if each in result.outcomes]
        assert list(result.outcomes) == ended
        told = [event.id for event in self.events if isinstance(event, CaseFinished)]
        assert sorted(map(str, told)) == sorted(map(str, result.outcomes)), "each outcome is told once"
        assert list(self.temporary.iterdir()) == [], "no folder is left"
        return result

    def say(
        self, script: str, *names: str, wall: float = 20.0, warm_up: float = 60.0, grace: float = 20.0
    ) -> RunResult:
        return self.run(f"{SAY}\n{script}", *names, wall=wall, warm_up=warm_up, grace=grace)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return Client(temporary)


def kinds(result: RunResult) -> dict[str, str]:
    return {id_.class_name: str(outcome.kind) for id_, outcome in result.outcomes.items()}


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return held


# -- The real runner -------------------------------------------------------------------------------------------


def test_bad_cases_and_a_good_one_after_them(client: Client, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    result = client.run(SERVE, "hang", "leave", "segfault", "huge", "good", wall=1.0, log_dir=log_dir)
    expected = {"hang": "timeout", "leave": "crash", "segfault": "crash", "huge": "oom", "good": "pass"}
    assert kinds(result) == expected
    assert (result.versions, result.fatal) == ({"torch": "2"}, "")
    assert [event for event in client.events if isinstance(event, Ready)] == [Ready(versions={"torch": "2"})]
    stages = [event.stage for event in client.events if isinstance(event, StageBegan)]
    assert stages == ["source", "trace"] * 5
    assert {path.name for path in log_dir.iterdir()} >= {"runner.log", "tiny--good--onnx--dynamic--forward.log"}


def test_another_runner_takes_over(client: Client) -> None:
    result = client.run(SERVE, "good", "kill_runner", "good2")
    assert kinds(result) == {"good": "pass", "kill_runner": "crash", "good2": "pass"}
    outcome = result.outcomes[case_id("kill_runner")]
    assert (outcome.stage, outcome.component) == ("trace", "model")
    assert outcome.message.startswith("in stage trace: the runner was killed by SIGSEGV")
    ready = sum(isinstance(event, Ready) for event in client.events)
    assert ready == 3, "the one that it ended, one for the rest, and one that had nothing else"


def test_who_is_there_when_a_runner_dies_has_not_killed_it(client: Client) -> None:
    names = ("slow", "killed_before", "slow2", "good")
    result = client.run(SERVE, *names, jobs=2)
    assert kinds(result) == {**dict.fromkeys(names, "pass"), "killed_before": "crash"}


def test_a_runner_that_is_killed_from_outside_costs_no_case(client: Client) -> None:
    def end_runner(event: RunnerEvent) -> None:
        if isinstance(event, StageBegan) and event.stage == "trace" and event.id.class_name == "slow" and not killed:
            killed.extend(psutil.Process().children(recursive=True))
            for process in killed:
                process.kill()

    killed: list[psutil.Process] = []
    assert kinds(client.run(SERVE, "good", "slow", "good2", told=end_runner)) == {
        "good": "pass",
        "slow": "pass",
        "good2": "pass",
    }
    assert killed


def test_runners_are_not_started_for_ever(client: Client) -> None:
    result = client.run(SERVE, *(f"kill_runner{number}" for number in range(6)))
    assert set(kinds(result).values()) == {"crash"}
    assert sum(isinstance(event, Ready) for event in client.events) == 4
    begun = [outcome.message.startswith("in stage trace") for outcome in result.outcomes.values()]
    assert begun == [True] * 4 + [False] * 2
    assert result.outcomes[case_id("kill_runner5")].message.startswith("not begun: the runner was killed")


def test_a_runner_stays_warm_for_further_cases(client: Client) -> None:
    command = [sys.executable, "-P", "-c", SERVE]
    setup = RunnerSetup(layout=Layout.INSTALLED, jobs=2, limits=Limits(wall_seconds=20.0, memory_bytes=1 << 30))
    requests = [CaseRequest(id=case_id(name), module="m") for name in ("good", "segfault", "good2")]
    with Runners(command=command, grace_seconds=20.0) as runners:
        runners.prepare(setup)
        runners.prepare(setup.model_copy(update={"backends": (Backend.ONNX,), "engines": (Engine.REPO,)}))
        assert len(psutil.Process().children()) == 1
        first = runners(setup, requests, on_event=client.events.append)
        again = runners(setup.model_copy(update={"jobs": 1}), requests, on_event=client.events.append)
        assert kinds(first) == kinds(again) == {"good": "pass", "segfault": "crash", "good2": "pass"}
        assert again.versions == {"torch": "2"}
        killed = runners(setup, [CaseRequest(id=case_id("kill_runner"), module="m")], on_event=client.events.append)
        assert kinds(killed) == {"kill_runner": "crash"}
        assert kinds(runners(setup, requests[:1], on_event=client.events.append)) == {"good": "pass"}
    ready = [event for event in client.events if isinstance(event, Ready)]
    assert len(ready) == 3, "the one that was prepared, one for what ended it, and another after that"
    assert psutil.Process().children() == []
    assert list(client.temporary.iterdir()) == []


def test_cancelling_leaves_no_process(client: Client) -> None:
    cancelled = threading.Event()
    below: list[psutil.Process] = []

    def cancel() -> None:
        me = psutil.Process()
        # the guard, the runner, the case and its grandchild
        wait_for(lambda: len(me.children(recursive=True)) >= 4)
        below.extend(me.children(recursive=True))
        started.append(time.monotonic())
        cancelled.set()

    started: list[float] = []
    canceller = threading.Thread(target=cancel)
    canceller.start()
    result = client.run(SERVE, "good", "grandchild", "good2", cancelled=cancelled, wall=120.0)
    canceller.join()
    assert time.monotonic() - started[0] < 15, "nothing waits for the case, nor for a process that has to be killed"
    assert len(below) >= 4
    assert wait_for(lambda: not any(process.is_running() for process in below))
    assert kinds(result) == {"good": "pass"}, "the others had not ended"


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_trusted_side_is_the_end_of_all(tmp_path: Path, end: signal.Signals) -> None:
    script = (
        "import signal, sys\n"
        # A shell has its background jobs ignore SIGINT, and they hand that down.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from hfexport_bot.execution.client import run_cases\n"
        "from hfexport_bot.schema import CaseRequest, RunnerSetup\n"
        "request = CaseRequest(id='tiny/grandchild/onnx/dynamic/forward', module='m')\n"
        "command = [sys.executable, '-P', '-c', sys.argv[1]]\n"
        "run_cases(RunnerSetup(layout='installed'), [request], command=command)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    trusted = subprocess.Popen(
        [sys.executable, "-P", "-c", script, SERVE], env=environment, stderr=subprocess.PIPE, text=True
    )
    process = psutil.Process(trusted.pid)
    assert wait_for(lambda: len(process.children(recursive=True)) >= 4)
    below = process.children(recursive=True)
    trusted.send_signal(end)
    _, errors = trusted.communicate(timeout=60)
    assert wait_for(lambda: not any(process.is_running() for process in below))
    if end is signal.SIGINT:
        assert "KeyboardInterrupt" in errors
        assert list(tmp_path.iterdir()) == []


# -- A runner that cannot be trusted ---------------------------------------------------------------------------


def test_only_the_first_outcome_of_what_was_asked_counts(client: Client) -> None:
    script = """
ready(); stage("other/B/onnx/dynamic/forward"); outcome("other/B/onnx/dynamic/forward")
outcome(ids[0], "error"); outcome(ids[0], "pass"); stage(ids[0]); outcome(ids[1])
"""
    result = client.say(script, "a", "b")
    assert kinds(result) == {"a": "error", "b": "pass"}
    assert not any(isinstance(event, StageBegan) for event in client.events)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("b'no json\\n'", "the runner sent what is no event: Invalid JSON"),
        ("b'\\xff\\n'", "the runner sent what is no event: Invalid JSON"),
        ("b'[' * 500_000 + b'\\n'", "the runner sent what is no event: Invalid JSON"),
        ("{'type': 'pickle'}", "the runner sent what is no event: Input tag 'pickle'"),
        ("{'type': 'outcome', 'id': '../x', 'outcome': {'kind': 'pass'}}", "the runner sent what is no event"),
        ("{'type': 'outcome', 'id': ids[0], 'outcome': {'kind': 'fine'}}", "the runner sent what is no event"),
        ("{'type': 'ready'}", "the runner said twice that it is ready"),
        ("b'x' * (1 << 21)", "the runner sent a line of more than 1,048,576 bytes"),
        ("b'x' * (1 << 21) + b'\\n'", "the runner sent a line of more than 1,048,576 bytes"),
    ],
)
def test_what_is_no_event_ends_the_runner(client: Client, line: str, message: str) -> None:
    script = f"""
ready()
for id in ids:
    if "/b/" in id: stage(id); say({line}); time.sleep(600)
    outcome(id)
"""
    result = client.say(script, "a", "b", "c")
    outcomes = list(result.outcomes.values())
    # the second runner passes what the first had not begun; the third has "b" only, and breaks off as the first did
    assert kinds(result) == {"a": "pass", "b": "crash", "c": "pass"}
    assert (outcomes[1].stage, outcomes[1].component) == ("lower", "decode")
    assert outcomes[1].message.startswith(f"in stage lower: {message}")


def test_a_fatal_error_is_every_cases(client: Client) -> None:
    result = client.say('say({"type": "fatal", "message": "no such tree"}); time.sleep(600)', "a", "b")
    assert result.fatal == "no such tree"
    for outcome in result.outcomes.values():
        assert (outcome.kind, outcome.stage, outcome.message) == (OutcomeKind.ERROR, "source", "no such tree")
    assert client.events[0] == Fatal(message="no such tree")


def test_a_runner_that_stalls(client: Client) -> None:
    script = "ready()\nwhile True: stage(ids[0]); time.sleep(0.01)"  # stages without end are no progress
    result = client.say(script, "a", wall=0.3, grace=0.3)
    (outcome,) = result.outcomes.values()
    assert (outcome.kind, outcome.stage) == (OutcomeKind.TIMEOUT, "lower")
    assert outcome.message == "in stage lower: the runner gave no outcome for 0.6 s"


def test_a_runner_that_never_gets_ready(client: Client) -> None:
    result = client.say("time.sleep(600)", "a", "b", warm_up=0.5)
    assert kinds(result) == {"a": "timeout", "b": "timeout"}
    assert {outcome.message for outcome in result.outcomes.values()} == {"the runner was not ready after 0.5 s"}


def test_a_runner_that_dies_at_once_is_tried_twice(client: Client, tmp_path: Path) -> None:
    script = "print('torch is broken', file=sys.stderr); sys.exit(3)"
    result = client.run(f"{SAY}\n{script}", "a", "b", log_dir=tmp_path / "logs")
    assert kinds(result) == {"a": "crash", "b": "crash"}
    message = "not begun: the runner exited with code 3 before it was done"
    assert result.outcomes[case_id("a")].message.startswith(f"{message}\ntorch is broken")
    assert (tmp_path / "logs" / "runner.log").read_text() == "torch is broken\n" * 2


def test_what_a_runner_sees(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are told by how they lie to one another: of a version's text only so much is kept as a path may exceed."""
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    script = """
places = {name: os.path.relpath(os.environ[name], os.getcwd()) for name in ("HOME", "TMPDIR")}
given = str(os.path.samefile(os.path.dirname(os.getcwd()), PLACE))
seen = {**dict.fromkeys(os.environ, ""), **places, "given": given}
seen |= {"session": str(os.getsid(0) == os.getpid()), "path": str("" in sys.path)}
say({"type": "ready", "versions": seen}); outcome(ids[0])
""".replace("PLACE", repr(str(client.temporary)))
    seen = client.say(script, "a").versions
    assert "GITHUB_TOKEN" not in seen
    assert (seen["HOME"], seen["TMPDIR"], seen["given"]) == (".", "tmp", "True")
    assert (seen["session"], seen["path"]) == ("True", "False")


def test_nothing_to_run(client: Client) -> None:
    assert client.run("raise SystemExit(1)") == RunResult({})


def test_a_log_folder_that_cannot_be_written(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        client.run(SERVE, "good", log_dir=tmp_path / "file")
