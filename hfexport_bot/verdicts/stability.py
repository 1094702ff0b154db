"""Whether runs of one case agree, and how often each side failed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hfexport_bot.execution.reruns import Tries
from hfexport_bot.schema import Outcome, OutcomeKind, VerdictKind
from hfexport_bot.verdicts.signatures import signature
from hfexport_bot.verdicts.table import Facts, judge

_BY_CHANCE = frozenset({VerdictKind.REGRESSION, VerdictKind.FIXED, VerdictKind.CHANGED})


def may_be_chance(base: Outcome, head: Outcome) -> bool:
    """Whether a case came to another end than on base, which further runs should confirm."""
    return judge(base, head, Facts(alike=signature(base) == signature(head))) in _BY_CHANCE


def is_stable(tries: Tries) -> bool:
    """Whether each side always passed or never did, and two failing sides never failed alike."""
    if not (_agree(tries.base) and _agree(tries.head)):
        return False
    if OutcomeKind.PASS in (tries.base[0].kind, tries.head[0].kind):
        return True
    return not {signature(each) for each in tries.base} & {signature(each) for each in tries.head}


def how_often(tries: Tries) -> Iterator[str]:
    """``head failed 1 of 3 runs``, for each side that ever failed."""
    for side, outcomes in (("base", tries.base), ("head", tries.head)):
        if failed := sum(not _passes(each) for each in outcomes):
            yield f"{side} failed {failed} of {len(outcomes)} runs"


def _agree(outcomes: Sequence[Outcome]) -> bool:
    return len({_passes(each) for each in outcomes}) == 1


def _passes(outcome: Outcome) -> bool:
    return outcome.kind is OutcomeKind.PASS
