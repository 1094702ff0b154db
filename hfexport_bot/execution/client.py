"""Start a runner, feed it cases and take its outcomes. The trusted end of the trust line.

Nothing a runner sends is believed beyond its own cases: lines are capped and validated, outcomes count for ids that
were asked and once each. Nothing it does keeps a case without an outcome, or leaves a process or a folder behind.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil
from pydantic import TypeAdapter, ValidationError

from hfexport_bot.execution.environment import private_home, runner_environment
from hfexport_bot.execution.handover import Handover
from hfexport_bot.execution.isolation import read_by, worker
from hfexport_bot.schema import (
    MAX_LINE_BYTES,
    MAX_MESSAGE_CHARS,
    Batch,
    CaseFinished,
    CaseId,
    CaseRequest,
    Fatal,
    Outcome,
    OutcomeKind,
    Ready,
    Record,
    RunnerEvent,
    RunnerSetup,
    StageBegan,
)

#: Seconds a runner may take to import torch and the revision's code.
WARM_UP_SECONDS = 300.0
#: Seconds past a case's own limit after which a runner without an outcome counts as stalled.
GRACE_SECONDS = 60.0

_MAX_RESTARTS = 3
_MAX_STAGES = 2_000
_MAX_REASONS = 5
_MAX_LOG_BYTES = 32 << 20
_POLL_SECONDS = 0.1
_STOP_SECONDS = 15.0

_EVENTS: TypeAdapter[RunnerEvent] = TypeAdapter(RunnerEvent)

OnEvent = Callable[[RunnerEvent], None]


@dataclass(frozen=True)
class RunResult:
    """An outcome for every case that was asked for (when cancelled, for those that had ended), the versions of what
    exported, when the runner could not work at all, why, and by what it was not confined, and why."""

    outcomes: dict[CaseId, Outcome]
    versions: dict[str, str] = field(default_factory=dict)
    fatal: str = ""
    unprotected: tuple[str, ...] = ()


@dataclass(frozen=True)
class _End:
    """How one runner ended: what that makes of the cases in flight, and why."""

    kind: OutcomeKind
    message: str
    final: bool = False  # another runner would end in the same way
    cancelled: bool = False  # another runner is not wanted


def run_cases(
    setup: RunnerSetup,
    requests: Sequence[CaseRequest],
    *,
    on_event: OnEvent | None = None,
    cancelled: threading.Event | None = None,
    **options: Any,
) -> RunResult:
    """Run cases in one isolated runner and return an outcome for each of them; see `Runners`, whose arguments
    ``options`` are."""
    with Runners(**options) as runners:
        return runners(setup, requests, on_event=on_event, cancelled=cancelled)


class Runners:
    """Isolated runners, each of which stays warm for further cases with its setup until the context ends.

    A runner that stalls costs the cases it had in flight; another one takes over the rest, at most three times a call.
    So with one that dies, but each case that it had in flight is run once more, in a runner that has nothing else: only
    one that dies then too is the case's own doing. Cases that no runner could take get an outcome that says so.

    Args:
        python: the interpreter that runs the cases; it must have this package installed.
        command: what to start instead of the runner; gets ``--events-fd N`` appended.
        warm_up_seconds: time for the imports before the first case.
        grace_seconds: time on top of a case's wall clock limit in which some outcome has to come.
    """

    def __init__(
        self,
        *,
        python: str = sys.executable,
        command: Sequence[str] | None = None,
        warm_up_seconds: float = WARM_UP_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._command = command or (python, "-P", "-m", "hfexport_bot.runner")
        self._warm_up_seconds = warm_up_seconds
        self._grace_seconds = grace_seconds
        self._live: dict[str, _Runner] = {}

    def __enter__(self) -> Runners:
        return self

    def __exit__(self, *_: object) -> None:
        while self._live:
            self._live.popitem()[1].stop()

    def prepare(self, setup: RunnerSetup) -> None:
        """Start a setup's runner, which gets warm while others work."""
        setup = _with_resolved_places(setup)
        if (key := _key(setup)) not in self._live:
            self._live[key] = _Runner(setup, self._command)

    def __call__(
        self,
        setup: RunnerSetup,
        requests: Sequence[CaseRequest],
        *,
        on_event: OnEvent | None = None,
        cancelled: threading.Event | None = None,
    ) -> RunResult:
        """Run cases, ``setup.jobs`` at a time, and return an outcome for each of them.

        Args:
            on_event: told of every valid event, also of outcomes that the runner could not give itself.
            cancelled: set it to stop early; the cases left then have no outcome.

        Raises:
            OSError: the runner cannot be started, or ``setup.log_dir`` cannot be written.
        """
        setup = _with_resolved_places(setup)
        key = _key(setup)
        run = _Run({request.id: request for request in requests}, on_event or (lambda event: None))
        cancelled = cancelled or threading.Event()
        timing = _Timing(self._warm_up_seconds, setup.limits.wall_seconds + self._grace_seconds)
        fruitless = restarts = 0
        while run.waiting():
            run.begun.clear()
            before = len(run.outcomes) + len(run.suspects)
            chosen = [id_ for id_ in run.waiting() if id_ not in run.suspects]
            if alone := not chosen:
                chosen = run.waiting()[:1]
                if key in self._live:
                    self._live.pop(key).stop()
            runner = self._live.get(key) or self._live.setdefault(key, _Runner(setup, self._command))
            try:
                end = runner.work(run, chosen, setup.jobs, cancelled, timing)
            except BaseException:
                self._live.pop(key).stop()
                raise
            if end is None:
                continue
            self._live.pop(key).stop()
            if end.cancelled:
                break
            suspects = () if end.kind is not OutcomeKind.CRASH or len(runner.begun) == 1 else tuple(run.begun)
            run.fail([id_ for id_ in run.begun if id_ not in suspects], end)
            run.suspects |= dict.fromkeys(suspects)
            fruitless = fruitless + 1 if len(run.outcomes) + len(run.suspects) == before else 0
            restarts += not alone
            if end.final or fruitless > 1:
                run.fail(run.waiting(), end)
            elif restarts > _MAX_RESTARTS:
                run.fail([id_ for id_ in run.waiting() if id_ not in run.suspects], end)
        outcomes = {id_: run.outcomes[id_] for id_ in run.requests if id_ in run.outcomes}
        return RunResult(outcomes, run.versions, run.fatal, tuple(run.unprotected))


def _with_resolved_places(setup: RunnerSetup) -> RunnerSetup:
    places = {
        name: str(Path(value).resolve()) for name in ("tree", "log_dir", "keep") if (value := getattr(setup, name))
    }
    return setup.model_copy(update=places)


def _key(setup: RunnerSetup) -> str:
    """Setups that one runner serves have the same: how much to do at a time is told with the cases, and a runner can
    export in ways that it is not warm with."""
    return setup.model_copy(update={"jobs": 1, "backends": (), "engines": ()}).model_dump_json()


def _versions(ready: Ready) -> dict[str, str]:
    return {name[:100]: version[:100] for name, version in list(ready.versions.items())[:50]}


@dataclass(frozen=True)
class _Timing:
    warm_up_seconds: float
    stall_seconds: float


class _Run:
    """What is known of the cases so far, over all runners."""

    def __init__(self, requests: dict[CaseId, CaseRequest], on_event: OnEvent) -> None:
        self.requests = requests
        self.outcomes: dict[CaseId, Outcome] = {}
        self.versions: dict[str, str] = {}
        self.fatal = ""
        self.unprotected: dict[str, None] = {}
        #: Cases in flight, with the stage and component each was last in.
        self.begun: dict[CaseId, StageBegan] = {}
        #: Cases that a runner had in flight, beside others or after them, when it died.
        self.suspects: dict[CaseId, None] = {}
        self._stages = 0
        self._on_event = on_event

    def waiting(self, among: Iterable[CaseId] | None = None) -> list[CaseId]:
        return [id_ for id_ in (self.requests if among is None else among) if id_ not in self.outcomes]

    def take(self, event: RunnerEvent) -> bool:
        """Take in a valid event; true if it brings the runner forward, as more and more stages do not."""
        match event:
            case Ready():
                self.versions = _versions(event)
            case Fatal():
                self.fatal = event.message
            case StageBegan() | CaseFinished() if event.id not in self.requests or event.id in self.outcomes:
                return False  # nobody asked, or it has been answered
            case StageBegan():
                self.begun[event.id] = event
                self._stages += 1
                if self._stages > _MAX_STAGES * len(self.requests):
                    return False
            case CaseFinished():
                self.begun.pop(event.id, None)
                self.outcomes[event.id] = event.outcome
        self._on_event(event)
        return not isinstance(event, StageBegan)

    def fail(self, ids: list[CaseId], end: _End) -> None:
        """Give ``ids`` the outcome that their runner's end makes of them."""
        for id_ in ids:
            last = self.begun.get(id_)
            stage, component = (last.stage, last.component) if last else ("source", "")
            where = f"in stage {stage}" if last else "not begun"
            message = end.message if end.final else f"{where}: {end.message}"
            outcome = Outcome(kind=end.kind, stage=stage, component=component, message=message[:MAX_MESSAGE_CHARS])
            self.outcomes[id_] = outcome
            self._on_event(CaseFinished(id=id_, outcome=outcome))


class _Runner:
    """One runner's process, from its start on, and what it said when it was ready."""

    def __init__(self, setup: RunnerSetup, command: Sequence[str]) -> None:
        self.ready: Ready | None = None
        #: All cases that it ever had.
        self.begun: set[CaseId] = set()
        self.buffer = b""
        with contextlib.ExitStack() as stack:
            home = stack.enter_context(private_home())
            self.handover = Handover(home, setup)
            stack.callback(self.handover.close)
            user = stack.enter_context(worker(home, read_by(setup)))
            self.unprotected = [user.missing] if user.missing else []
            self.log = stack.enter_context(_open_log(Path(setup.log_dir) if setup.log_dir else home))
            self.events, write_end = os.pipe()
            stack.callback(os.close, self.events)
            try:
                self.process = subprocess.Popen(
                    [*command, "--events-fd", str(write_end)],
                    stdin=subprocess.PIPE,
                    stdout=self.log,
                    stderr=self.log,
                    cwd=home,
                    env=runner_environment(os.environ, home),
                    pass_fds=[write_end],
                    start_new_session=True,
                    **user.options,
                )
            finally:
                os.close(write_end)
            stack.callback(stop_session, self.process)
            self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            stack.callback(self._input.put, None)
            self._say(self.handover.setup)
            # A thread of its own: no runner can keep us waiting by not reading.
            threading.Thread(target=self._write, daemon=True, name="runner input").start()
            self._stack = stack.pop_all()

    def work(
        self, run: _Run, chosen: Sequence[CaseId], jobs: int, cancelled: threading.Event, timing: _Timing
    ) -> _End | None:
        """Run some cases. ``None`` when each has its outcome, else how the runner ended or has to end."""
        requests = self.handover.requests([run.requests[id_] for id_ in chosen])
        self._say(Batch(requests=requests, jobs=jobs))
        if self.ready is not None:
            run.versions = _versions(self.ready)
        end = _follow(self, run, chosen, cancelled, timing)
        run.unprotected |= dict.fromkeys(self.unprotected)
        if end is None and run.waiting(chosen):
            with contextlib.suppress(subprocess.TimeoutExpired):  # let it end as it does, to tell how it did
                self.process.wait(_STOP_SECONDS)
        if not run.waiting(chosen):
            return None
        if end is not None:
            return end
        stop_session(self.process)
        return _End(OutcomeKind.CRASH, f"the runner {_how_it_ended(self.process.returncode)}{_tail(self.log)}")

    def hears(self, event: RunnerEvent) -> bool:
        """Take what an event says of the runner, and what its case has written; false where it can't be said."""
        if isinstance(event, Ready):
            if self.ready is not None:
                return False
            self.ready = event
            self.unprotected += event.unprotected[:_MAX_REASONS]
        self.handover.take(event)
        return True

    def stop(self) -> None:
        """End the process and all below it, and remove its folder."""
        self._stack.close()

    def _say(self, record: Record) -> None:
        self._input.put(record.model_dump_json().encode() + b"\n")

    def _write(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, as its events tell
            while (data := self._input.get()) is not None:
                self.process.stdin.write(data)
                self.process.stdin.flush()
        with contextlib.suppress(OSError):
            self.process.stdin.close()


def _follow(
    runner: _Runner, run: _Run, chosen: Sequence[CaseId], cancelled: threading.Event, timing: _Timing
) -> _End | None:
    """Take in a runner's events. ``None`` once it is done or dead, else why it has to be stopped."""
    deadline = time.monotonic() + (timing.warm_up_seconds if runner.ready is None else timing.stall_seconds)
    for data in _chunks(runner.events, runner.process):
        *lines, runner.buffer = (runner.buffer + data).split(b"\n")
        if max(map(len, [*lines, runner.buffer])) > MAX_LINE_BYTES:
            return _End(OutcomeKind.CRASH, f"the runner sent a line of more than {MAX_LINE_BYTES:,} bytes")
        for line in lines:
            try:
                event = _EVENTS.validate_json(line)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                return _End(OutcomeKind.CRASH, f"the runner sent what is no event: {first['msg']}")
            if not runner.hears(event):
                return _End(OutcomeKind.CRASH, "the runner said twice that it is ready")
            brings_forward = run.take(event)
            runner.begun.update(run.begun)
            if brings_forward:
                deadline = time.monotonic() + timing.stall_seconds
            if run.fatal:
                return _End(OutcomeKind.ERROR, run.fatal, final=True)
        if not run.waiting(chosen):
            return None
        if cancelled.is_set():
            return _End(OutcomeKind.ERROR, "cancelled before it was done", cancelled=True)
        if time.monotonic() > deadline:
            if runner.ready is None:
                text = f"the runner was not ready after {timing.warm_up_seconds:g} s"
                return _End(OutcomeKind.TIMEOUT, text, final=True)
            text = f"the runner gave no outcome for {timing.stall_seconds:g} s"
            return _End(OutcomeKind.TIMEOUT, text)
        if os.fstat(runner.log.fileno()).st_size > _MAX_LOG_BYTES:
            os.ftruncate(runner.log.fileno(), 0)
    return None


def _chunks(fd: int, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """What comes from ``fd``, and nothing (``b""``) now and then, until its end or the end of ``process``."""
    while True:
        ended = process.poll() is not None
        if select.select([fd], [], [], 0 if ended else _POLL_SECONDS)[0]:
            data = os.read(fd, 1 << 16)
            if not data:
                return
            yield data
        elif ended:  # something that outlived it holds the other end
            return
        else:
            yield b""


def stop_session(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session, and everything below it or left in its session, and wait for it.

    It is asked first (a runner's guard then kills what is below it, orphans too), and killed if it does not heed that.
    """
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True) if process.returncode is None else []
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    for left in below:
        with contextlib.suppress(psutil.Error):
            left.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _how_it_ended(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return f"was killed by {signal.Signals(number).name}"
    except ValueError:
        return f"exited with code {code} before it was done"


def _open_log(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW  # an earlier runner may have put a link there
    return os.fdopen(os.open(folder / "runner.log", flags, 0o644), "r+b", buffering=0)


def _tail(log: IO[bytes]) -> str:
    """The last lines of a runner's log, on a line of their own."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - 2_000))
    text = log.read().decode(errors="replace").strip()
    return f"\n{text}" if text else ""
