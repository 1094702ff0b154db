"""Whether both sides of a case ran on inputs of one source. Pure."""

from __future__ import annotations

from hfexport_bot.schema import Outcome, Source

_SHOWN = 300


def source_of(outcome: Outcome) -> Source | None:
    """Where an outcome's model and inputs come from; None where it has none."""
    name = outcome.source.partition(":")[0]
    return Source(name) if name in {each.value for each in Source} else None


def differ(base: Outcome, head: Outcome) -> bool:
    """Whether the sides' models and inputs come from two sources, or from two testers since one side's failed: then
    what differs in a graph need not be the model's doing."""
    if not (base.source and head.source):
        return False
    return source_of(base) is not source_of(head) or bool(_failure(base, head) or _failure(head, base))


def why(base: Outcome, head: Outcome) -> str:
    """What the report says of sides that differ, before what was done about it."""
    for name, side, other in (("head", head, base), ("base", base, head)):
        if failed := _failure(side, other):
            return f"{name} has no inputs from {other.source}, since {failed[:_SHOWN]}"
    return f"head's inputs come from {head.source}, base's from {base.source}"


def _failure(side: Outcome, other: Outcome) -> str:
    """Why a side has no inputs from where the other's come from; empty where that was not tried in vain."""
    _, _, origin = other.source.partition(": ")
    return next(
        (
            each.message or str(each.cause)
            for each in side.tried
            if each.cause is not None and each.source == source_of(other) and each.name in ("", origin)
        ),
        "",
    )
