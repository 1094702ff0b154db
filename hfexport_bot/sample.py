"""Which of the affected classes to run where all of them would take too long: a representative sample.

A sample has a class for every changed symbol and for every kind of model, as far as its limits go. What changed itself
comes before what is reached through others, and what is cheap before what is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hfexport_bot.changes.exporters import SAMPLE
from hfexport_bot.changes.kinds import ClassKey, selected_kinds
from hfexport_bot.changes.libraries import lacking
from hfexport_bot.changes.selection import AffectedModule, Selection
from hfexport_bot.changes.tree import StoredTree
from hfexport_bot.errors import UsageError
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import Backend, CaseId, NotRun, OutcomeKind, Report, Sample, Task
from hfexport_bot.settings import Settings

#: Seconds of a job that a case takes on one side, without an earlier run to tell. From the reach suite, two jobs on two
#: busy cores: 122 forward cases of a backend took 7m 46s, 7m and 40m 40s, 75 of generate on all three 45m.
CASE_SECONDS: Mapping[tuple[Backend, Task], float] = {
    (Backend.DYNAMO, Task.FORWARD): 8,
    (Backend.ONNX, Task.FORWARD): 10,
    (Backend.EXECUTORCH, Task.FORWARD): 40,
    (Backend.DYNAMO, Task.GENERATE): 32,
    (Backend.ONNX, Task.GENERATE): 40,
    (Backend.EXECUTORCH, Task.GENERATE): 160,
}

_NOT_BUILT = frozenset({OutcomeKind.UNAVAILABLE, OutcomeKind.UNSUPPORTED})

_FAMILIAR = frozenset(key for keys in SAMPLE.values() for key in keys)


@dataclass(frozen=True)
class Candidate:
    """A class that could run: how many seconds of a job all its cases take on both sides, the changed symbols and
    other ``causes`` that lead to it, its kinds, by how many links it is away from what changed, and why it can probably
    not be built (empty: nothing is known)."""

    key: ClassKey
    seconds: float
    causes: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    distance: int = 0
    unlikely: str = ""

    @property
    def familiar(self) -> bool:
        """Whether it is known to have a model and inputs: then it goes before its equals."""
        return self.key in _FAMILIAR


@dataclass(frozen=True)
class Chosen:
    """A sample: its classes, best first, and what no class of it has, though a candidate does."""

    keys: tuple[ClassKey, ...]
    seconds: float
    missed_causes: tuple[str, ...] = ()
    missed_kinds: tuple[str, ...] = ()


def recorded_seconds(reports: Iterable[Report]) -> dict[CaseId, float]:
    """How long each case took in earlier reports, on the slower side; the last report that has it counts."""
    found: dict[CaseId, float] = {}
    for case in (case for report in reports for case in report.cases):
        seconds = max((side.seconds for side in (case.base, case.head) if side is not None), default=0.0)
        if seconds > 0:
            found[case.id] = seconds
    return found


def never_built(reports: Iterable[Report]) -> dict[ClassKey, str]:
    """The classes that had no model, or nothing that runs, in any of their cases of the last report that has them."""
    found: dict[ClassKey, str] = {}
    for report in reports:
        ends: dict[ClassKey, set[OutcomeKind]] = {}
        for case in report.cases:
            ends.setdefault((case.id.model, case.id.class_name), set()).add(case.outcome)
        for key, kinds in ends.items():
            found.pop(key, None)
            if kinds <= _NOT_BUILT:
                found[key] = f"it was {' and '.join(sorted(kinds))} in an earlier report"
    return found


def case_seconds(case: PlannedCase, recorded: Mapping[CaseId, float]) -> float:
    """How many seconds of a job a case takes on all its sides: as recorded, or as is usual."""
    sides = (case.base_module is not None) + (case.head_module is not None)
    return sides * (recorded.get(case.id) or CASE_SECONDS[case.id.backend, case.id.task])


def candidates(
    planned: Sequence[PlannedCase],
    selection: Selection,
    kinds: Mapping[ClassKey, frozenset[str]],
    recorded: Mapping[CaseId, float],
) -> tuple[Candidate, ...]:
    """What the planned cases could be cut down to, a candidate a class."""
    modules: dict[ClassKey, AffectedModule] = {}
    for module in selection.affected:
        file = module.head or module.base
        if file is not None:
            modules |= {(file.model, name): module for name in module.classes}
    seconds: dict[ClassKey, float] = {}
    for case in planned:
        key = key_of(case)
        seconds[key] = seconds.get(key, 0.0) + case_seconds(case, recorded)
    return tuple(
        Candidate(
            key,
            cost,
            modules[key].causes_of(key[1]),
            kinds.get(key, frozenset()),
            modules[key].distances.get(key[1], 0),
        )
        for key, cost in seconds.items()
    )


def key_of(case: PlannedCase) -> ClassKey:
    """The class of a case."""
    return case.id.model, case.id.class_name


def fits(every: Sequence[Candidate], models: int, seconds: float) -> bool:
    """Whether all classes may run: at most ``models`` of them and so many seconds of jobs, 0 for no limit."""
    return len(every) <= (models or len(every)) and (not seconds or sum(each.seconds for each in every) <= seconds)


def choose(every: Sequence[Candidate], models: int, seconds: float) -> Chosen:
    """The classes to run; limits as for `fits`. One class runs whatever it costs."""
    most, budget = models or len(every), seconds or math.inf
    left = sorted(every, key=lambda each: (each.distance, each.seconds, each.key))
    taken: list[Candidate] = []
    causes: set[str] = set()
    kinds: set[str] = set()
    taken_of: dict[str, int] = {}
    spent = 0.0
    while left and len(taken) < most:
        best = min(left, key=lambda each: (bool(each.unlikely), *_rank(each, causes, kinds, taken_of)))
        taken.append(best)
        spent += best.seconds
        causes |= best.causes
        kinds |= best.kinds
        taken_of[best.key[0]] = taken_of.get(best.key[0], 0) + 1
        left = [each for each in left if each is not best and spent + each.seconds <= budget]
    return Chosen(
        tuple(each.key for each in taken),
        spent,
        tuple(sorted({cause for each in every for cause in each.causes} - causes)),
        tuple(sorted({kind for each in every for kind in each.kinds} - kinds)),
    )


def _rank(each: Candidate, causes: set[str], kinds: set[str], models: Mapping[str, int]) -> tuple[float, ...]:
    """Lowest first. New causes come before all else, then new kinds; what adds neither shares out among models."""
    new_causes, new_kinds = len(each.causes - causes), len(each.kinds - kinds)
    if new_causes:
        return (0, -new_causes, each.distance, not each.familiar, -new_kinds, each.seconds)
    if new_kinds:
        return (1, -new_kinds, each.distance, not each.familiar, each.seconds)
    return (2, 0, each.distance + models.get(each.key[0], 0), not each.familiar, each.seconds)


@dataclass(frozen=True)
class Taken:
    """What is left of a plan: its cases, the classes that it leaves out, and what the report says of it."""

    planned: tuple[PlannedCase, ...]
    not_run: tuple[NotRun, ...] = ()
    sample: Sample | None = None


def take_sample(
    planned: Sequence[PlannedCase],
    selection: Selection,
    trees: tuple[StoredTree, StoredTree],
    settings: Settings,
    reports: Sequence[Report],
    jobs: int,
    aside: float = 0.0,
) -> Taken:
    """Cut a plan down to what the settings allow; ``reports`` of earlier runs tell how long cases take, and the part
    ``aside`` of the time is for an audit of workarounds."""
    every = candidates(planned, selection, {}, recorded_seconds(reports))
    budget = settings.budget_minutes * 60 * jobs * (1 - aside)
    if fits(every, settings.max_models, budget):
        return Taken(tuple(planned))
    kinds = selected_kinds(selection, *trees)
    unlikely = lacking(selection, *trees) | never_built(reports)
    every = tuple(
        replace(each, kinds=kinds.get(each.key, frozenset()), unlikely=unlikely.get(each.key, "")) for each in every
    )
    chosen = choose(every, settings.max_models, budget)
    kept = set(chosen.keys)
    limits = [f"max-models: {settings.max_models}"] * (not fits(every, settings.max_models, 0))
    kept_aside = f", {aside:.0%} of them for workarounds" if aside else ""
    limits += [f"budget-minutes: {settings.budget_minutes:g}{kept_aside}"] * (not fits(every, 0, budget))
    why = {key_of(case): case.reason for case in planned}
    return Taken(
        tuple(case for case in planned if key_of(case) in kept),
        left_out(every, chosen, why),
        Sample(
            classes=len(kept),
            affected=len(every),
            limits=tuple(limits),
            estimated_seconds=chosen.seconds / jobs,
            kinds=tuple(sorted({kind for each in every if each.key in kept for kind in each.kinds})),
            missed_causes=chosen.missed_causes,
            missed_kinds=chosen.missed_kinds,
            unlikely=sum(bool(each.unlikely) for each in every if each.key in kept),
            passed_over=sum(bool(each.unlikely) for each in every if each.key not in kept),
        ),
    )


def without_done(planned: Sequence[PlannedCase], report: Report, base: str, head: str) -> tuple[PlannedCase, ...]:
    """The planned cases of classes that have none in a report of the same change.

    Raises `UsageError` when the report is of another change.
    """
    shas = (report.base.sha if report.base else "", report.head.sha)
    if shas != (base, head):
        raise UsageError(
            f"--rest: that report is of {shas[1][:12]} on {shas[0][:12] or 'no base'}, this run of {head[:12]} on "
            f"{base[:12]}; give the report of the sample, and its --base and --head"
        )
    half = {entry.name for entry in report.not_run if entry.kind == "case"}
    done = {(case.id.model, case.id.class_name) for case in report.cases if str(case.id) not in half}
    return tuple(case for case in planned if key_of(case) not in done)


def left_out(every: Sequence[Candidate], chosen: Chosen, reasons: Mapping[ClassKey, str]) -> tuple[NotRun, ...]:
    """An entry for each class that is not in a sample."""
    kept = set(chosen.keys)
    return tuple(
        NotRun(
            kind="class",
            name="/".join(each.key),
            reason=f"not in the sample{f', as {each.unlikely}' * bool(each.unlikely)}; {reasons.get(each.key, '')}",
        )
        for each in every
        if each.key not in kept
    )
