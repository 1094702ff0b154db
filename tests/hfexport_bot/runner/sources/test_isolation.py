"""The author's tests asked in a fork: what they do to their process costs one try."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.process

#: Forks a process for each of the functions below, which is asked as a test would be, and writes what comes of it.
SCRIPT = """
import ctypes, json, os, signal, sys, time
from pathlib import Path
import torch
from hfexport_bot.runner.sources import isolation
from hfexport_bot.runner.sources.cases import ModelCase, Unavailable
from hfexport_bot.schema import Limits, Source, SourceTry, UnavailableCause

folder = Path(sys.argv[1])
changed = []

def case(*tried): return ModelCase(torch.nn.Identity(), {}, tried=(*tried, SourceTry(source="model tests", name="B")))

def first_does(what):
    def ask(failed, on_ask):
        if "A" not in failed:
            on_ask("A")
            changed.append("A")
            what()
        on_ask("B")
        return case(*failed.values())
    return ask

def forever():
    while True:
        try: time.sleep(600)
        except BaseException: pass
def with_children():
    for _ in range(3):
        if os.fork() == 0:
            (folder / f"child-{os.getpid()}").touch()
            forever()
    forever()
def garbage():
    for fd in range(3, 30):
        try: os.write(fd, b"no json\\n")
        except OSError: pass
    time.sleep(600)
def only_hang(failed, on_ask):
    on_ask("A")
    forever()
def refuse(failed, on_ask):
    tried = SourceTry(source="model tests", name="A", cause="invalid config", message="odd")
    raise Unavailable(UnavailableCause.INVALID_CONFIG, "odd", (tried,))
def silent(failed, on_ask):
    os._exit(5)
def too_much():
    try: bytearray(2 << 30)
    except MemoryError: os._exit(9)
    os._exit(10)

ASKED = {
    "good": lambda failed, on_ask: case(),
    "none": lambda failed, on_ask: None,
    "refuse": refuse,
    "hang": first_does(forever),
    "hang_again": first_does(forever),
    "leave": first_does(lambda: os._exit(3)),
    "error": first_does(lambda: 1 / 0),
    "segfault": first_does(lambda: ctypes.string_at(0)),
    "killed": first_does(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "killed_group": first_does(lambda: os.killpg(0, signal.SIGKILL)),
    "odd_signal": first_does(lambda: os.kill(os.getpid(), signal.SIGRTMIN + 6)),
    "with_children": first_does(with_children),
    "garbage": first_does(garbage),
    "only_hang": only_hang,
    "silent": silent,
    "too_much": first_does(too_much),
    "crash_later": lambda failed, on_ask: case(),
    "leave_later": lambda failed, on_ask: case(),
}

def be(name):
    began, asking = time.monotonic(), os.getpid()
    limits = Limits(wall_seconds=30 if name == "good" else 3.0, memory_bytes=2 << 30)
    memory = folder / "memory" if name.startswith("hang") else None
    told = {}
    try:
        found = isolation.ask_apart(ASKED[name], limits, memory)
        told["tried"] = [[each.name, each.cause, each.message] for each in found.tried] if found else None
    except Unavailable as error:
        told |= {"cause": error.cause, "message": error.message, "tried": [each.name for each in error.tried]}
    told |= {"forked": os.getpid() != asking, "changed": changed, "seconds": time.monotonic() - began}
    (folder / f"{name}.json").write_text(json.dumps(told))
    if name == "crash_later": ctypes.string_at(0)
    if name == "leave_later": os._exit(4)

codes = {}
for name in ASKED:
    pid = os.fork()
    if pid == 0:
        be(name)
        os._exit(0)
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
(folder / "codes.json").write_text(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("isolation")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # what kills its process group must not end this one
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, Any] = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
    found["children"] = [int(file.name.partition("-")[2]) for file in folder.glob("child-*")]
    found["memory"] = [file.name for file in Path(folder, "memory").iterdir()]
    return found


def test_the_fork_goes_on_with_a_case(told: dict[str, Any]) -> None:
    assert told["good"]["forked"]
    assert told["good"]["tried"] == [["B", None, ""]]


def test_without_a_case_the_process_that_forked_goes_on(told: dict[str, Any]) -> None:
    assert (told["none"]["forked"], told["none"]["tried"]) == (False, None)
    refused = told["refuse"]
    assert (refused["forked"], refused["cause"], refused["message"]) == (False, "invalid config", "odd")
    assert refused["tried"] == ["A"]


@pytest.mark.parametrize(
    ("name", "cause", "message"),
    [
        ("hang", "timeout", "A is not done after 1 s"),
        ("with_children", "timeout", "A is not done after 1 s"),
        ("leave", "unknown inputs", "A ends its process, with code 3"),
        ("error", "unknown inputs", "A ends its process, with code 1"),
        ("segfault", "unknown inputs", "A ends its process, by SIGSEGV"),
        ("killed", "unknown inputs", "A ends its process, by SIGKILL"),
        ("killed_group", "unknown inputs", "A ends its process, by SIGKILL"),
        ("odd_signal", "unknown inputs", "A ends its process, by signal 40"),
        ("garbage", "unknown inputs", "A writes where it should not"),
        ("too_much", "unknown inputs", "A ends its process, with code 9"),
    ],
)
def test_what_a_test_does_to_its_process_costs_that_try(
    name: str, cause: str, message: str, told: dict[str, Any]
) -> None:
    assert told[name]["tried"] == [["A", cause, message], ["B", None, ""]]
    assert told[name]["changed"] == []  # the fork that goes on is one of a process that never asked A


def test_what_hung_is_not_waited_for_by_another_case(told: dict[str, Any]) -> None:
    assert told["memory"] == ["A.json"]
    assert told["hang_again"]["tried"][0] == ["A", "timeout", "A is not done after 1 s, found by another case"]
    assert told["hang"]["seconds"] > 1.0 > told["hang_again"]["seconds"]


def test_where_only_failures_are_left_the_next_source_is_asked(told: dict[str, Any]) -> None:
    assert told["only_hang"] | {"seconds": 0} == {
        "cause": "timeout",
        "message": "A is not done after 1 s",
        "tried": ["A"],
        "forked": False,
        "changed": [],
        "seconds": 0,
    }
    assert told["only_hang"]["seconds"] < 3.0
    assert told["silent"]["message"].endswith("ends its process, with code 5")


def test_the_process_that_forked_ends_as_the_fork_does(told: dict[str, Any]) -> None:
    assert (told["codes"]["good"], told["codes"]["leave_later"], told["codes"]["crash_later"]) == (0, 4, -11)


def test_nothing_is_left_running(told: dict[str, Any]) -> None:
    assert len(told["children"]) == 3
    deadline = time.monotonic() + 5.0
    while (left := [pid for pid in told["children"] if psutil.pid_exists(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
