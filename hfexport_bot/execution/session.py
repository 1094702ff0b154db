"""Run the planned cases on one revision or on both, without running twice what must come to the same."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hfexport_bot.execution.one_source import differ, source_of, why
from hfexport_bot.execution.reruns import Reruns, Tries, run_again
from hfexport_bot.execution.sides import OnEvent, RunCases, SideName, Sides, Watch
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import (
    MAX_MESSAGE_CHARS,
    Backend,
    CaseFinished,
    CaseId,
    CaseRequest,
    EagerChange,
    Engine,
    Outcome,
    OutcomeKind,
    RunnerEvent,
    RunnerSetup,
    Shapes,
)


@dataclass(frozen=True)
class SessionResult:
    """Both sides' outcomes; ``eager`` tells how eager's outputs moved where they may have, ``tries`` has all
    outcomes of the cases that were run again, ``late`` names those that should have been and for which there was no
    time, ``fatal`` has a message for each side whose runner could not work at all, ``written`` the files of a side's
    tree that its own code wrote to, ``unprotected`` by what runners were not confined, and why.
    ``interrupted``: somebody ended it, and not all cases have an outcome."""

    base: dict[CaseId, Outcome] = field(default_factory=dict)
    head: dict[CaseId, Outcome] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    eager: dict[CaseId, EagerChange] = field(default_factory=dict)
    tries: dict[CaseId, Tries] = field(default_factory=dict)
    late: tuple[CaseId, ...] = ()
    fatal: dict[SideName, str] = field(default_factory=dict)
    ran: tuple[SideName, ...] = ()
    written: dict[SideName, tuple[str, ...]] = field(default_factory=dict)
    interrupted: bool = False
    unprotected: tuple[str, ...] = ()


def _unwatched(total: int, what: str) -> AbstractContextManager[None]:
    return nullcontext(None)


def run_session(
    planned: Sequence[PlannedCase],
    *,
    base: RunnerSetup | None,
    head: RunnerSetup,
    run_cases: RunCases,
    jobs: int | None = None,
    watch: Watch = _unwatched,
    reruns: Reruns | None = None,
    exchange: Path | None = None,
    survey: bool = False,
) -> SessionResult:
    """Run every case on each side that has its class.

    Head runs first. Base builds, runs in eager and traces each of its cases too; where it comes to the graphs and
    numbers of head, from the same exporters, it ends there and has head's outcome, otherwise it runs on. Where head's
    inputs come from another source than base's, base runs again on that one, if it has it too.

    Args:
        base, head: how to set up each side's runner, whose ``jobs`` is replaced; no ``base``, no baseline.
        jobs: cases at the same time over both sides; the number of cpus by default.
        watch: shows the progress of the first run, of reruns and of eager against eager.
        reruns: which cases to run again on both sides, to see whether they come to the same.
        exchange: an empty folder, where base leaves what its models ran on in eager for head to run on too.
        survey: end every case after its eager forward.

    Raises what ``run_cases`` raises. On ``KeyboardInterrupt`` the runners are told to stop and waited for; the result
    then has what had ended.
    """
    return _Session(planned, base, head, run_cases, jobs, watch, exchange, survey).run(reruns)


class _Session:
    def __init__(
        self,
        planned: Sequence[PlannedCase],
        base: RunnerSetup | None,
        head: RunnerSetup,
        run_cases: RunCases,
        jobs: int | None,
        watch: Watch,
        exchange: Path | None,
        survey: bool,
    ) -> None:
        setups: dict[SideName, RunnerSetup] = {"head": head} if base is None else {"base": base, "head": head}
        ways = {
            "backends": tuple(sorted({case.id.backend for case in planned})),
            "engines": tuple(sorted({case.id.engine for case in planned})),
        }
        setups = {side: setup.model_copy(update=ways) for side, setup in setups.items()}
        self._planned = planned
        self._has_base = base is not None
        self._watch = watch
        self._exchange = exchange
        self._survey = survey
        self._sides = Sides(setups, run_cases, jobs)
        self._head: dict[CaseId, Outcome] = {}
        self._twins: dict[CaseId, CaseRequest] = {}

    def run(self, reruns: Reruns | None) -> SessionResult:
        if self._has_base and any(case.base_module for case in self._planned):
            self._sides.prepare("base")
        requests = {
            case.id: CaseRequest(id=case.id, module=case.head_module, survey=self._survey)
            for case in self._planned
            if case.head_module
        }
        total = len(requests) + self._has_base * sum(case.base_module is not None for case in self._planned)
        with self._watch(total, "") as on_event:
            self._head = self._sides.run({"head": tuple(requests.values())}, on_event=on_event).get("head", {})
            base = self._run_base(on_event) if self._has_base else {}
        base = self._on_one_source(base)
        eager = self._compare_eager(requests, base)
        tries, late = dict[CaseId, Tries](), tuple[CaseId, ...]()
        if reruns is not None and base and not self._sides.fatal:
            alone = {"twin": None, "eager_to": None}
            whole = {id_: request.model_copy(update=alone) for id_, request in self._twins.items()}
            first: dict[SideName, dict[CaseId, Outcome]] = {"base": base, "head": self._head}
            tries, late = run_again(self._sides, {"base": whole, "head": requests}, first, reruns, self._watch)
        return SessionResult(
            base=base,
            head=self._head,
            versions=merged_versions(self._sides.versions),
            eager=eager,
            tries=tries,
            late=late,
            fatal=dict(self._sides.fatal),
            unprotected=tuple(self._sides.unprotected),
            ran=tuple(side for side in ("base", "head") if side in self._sides.ran),
            interrupted=self._sides.interrupted,
        )

    def _run_base(self, on_event: OnEvent | None) -> dict[CaseId, Outcome]:
        written: set[CaseId] = set()
        for number, case in enumerate(self._planned):
            if not case.base_module:
                continue
            twin = self._head[case.id].fingerprint if case.id in self._head else None
            eager_to = None
            if self._exchange is not None and twin is not None and (shared := _without_export(case.id)) not in written:
                written.add(shared)
                eager_to = str(self._exchange / f"{number}.safetensors")
            self._twins[case.id] = CaseRequest(id=case.id, module=case.base_module, twin=twin, eager_to=eager_to)
        tell = partial(self._tell, on_event) if on_event is not None else None
        found = self._sides.run({"base": tuple(self._twins.values())}, on_event=tell).get("base", {})
        return {case_id: self._whole(case_id, outcome) for case_id, outcome in found.items()}

    def _on_one_source(self, base: dict[CaseId, Outcome]) -> dict[CaseId, Outcome]:
        """Base's outcomes, those on another source than head's had again on head's; head's are told of it."""
        apart = [id_ for id_ in base if id_ in self._head and differ(base[id_], self._head[id_])]
        again = {
            id_: self._twins[id_].model_copy(
                update={"source": source_of(self._head[id_]), "eager_to": self._again(id_)}
            )
            for id_ in apart
            if source_of(base[id_]) is not source_of(self._head[id_])
        }
        found = self._run_more("base", tuple(again.values()), "on head's source")
        for id_ in apart:
            head, second = self._head[id_], found.get(id_)
            told = why(base[id_], head)
            if second is not None and second.kind is not OutcomeKind.UNAVAILABLE:
                self._twins[id_] = again[id_]
                # One that ended as head's twin, or died, could not say whose inputs it had.
                base[id_] = self._whole(id_, second).model_copy(update={"source": second.source or head.source})
                told += f"; base was run again on {head.source} too"
            else:
                told += ": the sides' inputs and graphs are not compared"
            self._head[id_] = head.model_copy(update={"notes": (*head.notes, told[:MAX_MESSAGE_CHARS])})
        return base

    def _again(self, case_id: CaseId) -> str | None:
        """Where a second run of a case leaves what the first has left elsewhere, on other inputs."""
        first = self._twins[case_id].eager_to
        return str(Path(first).with_stem(f"{Path(first).stem}-again")) if first else None

    def _compare_eager(
        self, requests: Mapping[CaseId, CaseRequest], base: Mapping[CaseId, Outcome]
    ) -> dict[CaseId, EagerChange]:
        """How eager's outputs moved, run once for all cases of one model; nothing where they are the same bits."""
        work = [
            requests[id_].model_copy(update={"eager_from": twin.eager_to})
            for id_, twin in self._twins.items()
            if twin.eager_to is not None and id_ in base and os.path.lexists(twin.eager_to)
            if id_ not in self._head or not differ(base[id_], self._head[id_])
        ]
        found = self._run_more("head", work, "eager on base's weights")
        changes = {_without_export(id_): _eager_change(outcome) for id_, outcome in found.items()}
        return {id_: change for id_ in base if (change := changes.get(_without_export(id_))) is not None}

    def _run_more(self, side: SideName, work: Sequence[CaseRequest], what: str) -> dict[CaseId, Outcome]:
        """Run some cases of a side in another way, watched as ``what``."""
        if not work:
            return {}
        with self._watch(len(work), what) as on_event:
            return self._sides.run({side: work}, on_event=on_event).get(side, {})

    def _tell(self, on_event: OnEvent, side: SideName, event: RunnerEvent) -> None:
        """Tell of base's outcomes as they are with what is known from head."""
        if isinstance(event, CaseFinished):
            event = event.model_copy(update={"outcome": self._whole(event.id, event.outcome)})
        on_event(side, event)

    def _whole(self, case_id: CaseId, outcome: Outcome) -> Outcome:
        """Base's outcome; where it ended because the rest is known from head, with that."""
        twin = self._twins[case_id].twin
        if twin is None or not twin.graphs or outcome.fingerprint != twin:
            return outcome
        own = {name: getattr(outcome, name) for name in _OF_ITS_OWN}
        return self._head[case_id].model_copy(update=own)


#: What an outcome that is known from the other side keeps of its own.
_OF_ITS_OWN = ("seconds", "stage_seconds", "peak_memory_bytes", "source", "tried", "parameters", "fed")


def _without_export(case_id: CaseId) -> CaseId:
    """One id for all cases of one model and inputs, whatever they are exported to."""
    return case_id.model_copy(update={"backend": Backend.DYNAMO, "shapes": Shapes.STATIC, "engine": Engine.OWN})


def _eager_change(outcome: Outcome) -> EagerChange:
    if outcome.kind is OutcomeKind.PASS and outcome.eager is not None:
        return outcome.eager
    return EagerChange(problem=f"{outcome.kind.value}: {outcome.message}"[:MAX_MESSAGE_CHARS])


def merged_versions(versions: Mapping[SideName, dict[str, str]]) -> dict[str, str]:
    """Each version once, and both where the sides' environments differ."""
    base = versions.get("base", {})
    head = versions.get("head", base)
    differing = {name: f"{text} (base {base[name]})" for name, text in head.items() if base.get(name, text) != text}
    return base | head | differing
