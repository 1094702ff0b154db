"""Run again what came to another end than before, to tell chance from change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hfexport_bot.execution.sides import OnEvent, SideName, Sides, Watch
from hfexport_bot.schema import CaseId, CaseRequest, Outcome, OutcomeKind

#: Ends that a busy machine can bring about.
_OF_THE_MACHINE = frozenset({OutcomeKind.TIMEOUT, OutcomeKind.OOM, OutcomeKind.CRASH})

Requests = Mapping[CaseId, CaseRequest]


@dataclass(frozen=True)
class Reruns:
    """How often to run a case again, at most, on both sides; which; and when to be done, by ``time.monotonic``."""

    times: int
    wanted: Callable[[Outcome, Outcome], bool]
    until: float | None = None


@dataclass(frozen=True)
class Tries:
    """All outcomes of one case, the first ones included."""

    base: tuple[Outcome, ...]
    head: tuple[Outcome, ...]


def run_again(
    sides: Sides,
    requests: Mapping[SideName, Requests],
    first: Mapping[SideName, Mapping[CaseId, Outcome]],
    reruns: Reruns,
    watch: Watch,
) -> tuple[dict[CaseId, Tries], tuple[CaseId, ...]]:
    """All outcomes of the cases that are worth it, by case; and those for which there was no time.

    What a busy machine may have ended is run alone. Each round runs the quickest cases, those that are done in time.
    """
    base, head = first["base"], first["head"]
    wanted = [id_ for id_ in requests["base"] if id_ in base and id_ in head and reruns.wanted(base[id_], head[id_])]
    found = {id_: Tries((base[id_],), (head[id_],)) for id_ in wanted}
    alone = [id_ for id_ in wanted if {base[id_].kind, head[id_].kind} & _OF_THE_MACHINE]
    together = [id_ for id_ in wanted if id_ not in alone]
    for _ in range(reruns.times):
        for ids, at_once in ((together, sides.jobs), (alone, 1)):
            chosen = list(_in_time(ids, found, reruns.until, at_once))
            if not chosen:
                continue
            work: dict[SideName, list[CaseRequest]] = {
                side: [requests[side][id_] for id_ in chosen] for side in ("base", "head")
            }
            with watch(2 * len(chosen), "again") as on_event:
                again = sides.run(work, on_event=on_event) if ids is together else _one_by_one(sides, work, on_event)
            base_again, head_again = again.get("base", {}), again.get("head", {})
            for id_ in (id_ for id_ in chosen if id_ in base_again and id_ in head_again):  # all, if not interrupted
                tries = found[id_]
                found[id_] = Tries((*tries.base, base_again[id_]), (*tries.head, head_again[id_]))
    tries_of = {id_: tries for id_, tries in found.items() if len(tries.head) > 1}
    if sides.interrupted:  # which is why, and not the time
        return tries_of, ()
    return tries_of, tuple(id_ for id_ in found if id_ not in tries_of and reruns.times)


def _one_by_one(
    sides: Sides, work: Mapping[SideName, list[CaseRequest]], on_event: OnEvent | None
) -> dict[SideName, dict[CaseId, Outcome]]:
    found: dict[SideName, dict[CaseId, Outcome]] = {}
    for side, requests in work.items():
        found |= sides.run({side: requests}, on_event=on_event, jobs=1)
    return found


def _in_time(ids: Iterable[CaseId], found: Mapping[CaseId, Tries], until: float | None, cpus: int) -> Iterator[CaseId]:
    """The quickest of some cases, as many as will have been run on both sides by then."""
    took = {id_: found[id_].base[0].seconds + found[id_].head[0].seconds for id_ in ids}
    ends = time.monotonic()
    for id_ in sorted(took, key=took.__getitem__):
        ends += took[id_] / cpus
        if until is None or ends <= until:
            yield id_
