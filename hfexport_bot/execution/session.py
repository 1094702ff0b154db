"""Run the planned cases on one revision or on both at the same time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import CaseId, CaseRequest, Outcome, RunnerEvent, RunnerSetup

SideName = Literal["base", "head"]
_POLL_SECONDS = 0.2

OnEvent = Callable[[SideName, RunnerEvent], None]


class SideResult(Protocol):
    """What `RunCases` gives: an outcome for every requested id, the versions of what exported, and why the
    runner could not work at all (empty when it could)."""

    @property
    def outcomes(self) -> dict[CaseId, Outcome]: ...
    @property
    def versions(self) -> dict[str, str]: ...
    @property
    def fatal(self) -> str: ...


class RunCases(Protocol):
    """Run cases in a runner of their own: `hfexport_bot.execution.client.run_cases`."""

    def __call__(
        self,
        setup: RunnerSetup,
        requests: Sequence[CaseRequest],
        *,
        on_event: Callable[[RunnerEvent], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> SideResult: ...


@dataclass(frozen=True)
class SessionResult:
    """Both sides' outcomes; ``fatal`` has a message for each side whose runner could not work at all."""

    base: dict[CaseId, Outcome] = field(default_factory=dict)
    head: dict[CaseId, Outcome] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    fatal: dict[SideName, str] = field(default_factory=dict)
    ran: tuple[SideName, ...] = ()


def available_cpus() -> int:
    """The cpus this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_session(
    planned: Sequence[PlannedCase],
    *,
    base: RunnerSetup | None,
    head: RunnerSetup,
    run_cases: RunCases,
    jobs: int | None = None,
    on_event: OnEvent | None = None,
) -> SessionResult:
    """Run every case on each side that has its class.

    Both runners work at the same time and share the jobs: half each, or all for the only side that has cases.

    Args:
        base, head: how to set up each side's runner, whose ``jobs`` is replaced; no ``base``, no baseline.
        jobs: cases at the same time over both sides; the number of cpus by default.
        on_event: called from either side's thread, one call at a time.

    Raises what ``run_cases`` raises. On ``KeyboardInterrupt`` both runners are told to stop and waited for.
    """
    sides: dict[SideName, tuple[RunnerSetup, list[CaseRequest]]] = {}
    if base is not None:
        sides["base"] = (base, [CaseRequest(id=c.id, module=c.base_module) for c in planned if c.base_module])
    sides["head"] = (head, [CaseRequest(id=c.id, module=c.head_module) for c in planned if c.head_module])
    sides = {side: work for side, work in sides.items() if work[1]}
    share = max(1, (jobs or available_cpus()) // max(1, len(sides)))

    cancelled = threading.Event()
    one_at_a_time = threading.Lock()
    working: dict[SideName, threading.Event] = {}  # set once a side has ended
    results: dict[SideName, SideResult] = {}
    errors: list[BaseException] = []

    def run(side: SideName, setup: RunnerSetup, requests: list[CaseRequest], ended: threading.Event) -> None:
        def report(event: RunnerEvent) -> None:
            if on_event is not None:
                with one_at_a_time:
                    on_event(side, event)

        working[side] = ended
        try:
            if not cancelled.is_set():
                setup = setup.model_copy(update={"jobs": share})
                results[side] = run_cases(setup, requests, on_event=report, cancelled=cancelled)
        except BaseException as error:
            errors.append(error)
            cancelled.set()  # the other side's work would be for nothing
        finally:
            ended.set()

    try:
        ends = [threading.Event() for _ in sides]
        for (side, work), ended in zip(sides.items(), ends, strict=True):
            threading.Thread(target=run, args=(side, *work, ended), name=f"{side} runner").start()
        _wait(ends)
    except KeyboardInterrupt:
        cancelled.set()
        _wait(list(working.values()))
        raise
    if errors:
        raise errors[0]
    return SessionResult(
        base=results["base"].outcomes if "base" in results else {},
        head=results["head"].outcomes if "head" in results else {},
        versions=_merged({side: result.versions for side, result in results.items()}),
        fatal={side: result.fatal for side, result in results.items() if result.fatal},
        ran=tuple(results),
    )


def _merged(versions: dict[SideName, dict[str, str]]) -> dict[str, str]:
    """Each version once, and both where the sides' environments differ."""
    base = versions.get("base", {})
    head = versions.get("head", base)
    differing = {name: f"{text} (base {base[name]})" for name, text in head.items() if base.get(name, text) != text}
    return base | head | differing


def _wait(ends: Sequence[threading.Event]) -> None:
    """Wait for all. Not by joining threads: an interrupted join takes its thread for ended, and a wait without an
    end may sleep through a signal that came right before it."""
    for ended in ends:
        while not ended.wait(_POLL_SECONDS):
            pass
