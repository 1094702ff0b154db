"""The warm parent of the untrusted half: one forked process per case, watched and limited.

The parent imports torch and the revision's transformers once, then forks. It stays single-threaded, since a fork
copies only the forking thread. Whatever a case does (hang, crash, exit, eat memory, leave processes behind) costs that
case alone, and every case ends in exactly one outcome.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import selectors
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NoReturn

from pydantic import ValidationError

from hfexport_bot.folders import remove_folder
from hfexport_bot.runner import processes
from hfexport_bot.runner.crash_log import with_log
from hfexport_bot.runner.warmup import warm_up
from hfexport_bot.runner.watched_case import WHERE_SIGNAL, Message, WatchedCase, clean
from hfexport_bot.schema import (
    MAX_LINE_BYTES,
    Batch,
    CaseFinished,
    CaseRequest,
    Fatal,
    Fingerprint,
    Outcome,
    OutcomeKind,
    Ready,
    RunnerEvent,
    RunnerSetup,
    StageBegan,
)

#: Runs one case in its own process; calls the third argument with stage and component as each stage begins, and the
#: fourth with what its outcome depends on, whenever that changes.
RunCase = Callable[[CaseRequest, RunnerSetup, Callable[[str, str], None], Callable[[Fingerprint], None]], Outcome]

#: The outcome of a case that died, with what its log tells of that.
Died = Callable[[Outcome, str, RunnerSetup], Outcome]

#: Seconds between two looks at what a case uses.
_POLL_SECONDS = 0.1
_MAX_LOG_BYTES = 32 << 20
#: Limits that a case breaks wherever it happens to be, which is worth knowing.
_BY_CHANCE = frozenset({OutcomeKind.TIMEOUT, OutcomeKind.OOM})
#: Room left in a line for what the parent adds to a case's outcome.
_LINE_MARGIN = 16_384

_OUT_OF_MEMORY = re.compile(
    r"\bMemoryError\b|std::bad_alloc|bad allocation|MemoryAllocationFailed"
    r"|(can't|cannot|failed to|could not|unable to) allocate (.{0,40} )?memory|not enough memory: you tried to",
    re.IGNORECASE,
)


class EventStream:
    """The descriptor to the trusted side; one JSON line an event."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self.fd = fd

    def send(self, event: RunnerEvent) -> None:
        """Write one event. Raises ``BrokenPipeError`` when nobody reads any more."""
        _write_all(self.fd, event.model_dump_json().encode() + b"\n")


def read_input(lines: Iterable[bytes]) -> tuple[RunnerSetup, Iterator[Batch]]:
    """The setup, and the batches of cases as they come on standard input. Raises ``ValueError`` for anything else."""
    lines = iter(lines)
    setup = RunnerSetup.model_validate_json(next(lines, b""))
    return setup, (Batch.model_validate_json(line) for line in lines)


def serve(
    setup: RunnerSetup,
    batches: Iterable[Batch],
    events: EventStream,
    run_case: RunCase,
    unprotected: Sequence[str] = (),
    died: Died = with_log,
) -> int:
    """Run every case of one batch after the other, and report each on ``events``. Returns the exit code.

    ``unprotected`` is told with being ready: what this process should have been confined by and is not.
    ``died`` adds to the outcome of a case that could not give one what its log tells.
    """
    faulthandler.enable()
    processes.adopt_orphans()
    try:
        versions = warm_up(setup, setup.backends)
    except Exception as error:
        traceback.print_exc()
        events.send(Fatal(message=clean(str(error) or type(error).__name__)))
        return 1
    try:
        events.send(Ready(versions=versions, unprotected=tuple(unprotected)))
        for batch in batches:
            _Supervisor(setup, events, run_case, died).run(batch.requests, batch.jobs)
    except BrokenPipeError:
        return 1
    except ValidationError as error:
        events.send(Fatal(message=clean(f"the runner was sent what is no batch: {error}")))
        return 1
    return 0


class _Supervisor:
    """Starts, watches and ends the cases."""

    def __init__(self, setup: RunnerSetup, events: EventStream, run_case: RunCase, died: Died) -> None:
        self._died = died
        self._setup = setup
        self._events = events
        self._run_case = run_case
        self._active: dict[int, WatchedCase] = {}
        self._selector = selectors.DefaultSelector()

    def run(self, requests: Sequence[CaseRequest], jobs: int) -> None:
        waiting = list(reversed(requests))
        try:
            while waiting or self._active:
                while waiting and len(self._active) < max(1, jobs):
                    self._start(waiting.pop())
                self._wait()
                self._watch()
        finally:
            self._selector.close()
            table = processes.process_table()
            processes.kill(processes.descendants(os.getpid(), table))
            for case in self._active.values():
                remove_folder(Path(case.folder))

    def _start(self, request: CaseRequest) -> None:
        folder = tempfile.mkdtemp(prefix="case-")
        log = _open_log(self._setup.log_dir or folder, request.id.log_name)
        read_end, write_end = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                processes.die_with_parent(parent)
                for fd in (self._events.fd, read_end, *(case.pipe for case in self._active.values())):
                    os.close(fd)
                if request.eager_to:
                    request = request.model_copy(update={"eager_to": str(Path(folder, Path(request.eager_to).name))})
                _be_case(request, self._setup, self._run_case, write_end, log.fileno(), folder)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)  # a child never goes on as a second parent
        os.close(write_end)
        case = self._active[pid] = WatchedCase(request, log, folder, pid, read_end, self._send_stage)
        self._selector.register(read_end, selectors.EVENT_READ, case)
        self._send_stage(case)

    def _wait(self) -> None:
        """Sleep until a case has something to say, at most until the next look at its limits."""
        for key, _ in self._selector.select(_POLL_SECONDS):
            case: WatchedCase = key.data
            if not case.read():
                self._selector.unregister(case.pipe)

    def _send_stage(self, case: WatchedCase) -> None:
        self._events.send(StageBegan(id=case.request.id, stage=case.stage, component=case.component))

    def _watch(self) -> None:
        table = processes.process_table()
        families = {pid: processes.family(pid, table) for pid in self._active}
        self._end_strays(table, families)
        for pid, case in list(self._active.items()):
            case.measure(families[pid], self._setup.limits)
            # WNOWAIT leaves a dead case's pid taken until everything it started is gone too
            exited = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if exited or case.outcome is not None:
                self._finish(case, None)
            elif (broken := case.broken_limit(self._setup.limits, len(families[pid]))) is not None:
                self._finish(case, broken)
            elif os.fstat(case.log.fileno()).st_size > _MAX_LOG_BYTES:
                os.ftruncate(case.log.fileno(), 0)

    def _finish(self, case: WatchedCase, outcome: Outcome | None) -> None:
        """End a case's processes and send its outcome: its own if it gave one, else ``outcome``, that of a limit that
        it broke, else a crash."""
        seconds = time.monotonic() - case.started
        case.read()
        if outcome is not None and case.outcome is None:
            # What it sends from here on is not read: the signal wakes up what sleeps.
            case.outcome = self._died(outcome, case.ask_where() if outcome.kind in _BY_CHANCE else "", self._setup)
        self._end_family(case)
        _, status, usage = os.wait4(case.pid, 0)
        case.read()
        outcome = case.outcome
        if outcome is None:
            outcome = case.crash(self._setup.limits, status, usage.ru_utime + usage.ru_stime)
            outcome = self._died(outcome, case.log_end(), self._setup)
        if outcome.kind is OutcomeKind.ERROR and _OUT_OF_MEMORY.search(f"{outcome.error_type} {outcome.message}"):
            outcome = outcome.model_copy(update={"kind": OutcomeKind.OOM})
        del self._active[case.pid]
        with contextlib.suppress(KeyError):
            self._selector.unregister(case.pipe)
        os.close(case.pipe)
        case.log.close()
        _hand_over(case)
        remove_folder(Path(case.folder))
        peak = max(case.peak_memory, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
        measured = {"seconds": round(seconds, 3), "peak_memory_bytes": peak}
        self._events.send(CaseFinished(id=case.request.id, outcome=outcome.model_copy(update=measured)))

    def _end_family(self, case: WatchedCase) -> None:
        """Kill a case's processes until none is left but the case itself, dead and not reaped.

        In a loop, since what forks may do so between a look and a kill.
        """
        deadline = time.monotonic() + 5.0
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(case.pid, signal.SIGKILL)
        while time.monotonic() < deadline:
            table = processes.process_table()
            members = processes.family(case.pid, table)
            processes.kill(members)
            self._reap_orphans(table)
            if members == {case.pid}:
                return
            time.sleep(0.002)

    def _end_strays(self, table: list[processes.ProcessEntry], families: dict[int, set[int]]) -> None:
        """Kill orphans that belong to no running case: they left their session, or outlived their case."""
        known = set().union(*families.values())
        processes.kill({entry.pid for entry in table if entry.parent == os.getpid()} - known)
        self._reap_orphans(table)

    def _reap_orphans(self, table: list[processes.ProcessEntry]) -> None:
        for entry in table:
            if entry.parent == os.getpid() and entry.pid not in self._active:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(entry.pid, os.WNOHANG)


# -- A case, in its own process --------------------------------------------------------------------------------


def _be_case(request: CaseRequest, setup: RunnerSetup, run_case: RunCase, pipe: int, log: int, folder: str) -> None:
    """Run one case in the forked child, send what it comes to, and exit. Never returns."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    leave = _tell_where()
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    os.chdir(folder)
    processes.limit_resources(setup.limits)
    stage, component = "source", ""

    def on_stage(next_stage: str, next_component: str) -> None:
        nonlocal stage, component
        stage, component = next_stage[:300], next_component[:300]
        _write_all(pipe, Message(stage=stage, component=component).model_dump_json().encode() + b"\n")

    def on_fingerprint(fingerprint: Fingerprint) -> None:
        _write_all(pipe, Message(fingerprint=fingerprint).model_dump_json().encode() + b"\n")

    try:
        line = _fit(run_case(request, setup.without(request.disabled), on_stage, on_fingerprint))
    except BaseException as error:  # SystemExit too: whatever a model raises is its case's outcome
        traceback.print_exc()
        kind = OutcomeKind.OOM if isinstance(error, MemoryError) else OutcomeKind.ERROR
        name = type(error).__name__
        text = clean(f"{name}: {error}" if str(error) else name)
        line = _fit(Outcome(kind=kind, stage=stage, component=component, message=text, error_type=name[:300]))
    _write_all(pipe, b'{"outcome":' + line + b"}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    leave(0)


def _tell_where() -> Callable[[int], NoReturn]:
    """Have this process write its stack to its log when it crashes, is asked, has used up its time, or exits past all
    that could catch it. Returns how to exit without that."""
    faulthandler.enable(file=2)
    faulthandler.register(WHERE_SIGNAL, file=2, all_threads=False)
    faulthandler.register(signal.SIGXCPU, file=2, all_threads=False, chain=True)
    case, leave = os.getpid(), os._exit

    def tell_and_leave(status: int) -> NoReturn:
        if os.getpid() == case:
            faulthandler.dump_traceback(file=2, all_threads=False)
        leave(status)

    os._exit = tell_and_leave
    return leave


def _fit(outcome: Outcome) -> bytes:
    """The outcome as JSON, with the details of its components cut if the line would be too long."""
    limit = MAX_LINE_BYTES - _LINE_MARGIN
    line = outcome.model_dump_json().encode()
    if len(line) <= limit:
        return line
    note = f"details of the components were cut: the result was {len(line):,} bytes long"
    bare = {"outputs": (), "probes": (), "inputs": (), "axes": ()}
    components = tuple(component.model_copy(update=bare) for component in outcome.components)
    outcome = outcome.model_copy(update={"components": components, "notes": (*outcome.notes[:20], note)})
    cut = outcome.model_dump_json().encode()
    if len(cut) <= limit:
        return cut
    text = f"the case's result is too long to be sent: {len(line):,} bytes"
    return Outcome(kind=OutcomeKind.ERROR, stage=outcome.stage, message=text).model_dump_json().encode()


# -- Helpers ---------------------------------------------------------------------------------------------------


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _hand_over(case: WatchedCase) -> None:
    """Move the file that the other side is to read out of a case's folder, which is all that a case may write to."""
    if (target := case.request.eager_to) is None:
        return
    with contextlib.suppress(OSError):
        made = Path(case.folder, Path(target).name)
        if stat.S_ISREG(made.lstat().st_mode):
            made.rename(target)


def _open_log(folder: str, name: str) -> IO[bytes]:
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / name
    path.unlink(missing_ok=True)
    return path.open("a+b", buffering=0)
