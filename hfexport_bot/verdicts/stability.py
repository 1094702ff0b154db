"""Whether runs of one case agree, and how often each side failed. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hfexport_bot.execution.reruns import Tries
from hfexport_bot.schema import Outcome, OutcomeKind, Tried, Try, VerdictKind
from hfexport_bot.settings import DriftSettings
from hfexport_bot.verdicts.likeness import alike, told_of
from hfexport_bot.verdicts.moved import DEFAULT_DRIFT
from hfexport_bot.verdicts.table import Facts, judge

_BY_CHANCE = frozenset({VerdictKind.REGRESSION, VerdictKind.FIXED, VerdictKind.CHANGED})


def may_be_chance(base: Outcome, head: Outcome, limits: DriftSettings = DEFAULT_DRIFT) -> bool:
    """Whether a case came to another end than on base, which further runs should confirm."""
    return judge(base, head, Facts(alike=alike(told_of(base), told_of(head), limits))) in _BY_CHANCE


def told(tries: Tries) -> Tried:
    """What a report tells of all runs of a case."""
    base, head = (tuple(map(told_of, side)) for side in (tries.base, tries.head))
    return Tried(base=base, head=head)


def is_stable(tried: Tried, limits: DriftSettings = DEFAULT_DRIFT) -> bool:
    """Whether each side always passed or never did, and two failing sides never failed alike."""
    if not (_agree(tried.base) and _agree(tried.head)):
        return False
    if OutcomeKind.PASS in (tried.base[0].kind, tried.head[0].kind):
        return True
    return not any(alike(base, head, limits) for base, head in itertools.product(tried.base, tried.head))


def how_often(tried: Tried) -> Iterator[str]:
    """``head failed 1 of 3 runs``, for each side that ever failed."""
    for side, runs in (("base", tried.base), ("head", tried.head)):
        if failed := sum(not _passes(each) for each in runs):
            yield f"{side} failed {failed} of {len(runs)} runs"


def _agree(runs: Sequence[Try]) -> bool:
    return len({_passes(each) for each in runs}) == 1


def _passes(run: Try) -> bool:
    return run.kind is OutcomeKind.PASS
