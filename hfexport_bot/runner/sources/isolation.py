"""The author's tests are asked in a fork, so that a hang, an exit or a crash of theirs costs one try, not the case.

Where a case comes of it, the fork goes on with the model and inputs that it has, and the process that forked only waits
for its end and ends alike. Otherwise the fork is gone, and whatever the tests changed with it: the process that forked
goes on, and asks again without what failed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from pydantic import BaseModel, ValidationError

from hfexport_bot.runner import processes
from hfexport_bot.runner.sources.cases import ModelCase, Unavailable
from hfexport_bot.schema import MAX_LINE_BYTES, Limits, Name, Source, SourceTry, UnavailableCause

#: For one test file to be imported, and for one test class to make a case; less where the case itself has not three
#: times as long. All tries together have twice that.
MAX_SECONDS = 120.0
_SHARE_OF_CASE = 1 / 3
#: Of a case's memory, so that what comes after still has some.
_SHARE_OF_MEMORY = 1 / 2
_POLL_SECONDS = 0.1

#: Asks, without the test classes and files whose failures are given; tells the name of each as it begins.
Ask = Callable[[Mapping[str, SourceTry], Callable[[str], None]], ModelCase | None]


class _Said(BaseModel):
    """What the fork tells: what it begins to ask, and at the end, who was ``tried`` and whether there is a case."""

    asking: Name = ""
    tried: tuple[SourceTry, ...] | None = None
    found: bool = False


class _Failed(Exception):
    """The fork came to no answer."""

    def __init__(self, cause: UnavailableCause, how: str, asking: str) -> None:
        super().__init__(how)
        self.failure = SourceTry(source=Source.MODEL_TESTS, name=asking, cause=cause, message=f"{asking} {how}")


def ask_apart(ask: Ask, limits: Limits, memory: Path | None = None) -> ModelCase | None:
    """What ``ask`` returns or raises, asked in forks of this process, which must have nothing else to do.

    Args:
        limits: those of the whole case, of which this takes a part.
        memory: a folder for what hung, which is then not asked again by other cases.

    Raises:
        Unavailable: ``ask`` raised it, or only failures were left; its ``tried`` has these too.
    """
    seconds = min(MAX_SECONDS, limits.wall_seconds * _SHARE_OF_CASE)
    deadline = time.monotonic() + 2 * seconds
    failures = _recall(memory)
    while True:
        try:
            said = _fork(ask, failures, limits, min(seconds, deadline - time.monotonic()))
        except _Failed as error:
            failure, again = error.failure, error.failure.name in failures
            failures.setdefault(failure.name, failure)
            if failure.cause is UnavailableCause.TIMEOUT:
                _remember(memory, failure)
            if again or not failure.name or time.monotonic() >= deadline:
                raise _unavailable(tuple(failures.values())) from error
        else:
            if isinstance(said, ModelCase):
                return said
            if said.tried:
                raise _unavailable(said.tried)
            return None


def _unavailable(tried: tuple[SourceTry, ...]) -> Unavailable:
    return Unavailable(tried[-1].cause or UnavailableCause.UNKNOWN_INPUTS, tried[-1].message, tried)


def _fork(ask: Ask, failures: Mapping[str, SourceTry], limits: Limits, seconds: float) -> ModelCase | _Said:
    """The case, in the fork; what the fork told, in the process that forked, where there is none."""
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        os.setpgrp()  # a test that kills its process group kills what it has started
        processes.die_with_parent(parent)
        return _be_fork(ask, failures, limits, write_end)
    os.close(write_end)
    try:
        said = _follow(pid, read_end, seconds)
    except BaseException:
        _end(pid)
        raise
    finally:
        os.close(read_end)
    if said.found:
        _end_as(pid)
    _end(pid)
    return said


# -- In the fork -----------------------------------------------------------------------------------------------


def _be_fork(ask: Ask, failures: Mapping[str, SourceTry], limits: Limits, pipe: int) -> ModelCase:
    """The case; ends this process where there is none."""

    def tell(said: _Said) -> None:
        os.write(pipe, said.model_dump_json().encode() + b"\n")

    try:
        with processes.less_address_space(int(limits.memory_bytes * _SHARE_OF_MEMORY)):
            case = ask(failures, lambda name: tell(_Said(asking=name)))
        tell(_Said(tried=case.tried if case else (), found=case is not None))
        if case is not None:
            os.close(pipe)
            return case
        code = 0
    except Unavailable as error:
        tell(_Said(tried=error.tried))
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# -- In the process that forked --------------------------------------------------------------------------------


def _follow(pid: int, pipe: int, seconds: float) -> _Said:
    """What the fork says at its end. Each thing that it asks has ``seconds``. Raises ``_Failed``."""
    asking, buffer, began = "", b"", time.monotonic()
    while True:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        readable, _, _ = select.select([pipe], [], [], 0 if ended else _POLL_SECONDS)
        data = os.read(pipe, 1 << 16) if readable else b""
        *lines, buffer = (buffer + data).split(b"\n")
        try:
            for said in map(_Said.model_validate_json, lines):
                if said.tried is not None:
                    return said
                asking, began = said.asking, time.monotonic()
        except ValidationError as error:
            raise _Failed(UnavailableCause.UNKNOWN_INPUTS, "writes where it should not", asking) from error
        if len(buffer) > MAX_LINE_BYTES:
            raise _Failed(UnavailableCause.UNKNOWN_INPUTS, "writes where it should not", asking)
        if ended and not data:
            raise _Failed(UnavailableCause.UNKNOWN_INPUTS, _how_it_ended(ended.si_code, ended.si_status), asking)
        if time.monotonic() - began > seconds:
            raise _Failed(UnavailableCause.TIMEOUT, f"is not done after {seconds:.3g} s", asking)
        if readable and not data and not ended:  # it has closed its end
            time.sleep(_POLL_SECONDS)


def _how_it_ended(code: int, status: int) -> str:
    if code == os.CLD_EXITED:
        return f"ends its process, with code {status}"
    return f"ends its process, by {processes.signal_name(status)}"


def _end(pid: int) -> None:
    """Kill a fork and what it has started, and wait for it."""
    processes.kill({pid, *processes.descendants(pid, processes.process_table())})
    os.waitpid(pid, 0)


def _end_as(pid: int) -> NoReturn:
    """Wait for the fork, and end as it does: what it prints, sends and uses is this process's."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        faulthandler.disable()  # the stack to tell is the fork's, which has told it
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(code, 1) if code < 0 else code)


# -- What hung, for other cases --------------------------------------------------------------------------------


def _remember(memory: Path | None, failure: SourceTry) -> None:
    if memory is not None and failure.name.isidentifier():
        memory.mkdir(parents=True, exist_ok=True)
        (memory / f"{failure.name}.json").write_text(failure.model_dump_json())


def _recall(memory: Path | None) -> dict[str, SourceTry]:
    found = {}
    for file in sorted(memory.glob("*.json")) if memory is not None else ():
        with contextlib.suppress(OSError, ValidationError):  # another case is writing it
            failure = SourceTry.model_validate_json(file.read_text())
            found[file.stem] = failure.model_copy(update={"message": f"{failure.message}, found by another case"})
    return found
