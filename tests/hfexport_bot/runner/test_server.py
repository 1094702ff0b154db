"""Whatever a case does costs that case alone, and every case gets one outcome."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest
from pydantic import TypeAdapter

from hfexport_bot.schema import (
    MAX_LINE_BYTES,
    Backend,
    Batch,
    CaseFinished,
    CaseId,
    CaseRequest,
    Fatal,
    Fingerprint,
    Layout,
    Limits,
    Outcome,
    OutcomeKind,
    Ready,
    RunnerEvent,
    RunnerSetup,
    StageBegan,
)

#: A runner whose cases are the functions below, called by the case's class name in stage "trace".
SCRIPT = """
import ctypes, os, subprocess, sys, threading, time
from pathlib import Path
from hfexport_bot.runner import server
from hfexport_bot.runner.processes import stand_guard
from hfexport_bot.schema import Component, Fingerprint, Outcome, TensorParity

folder = Path(sys.argv[2])

def good():
    return Outcome(kind="pass", components=(Component(name="model", max_abs=0.5),))
def other_folder():
    Path("left here").write_text("x")
    return Outcome(kind="pass", notes=(os.getcwd(), os.environ["TMPDIR"]))
def hang(): time.sleep(600)
def busy():
    while True: pass
def sleep_in_c(): ctypes.CDLL(None).sleep(600)
def leave(): os._exit(0)
def leave_with_three(): os._exit(3)
def segfault(): ctypes.string_at(0)
def raise_error(): raise ValueError("bad \\ud800 value")
def system_exit(): sys.exit("no more")
def huge(): bytearray(50 << 30)
def reported_huge():
    return Outcome(kind="error", stage="run", message="RuntimeError: DefaultCPUAllocator: can't allocate memory: x")
def growing():
    kept = []
    while True: kept.append(b"x" * (8 << 20))
def killed(): os.kill(os.getpid(), 9)
def grandchildren():
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            (folder / f"grandchild-{os.getpid()}").touch()
            time.sleep(600)
    time.sleep(0.5)
    return good()
def orphan():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            (folder / f"grandchild-{os.getpid()}").touch()
            time.sleep(600)
        os._exit(0)
    time.sleep(0.3)
    os._exit(7)
def many_processes():
    while True:
        if os.fork() == 0: time.sleep(600)
def fill(name, size=64 << 20):
    file = os.open(name, os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(file, 0, size)
    return file
def much_disk():
    for number in range(4): os.close(fill(str(number)))
    time.sleep(600)
def much_nameless_disk():
    for number in range(4):
        fill(str(number))
        os.unlink(str(number))
    time.sleep(600)
def one_big_file(): fill("big", 250 << 20)
def many_files():
    for number in range(1100): Path(str(number)).touch()
    time.sleep(600)
def deep_folders():
    for _ in range(900):
        os.mkdir("abcdef")
        os.chdir("abcdef")
    Path("file").touch()
    time.sleep(600)
def garbage():
    for fd in range(3, 30):
        try: os.write(fd, b"no json\\n")
        except OSError: pass
    time.sleep(600)
def many_stages():
    for number in range(3000): on_stage(f"s{number}", "")
    return good()
def wide():
    outputs = tuple(TensorParity(name=f"output {n}" * 20, shape=(1,), dtype="float32") for n in range(5000))
    return Outcome(kind="parity", stage="parity", components=(Component(name="model", max_abs=2.0, outputs=outputs),))
def wider(): return Outcome(kind="pass", workarounds={f"workaround {n}" * 20: n for n in range(9000)})
def not_a_number(): return Outcome(kind="pass", stage_seconds={"trace": float("nan")})
def talk():
    print("::add-mask::everything", flush=True)
    os.write(2, b"to stderr\\n")
    return good()

def run_case(request, setup, report, report_fingerprint):
    global on_stage
    on_stage = report
    on_stage("source", "")
    on_stage("trace", "model")
    report_fingerprint(Fingerprint(eager="e", graphs=("g",)))
    return globals()[request.id.class_name]()

if len(sys.argv) > 3: stand_guard()
server.warm_up = lambda setup, backends: {"torch": "none"}
setup, batches = server.read_input(sys.stdin.buffer)
sys.exit(server.serve(setup, batches, server.EventStream(int(sys.argv[1])), run_case))
"""

LIMITS = Limits(wall_seconds=4.0, cpu_seconds=600, memory_bytes=400 << 20, files=1_000)


class Runner:
    """One runner process with SCRIPT, its input written; events are read until it ends."""

    def __init__(
        self, tmp_path: Path, names: list[str], *, guard: bool = False, jobs: int = 4, limits: Limits = LIMITS
    ) -> None:
        self.folder = tmp_path / "work"
        self.folder.mkdir()
        self.logs = tmp_path / "logs"
        setup = RunnerSetup(layout=Layout.INSTALLED, limits=limits, log_dir=str(self.logs))
        batch = Batch(requests=tuple(CaseRequest(id=case_id(name), module="m") for name in names), jobs=jobs)
        lines = "".join(f"{record.model_dump_json()}\n" for record in (setup, batch))
        (tmp_path / "input").write_text(lines)
        self.read_end, write_end = os.pipe()
        command = [sys.executable, "-c", SCRIPT, str(write_end), str(self.folder), *(["guard"] if guard else [])]
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        with (tmp_path / "input").open() as stdin, (tmp_path / "output").open("w") as output:
            self.process = subprocess.Popen(
                command, stdin=stdin, stdout=output, stderr=output, pass_fds=[write_end], env=environment
            )
        os.close(write_end)
        self.output = tmp_path / "output"

    def events(self) -> Generator[RunnerEvent, None, None]:
        with os.fdopen(self.read_end, "rb") as stream:
            for line in stream:
                assert len(line) <= MAX_LINE_BYTES
                yield TypeAdapter[RunnerEvent](RunnerEvent).validate_json(line)
        self.process.wait(timeout=10)

    def outcomes(self) -> dict[str, Outcome]:
        found = {}
        for event in self.events():
            if isinstance(event, CaseFinished):
                assert event.id.class_name not in found
                found[event.id.class_name] = event.outcome
        return found

    def grandchildren(self) -> list[int]:
        return [int(path.name.split("-")[1]) for path in self.folder.glob("grandchild-*")]


def case_id(name: str) -> CaseId:
    return CaseId(model="tiny", class_name=name, backend=Backend.ONNX)


def alive(pids: list[int]) -> list[int]:
    """Those still there after a moment's grace for the kernel."""
    deadline = time.monotonic() + 2
    while (left := [pid for pid in pids if psutil.pid_exists(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@pytest.mark.process
def test_every_way_to_fail_costs_one_case(tmp_path: Path) -> None:
    kinds = {
        "hang": OutcomeKind.TIMEOUT,
        "sleep_in_c": OutcomeKind.TIMEOUT,
        "leave": OutcomeKind.CRASH,
        "leave_with_three": OutcomeKind.CRASH,
        "segfault": OutcomeKind.CRASH,
        "killed": OutcomeKind.CRASH,
        "raise_error": OutcomeKind.ERROR,
        "system_exit": OutcomeKind.ERROR,
        "huge": OutcomeKind.OOM,
        "reported_huge": OutcomeKind.OOM,
        "growing": OutcomeKind.OOM,
        "garbage": OutcomeKind.ERROR,
        "not_a_number": OutcomeKind.ERROR,
        "good": OutcomeKind.PASS,
    }
    runner = Runner(tmp_path, list(kinds))
    outcomes = runner.outcomes()
    assert {name: outcome.kind for name, outcome in outcomes.items()} == kinds
    assert runner.process.returncode == 0

    lost = [name for name, kind in kinds.items() if kind in (OutcomeKind.TIMEOUT, OutcomeKind.CRASH)]
    assert {(outcomes[name].stage, outcomes[name].component) for name in lost} == {("trace", "model")}
    first = {name: outcome.message.splitlines()[0] for name, outcome in outcomes.items() if outcome.message}
    assert first["hang"] == "not done after 4 s, the limit of a case; it was in stage trace"
    assert first["leave"] == "exited with code 0 and without a result in stage trace"
    assert first["leave_with_three"] == "exited with code 3 and without a result in stage trace"
    assert first["segfault"] == "killed by SIGSEGV in stage trace"
    for name in ("segfault", "hang", "sleep_in_c", "leave"):  # faulthandler's stack
        assert f"in {name}\n" in outcomes[name].message
    assert "Stack" not in outcomes["killed"].message
    assert first["killed"].startswith("killed by SIGKILL in stage trace, not by its limits")
    assert "memory" not in first["killed"]
    assert first["raise_error"] == "ValueError: bad ? value"
    assert first["system_exit"] == "SystemExit: no more"
    assert first["huge"] == "MemoryError"
    assert first["growing"].endswith("GiB of memory; the limit is 0.4 GiB")
    assert first["garbage"].startswith("the case sent what is no result")
    assert "pydantic" not in outcomes["garbage"].message

    assert 4.0 <= outcomes["hang"].seconds < 8.0
    assert outcomes["hang"].stage_seconds["trace"] > 2.0
    assert outcomes["hang"].fingerprint == Fingerprint(eager="e", graphs=("g",))
    assert (outcomes["growing"].peak_memory_bytes or 0) > LIMITS.memory_bytes
    assert 10 << 20 < (outcomes["good"].peak_memory_bytes or 0) < 400 << 20
    assert outcomes["good"].components[0].max_abs == 0.5


@pytest.mark.process
def test_what_a_case_writes_is_limited_and_removed(tmp_path: Path) -> None:
    names = ["much_disk", "much_nameless_disk", "one_big_file", "many_files", "deep_folders", "good"]
    runner = Runner(tmp_path, names, jobs=3, limits=LIMITS.model_copy(update={"wall_seconds": 30.0}))
    outcomes = runner.outcomes()
    assert {name: outcome.kind.value for name, outcome in outcomes.items()} == {
        **dict.fromkeys(names, "error"),
        "good": "pass",
    }
    assert outcomes["much_disk"].message == "wrote 0.2 GiB to disk; the limit is 0.2 GiB"
    assert outcomes["much_nameless_disk"].message == "wrote 0.2 GiB to disk; the limit is 0.2 GiB"
    assert "File too large" in outcomes["one_big_file"].message
    assert outcomes["many_files"].message == "wrote more than 1,000 files, the limit of a case"
    assert outcomes["deep_folders"].message == "made a folder that is too deep or cannot be looked into: abcdef"
    assert list(runner.folder.iterdir()) == []


@pytest.mark.process
def test_cpu_time_is_limited(tmp_path: Path) -> None:
    runner = Runner(tmp_path, ["busy"], limits=Limits(wall_seconds=60.0, cpu_seconds=1))
    outcome = runner.outcomes()["busy"]
    assert (outcome.kind, outcome.stage) == (OutcomeKind.TIMEOUT, "trace")
    said, _, where = outcome.message.partition("\n")
    assert said == "used 1 s of CPU time, the limit of a case; it was in stage trace"
    assert "in busy\n" in where


@pytest.mark.process
def test_processes_that_a_case_leaves_behind(tmp_path: Path) -> None:
    patient = LIMITS.model_copy(update={"wall_seconds": 30.0})  # on a busy machine a fork bomb grows slowly
    runner = Runner(tmp_path, ["grandchildren", "orphan", "many_processes", "good"], jobs=2, limits=patient)
    outcomes = runner.outcomes()
    assert outcomes["grandchildren"].kind is OutcomeKind.PASS
    said = outcomes["orphan"].message.splitlines()
    assert said[0] == "exited with code 7 and without a result in stage trace"
    assert said[2].endswith("in orphan")
    assert outcomes["many_processes"].kind in (OutcomeKind.CRASH, OutcomeKind.OOM)
    assert outcomes["good"].kind is OutcomeKind.PASS
    assert len(runner.grandchildren()) == 6
    assert alive(runner.grandchildren()) == []


@pytest.mark.process
def test_events_folders_and_logs(tmp_path: Path) -> None:
    runner = Runner(tmp_path, ["talk", "other_folder", "many_stages", "wide", "wider"], jobs=1)
    events = list(runner.events())
    assert events[0] == Ready(versions={"torch": "none"})
    talk = [event for event in events if not isinstance(event, (Ready, Fatal)) and event.id.class_name == "talk"]
    assert [(event.stage, event.component) for event in talk if isinstance(event, StageBegan)] == [
        ("source", ""),
        ("trace", "model"),
    ]
    outcomes = {event.id.class_name: event.outcome for event in events if isinstance(event, CaseFinished)}
    log = runner.logs / "tiny--talk--onnx--dynamic--forward.log"
    assert log.read_text() == "::add-mask::everything\nto stderr\n"
    assert runner.output.read_text() == ""

    place, temporary = outcomes["other_folder"].notes
    assert place == temporary
    assert not Path(place).exists()
    assert list(runner.folder.iterdir()) == []

    assert outcomes["many_stages"].kind is OutcomeKind.PASS
    assert sum(isinstance(event, StageBegan) for event in events) < 1_100

    assert (outcomes["wide"].kind, outcomes["wide"].components[0].max_abs) == (OutcomeKind.PARITY, 2.0)
    assert outcomes["wide"].components[0].outputs == ()
    assert outcomes["wide"].notes[0].startswith("details of the components were cut: the result was ")
    assert outcomes["wider"].kind is OutcomeKind.ERROR
    assert "too long" in outcomes["wider"].message


@pytest.mark.process
@pytest.mark.parametrize("end", ["runner killed", "guard told to end", "nobody reads"])
def test_no_process_survives_the_runner(tmp_path: Path, end: str) -> None:
    runner = Runner(tmp_path, ["grandchildren", "hang", "hang"], guard=True)
    events = runner.events()
    while len(runner.grandchildren()) < 5:
        next(events)
        time.sleep(0.05)
    family = psutil.Process(runner.process.pid).children(recursive=True)
    assert len(family) >= 7
    if end == "runner killed":
        family[0].kill()
    elif end == "guard told to end":
        runner.process.terminate()
    else:
        events.close()
    runner.process.wait(timeout=10)
    expected = {"runner killed": 128 + signal.SIGKILL, "guard told to end": 128 + signal.SIGTERM, "nobody reads": 1}
    assert runner.process.returncode == expected[end]
    assert alive([process.pid for process in family]) == []


@pytest.mark.process
@pytest.mark.parametrize("line", ["", "{}\n"])
def test_input_that_is_no_setup(line: str) -> None:
    read_end, write_end = os.pipe()
    command = [sys.executable, "-P", "-m", "hfexport_bot.runner", "--events-fd", str(write_end)]
    done = subprocess.run(command, input=line, text=True, capture_output=True, pass_fds=[write_end], check=False)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        (event,) = [json.loads(line) for line in stream]
    assert done.returncode == 1
    assert event["type"] == "fatal"
    assert event["message"].startswith("the runner cannot start: ")


@pytest.mark.process
def test_input_that_is_no_batch(tmp_path: Path) -> None:
    (tmp_path / "input").write_text('{"layout": "installed"}\n{"requests": []}\n{"id": "x"}\n')
    read_end, write_end = os.pipe()
    with (tmp_path / "input").open() as stdin:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(write_end), str(tmp_path)],
            stdin=stdin,
            pass_fds=[write_end],
            check=False,
        )
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        events = [json.loads(line) for line in stream]
    assert done.returncode == 1
    assert [event["type"] for event in events] == ["ready", "fatal"]
    assert events[1]["message"].startswith("the runner was sent what is no batch: ")


@pytest.mark.process
def test_a_tree_that_does_not_import_is_fatal(tmp_path: Path) -> None:
    (tmp_path / "src/transformers").mkdir(parents=True)
    (tmp_path / "src/transformers/__init__.py").write_text("import no_such_module")
    script = (
        "import sys; from hfexport_bot.runner import server; from hfexport_bot.schema import *\n"
        "setup = RunnerSetup(layout='transformers', tree=sys.argv[2])\n"
        "request = CaseRequest(id='t/A/onnx/dynamic/forward', module='m')\n"
        "sys.exit(server.serve(setup, [Batch(requests=[request])], server.EventStream(int(sys.argv[1])), None))"
    )
    read_end, write_end = os.pipe()
    command = [sys.executable, "-P", "-c", script, str(write_end), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, pass_fds=[write_end], check=False)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        (event,) = [json.loads(line) for line in stream]
    assert done.returncode == 1
    assert event == {
        "type": "fatal",
        "message": f"the transformers of {tmp_path} does not import: ModuleNotFoundError: "
        "No module named 'no_such_module'; --install gives it the versions it asks for",
    }
