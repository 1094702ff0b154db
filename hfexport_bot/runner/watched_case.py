"""A running case as its parent sees it: what it sends, what it uses, and what its end makes of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from hfexport_bot.folders import OnDisk, on_disk
from hfexport_bot.runner import processes
from hfexport_bot.schema import (
    MAX_LINE_BYTES,
    MAX_MESSAGE_CHARS,
    CaseRequest,
    Fingerprint,
    Limits,
    Name,
    Outcome,
    OutcomeKind,
    first_problem,
)

#: Of a log that are read for the stack of a crash.
_LOG_TAIL_BYTES = 1 << 18
_MAX_STAGE_EVENTS = 1_000
_MAX_PROCESSES = 256
#: Asks a case for its stack, and for how long an answer is waited for.
WHERE_SIGNAL = signal.SIGUSR1
_ANSWER_SECONDS = 1.0
#: Begins the stack that faulthandler writes when asked.
STACK_TITLE = "Stack (most recent call first):"
#: Seconds between two looks at what a case has written, beside this many times what a look takes.
_DISK_SECONDS = 1.0
_DISK_SHARE = 10


class Message(BaseModel):
    """What a case sends to the parent: a stage that begins, its fingerprint so far, or its outcome."""

    model_config = ConfigDict(extra="forbid")

    stage: Name = ""
    component: Name = ""
    fingerprint: Fingerprint | None = None
    outcome: Outcome | None = None


class WatchedCase:
    """A running case: its process, its pipe, and what is known of it so far."""

    def __init__(
        self,
        request: CaseRequest,
        log: IO[bytes],
        folder: str,
        pid: int,
        pipe: int,
        on_stage: Callable[[WatchedCase], None],
    ) -> None:
        self.request = request
        self.log = log
        self.folder = folder
        self.pid = pid
        self.pipe = pipe
        self.on_stage = on_stage
        self.started = self.stage_started = time.monotonic()
        self.out_of_memory_kills = processes.out_of_memory_kills()
        self.stage, self.component = "source", ""
        self.stage_seconds: dict[str, float] = {}
        self.stage_events = 0
        self.peak_memory = 0
        self.disk = OnDisk(0, 0)
        self._disk_seen = self.started
        self.fingerprint: Fingerprint | None = None
        self.outcome: Outcome | None = None
        self.buffer = b""
        os.set_blocking(pipe, False)

    def read(self) -> bool:
        """Take in what the case has sent; false once its pipe is at an end."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):  # a case that never stops sending must not keep the parent from the others
                if self.outcome is not None:
                    break
                data = os.read(self.pipe, 1 << 16)
                if not data:
                    return False
                *lines, self.buffer = (self.buffer + data).split(b"\n")
                if max(map(len, [*lines, self.buffer])) > MAX_LINE_BYTES:
                    self.outcome = self.failure(OutcomeKind.ERROR, "the case's result is too long to be sent")
                for line in lines:
                    self._take(line)
        return True

    def _take(self, line: bytes) -> None:
        if self.outcome is not None:
            return
        try:
            message = Message.model_validate_json(line)
        except ValidationError as error:
            self.outcome = self.failure(OutcomeKind.ERROR, f"the case sent what is no result: {first_problem(error)}")
            return
        if message.outcome is not None:
            self.outcome = message.outcome
        elif message.fingerprint is not None:
            self.fingerprint = message.fingerprint
        elif (message.stage, message.component) != (self.stage, self.component):
            self._end_stage()
            self.stage, self.component = message.stage, message.component
            self.stage_events += 1
            if self.stage_events <= _MAX_STAGE_EVENTS:
                self.on_stage(self)

    def _end_stage(self) -> None:
        now = time.monotonic()
        if self.stage in self.stage_seconds or len(self.stage_seconds) < _MAX_STAGE_EVENTS:
            spent = now - self.stage_started
            self.stage_seconds[self.stage] = self.stage_seconds.get(self.stage, 0.0) + spent
        self.stage_started = now

    def failure(self, kind: OutcomeKind, message: str) -> Outcome:
        """An outcome that the case could not give itself."""
        self._end_stage()
        return Outcome(
            kind=kind,
            stage=self.stage,
            component=self.component,
            message=clean(message),
            stage_seconds=self.stage_seconds,
            fingerprint=self.fingerprint,
        )

    def log_end(self) -> str:
        """The end of the case's log, to which faulthandler writes the stack of a crash."""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - _LOG_TAIL_BYTES))
        return self.log.read().decode(errors="replace")

    def ask_where(self) -> str:
        """The stack of the case while it runs, which faulthandler writes to the log when asked by a signal; empty where
        it does not answer."""
        before = self.log.seek(0, os.SEEK_END)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, WHERE_SIGNAL)
        deadline, size = time.monotonic() + _ANSWER_SECONDS, before
        while time.monotonic() < deadline:
            time.sleep(0.02)
            seen, size = size, self.log.seek(0, os.SEEK_END)
            if before < seen == size:  # it has written, and no more since
                break
        self.log.seek(before)
        text = self.log.read().decode(errors="replace")
        return text[max(0, text.find(STACK_TITLE)) :] if STACK_TITLE in text else ""

    def measure(self, members: set[int], limits: Limits) -> None:
        """Look at what the case's processes use; once a second also at what they have written."""
        self.peak_memory = max(self.peak_memory, processes.resident_bytes(self.pid, members))
        if (now := time.monotonic()) - self._disk_seen > _DISK_SECONDS:
            found = on_disk(Path(self.folder), limits.files)
            self.disk = found._replace(size=found.size + processes.nameless_bytes(members))
            self._disk_seen = time.monotonic() + (time.monotonic() - now) * _DISK_SHARE

    def broken_limit(self, limits: Limits, processes: int) -> Outcome | None:
        """How a case ends that uses more than it may, of what was measured; None for one that does not."""
        if time.monotonic() - self.started > limits.wall_seconds:
            text = f"not done after {limits.wall_seconds:g} s, the limit of a case; it was in stage {self.stage}"
            return self.failure(OutcomeKind.TIMEOUT, text)
        if self.peak_memory > limits.memory_bytes:
            used, limit = self.peak_memory / 2**30, limits.memory_bytes / 2**30
            return self.failure(OutcomeKind.OOM, f"used {used:.1f} GiB of memory; the limit is {limit:.1f} GiB")
        if self.disk.closed:
            text = f"made a folder that is too deep or cannot be looked into: {self.disk.closed}"
            return self.failure(OutcomeKind.ERROR, text)
        if self.disk.size > limits.disk_bytes:
            used, limit = self.disk.size / 2**30, limits.disk_bytes / 2**30
            return self.failure(OutcomeKind.ERROR, f"wrote {used:.1f} GiB to disk; the limit is {limit:.1f} GiB")
        if self.disk.entries > limits.files:
            text = f"wrote more than {limits.files:,} files, the limit of a case"
            return self.failure(OutcomeKind.ERROR, text)
        if processes > _MAX_PROCESSES:
            return self.failure(OutcomeKind.CRASH, f"started {processes} processes; the limit is {_MAX_PROCESSES}")
        return None

    def crash(self, limits: Limits, status: int, cpu_seconds: float) -> Outcome:
        """The outcome of a case whose process ended, and so, without one."""
        code = os.waitstatus_to_exitcode(status)
        name = processes.signal_name(-code)
        limit = limits.cpu_seconds
        if code == -signal.SIGXCPU or (code == -signal.SIGKILL and cpu_seconds >= limit):
            text = f"used {limit} s of CPU time, the limit of a case; it was in stage {self.stage}"
            return self.failure(OutcomeKind.TIMEOUT, text)
        if code >= 0:
            text = f"exited with code {code} and without a result in stage {self.stage}"
        elif code == -signal.SIGKILL:
            starved = processes.out_of_memory_kills() > self.out_of_memory_kills
            why = ", and the machine was killing processes for want of memory" if starved else ""
            text = f"killed by {name} in stage {self.stage}, not by its limits{why}"
        else:
            text = f"killed by {name} in stage {self.stage}"
        refused = code == -signal.SIGABRT and "std::bad_alloc" in self.log_end()
        kind = OutcomeKind.OOM if refused else OutcomeKind.CRASH
        return self.failure(kind, text)


def clean(text: str) -> str:
    """``text`` as a message: not too long, and without halves of surrogate pairs, which JSON cannot carry."""
    return text.encode(errors="replace").decode()[:MAX_MESSAGE_CHARS]
