"""Whether a workaround is still needed: which cases to run without it, and what they tell. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hfexport_bot.changes.workarounds import EditedWorkarounds
from hfexport_bot.schema import (
    AuditedCase,
    Backend,
    CaseId,
    CaseReport,
    Need,
    Outcome,
    OutcomeKind,
    WorkaroundAudit,
)
from hfexport_bot.verdicts.compare import describe
from hfexport_bot.verdicts.moved import DEFAULT_DRIFT, drifts

#: Cases that a workaround is tried on, at most.
MOST_CASES = 3

#: Outcomes that tell of the limits of a run, or of the model, and nothing of an export.
_TELLS_NOTHING = frozenset(
    {
        *(OutcomeKind.TIMEOUT, OutcomeKind.OOM, OutcomeKind.CRASH),
        *(OutcomeKind.UNAVAILABLE, OutcomeKind.NONDETERMINISTIC, OutcomeKind.SKIPPED),
    }
)
#: How a case ends that works with a workaround, or is skipped by it: then it can tell what happens without.
_WORKS = frozenset({OutcomeKind.PASS, OutcomeKind.SKIPPED})
#: An artifact that is twice as big, or ten times as wrong, may be what a workaround is there to prevent.
_MUCH = DEFAULT_DRIFT.model_copy(update={"nodes": 1.0, "delegates": 1.0, "bytes": 1.0})


@dataclass(frozen=True)
class Trial:
    """One case to run with one workaround switched off."""

    workaround: str
    case: CaseId


def hit_ids(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """The ids of all workarounds that some outcomes hit, sorted."""
    return tuple(sorted({name for outcome in outcomes for name in outcome.workarounds}))


def concerned(edited: EditedWorkarounds, outcomes: Mapping[CaseId, Outcome]) -> tuple[str, ...]:
    """The workarounds that a change is about: those that some outcomes hit, by id, and those of which it is known that
    they are there, though none did: by id, or by the name of their function."""
    backends: dict[str, set[Backend]] = {}
    for case, outcome in outcomes.items():
        for name in outcome.workarounds:
            backends.setdefault(name, set()).add(case.backend)
    hit = {name for name, where in backends.items() if edited.concerns(name, where)}
    functions = {name.rpartition("/")[2] for name in hit}
    return tuple(sorted(hit | edited.theirs | (edited.own - functions)))


def choose_trials(
    workarounds: Sequence[str], outcomes: Mapping[CaseId, Outcome], most: int = MOST_CASES
) -> tuple[Trial, ...]:
    """For each workaround at most ``most`` of the cases that hit it, cheapest first.

    A backend that none of them is of yet goes before a second case of another, since a workaround of torch.export may
    be needed for what comes after it; and a case that is run for another workaround anyway before a new one.
    """
    trials: list[Trial] = []
    used: set[CaseId] = set()
    for name in workarounds:
        left = [case for case, outcome in outcomes.items() if name in outcome.workarounds and outcome.kind in _WORKS]
        backends: Counter[Backend] = Counter()
        while left and sum(backends.values()) < most:
            best = min(left, key=lambda case: (backends[case.backend], case not in used, outcomes[case].seconds))
            left.remove(best)
            used.add(best)
            backends[best.backend] += 1
            trials.append(Trial(name, best))
    return tuple(trials)


def rounds(trials: Sequence[Trial]) -> tuple[tuple[Trial, ...], ...]:
    """The trials in groups that have each case once, for each group to be run at a time."""
    groups: list[list[Trial]] = []
    seen: Counter[CaseId] = Counter()
    for trial in trials:
        if seen[trial.case] == len(groups):
            groups.append([])
        groups[seen[trial.case]].append(trial)
        seen[trial.case] += 1
    return tuple(map(tuple, groups))


def judge_trial(trial: Trial, control: Outcome, without: Outcome) -> AuditedCase:
    """What a case tells that works with a workaround, or is skipped by it (``control``), and came to ``without``."""
    if without.kind in _TELLS_NOTHING:
        need, said = Need.UNKNOWN, describe(without)
    elif without.kind is not OutcomeKind.PASS:
        need, said = Need.NEEDED, describe(without)
    elif moved := drifts(control, without, _MUCH):
        need, said = Need.UNKNOWN, f"passes without it, but {', '.join(moved)}"
    else:
        need, said = Need.NOT_NEEDED, "passes without it"
    return AuditedCase(
        id=trial.case, need=need, outcome=without.kind, stage=without.stage, said=said, seconds=without.seconds
    )


def judge_workaround(name: str, cases: Sequence[AuditedCase], unhit: str = "no case hits it") -> WorkaroundAudit:
    """One that fails without it decides; where all pass, it is not needed for them. ``unhit``: why none was run."""
    by_need = {need: [case for case in cases if case.need is need] for need in Need}
    for need in (Need.NEEDED, Need.UNKNOWN):
        if by_need[need]:
            first = by_need[need][0]
            return WorkaroundAudit(id=name, need=need, said=f"{first.id}: {first.said}", cases=tuple(cases))
    if not cases:
        return WorkaroundAudit(id=name, need=Need.UNKNOWN, said=unhit)
    passing = f"{', '.join(str(case.id) for case in cases)} {'passes' if len(cases) == 1 else 'pass'} without it"
    return WorkaroundAudit(id=name, need=Need.NOT_NEEDED, said=passing, cases=tuple(cases))


def with_removed(case: CaseReport, removed: Collection[str]) -> CaseReport:
    """A case that fails on head with those of some removed workarounds that base hit in it, which say why it may."""
    if case.base is None or case.head is None or case.head.kind in _WORKS:
        return case
    lost = tuple(sorted({*removed} & case.base.workarounds.keys() - case.head.workarounds.keys()))
    said = (f"removed by this change, and base hit it in this case: {', '.join(lost)}",) if lost else ()
    return case.model_copy(update={"removed": lost, "details": (*said, *case.details)})
