"""The verdict table: what a change did to one case, from its two sides and a handful of facts. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hfexport_bot.schema import Outcome, OutcomeKind, VerdictKind


class Missing(Enum):
    """Why a side has no outcome."""

    ABSENT = "absent"
    """The class does not exist on that side."""
    NOT_RUN = "not run"
    """There is no baseline to compare with."""


ABSENT = Missing.ABSENT
NOT_RUN = Missing.NOT_RUN

#: One side of a case: what it came to, or why there is nothing.
Side = Outcome | Missing


@dataclass(frozen=True)
class Facts:
    """What the table needs to know beyond the two outcomes.

    ``accepted``: a valid entry of the base revision accepts this failure. ``must_pass``: the change removes that
    entry. ``stable``: reruns agreed, or none was needed. ``same_graph``: graphs, constants and exporters are the same
    on both sides. ``interface_moved`` and ``drifted``: see :mod:`hfexport_bot.verdicts.compare`. ``alike``: both
    failures have one signature, and head's numbers are no worse.
    """

    accepted: bool = False
    must_pass: bool = False
    stable: bool = True
    same_graph: bool = False
    interface_moved: bool = False
    drifted: bool = False
    alike: bool = False


def judge(base: Side, head: Side, facts: Facts) -> VerdictKind:
    """Judge one case. The first line that applies wins:

    ============================  ===================================================================
    head absent                   ``removed``
    base absent                   ``new``
    base not run                  ``no-baseline``
    reruns disagree               ``flaky``
    fails, and must pass          ``regression``
    pass, then anything else      ``regression``; ``known`` when an accepted entry covers it
    anything else, then pass      ``fixed``
    fails on both sides           ``known`` when accepted, or with one kind, stage and signature, otherwise ``changed``
    passes on both sides          ``interface``, ``drift``, ``unchanged`` or ``ok``, in this order
    ============================  ===================================================================

    Only ``pass`` passes: a case that was skipped or had no model is one that fails, and ``pass`` then
    ``skipped`` is a regression like any other until the base revision's settings accept it. An accepted
    regression is ``known``.

    Raises ``ValueError`` for two sides that cannot meet: absent on both, or a head that was not run.
    """
    if isinstance(base, Missing) or isinstance(head, Missing):
        return _one_sided(base, head)
    if not facts.stable:
        return VerdictKind.FLAKY

    passed, passes = base.kind is OutcomeKind.PASS, head.kind is OutcomeKind.PASS
    if facts.must_pass and not passes:
        return VerdictKind.REGRESSION
    if passed and passes:
        return _both_pass(facts)
    if passed:
        return VerdictKind.KNOWN if facts.accepted else VerdictKind.REGRESSION
    if passes:
        return VerdictKind.FIXED
    same = facts.alike and base.kind is head.kind and base.stage == head.stage
    return VerdictKind.KNOWN if same or facts.accepted else VerdictKind.CHANGED


def _one_sided(base: Side, head: Side) -> VerdictKind:
    if head is NOT_RUN or (base is ABSENT and head is ABSENT):
        raise ValueError(f"no verdict on base {_name(base)!r} and head {_name(head)!r}")
    if head is ABSENT:
        return VerdictKind.REMOVED
    return VerdictKind.NEW if base is ABSENT else VerdictKind.NO_BASELINE


def _both_pass(facts: Facts) -> VerdictKind:
    if facts.interface_moved:
        return VerdictKind.INTERFACE
    if facts.drifted:
        return VerdictKind.DRIFT
    return VerdictKind.UNCHANGED if facts.same_graph else VerdictKind.OK


def _name(side: Side) -> str:
    return side.value if isinstance(side, Missing) else side.kind.value
