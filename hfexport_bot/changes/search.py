"""What is found by following uses from changed symbols: nodes, how each is affected, and by which of the symbols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hfexport_bot.changes.given import Given
from hfexport_bot.schema import Task


class Node(NamedTuple):
    """Something affected: a definition, a member of a broad base, or an entry of a table. With ``when``, only for code
    that gives one of these."""

    path: str
    definition: str
    part: str = ""
    when: tuple[Given, ...] = ()


class Visit(NamedTuple):
    """How a node is affected: in every case, or in those of ``generate`` alone, and from which node. One that does not
    count is a link of chains alone."""

    task: Task
    before: Node | None
    counts: bool = True


Reached = Mapping[Node, Visit]


@dataclass
class Search:
    """One walk: what it found, each node with those that lead there, the seeds it began with by their nodes, and what
    of it counts (None: all)."""

    found: dict[Node, Visit] = field(default_factory=dict)
    before: dict[Node, list[Node]] = field(default_factory=dict)
    starts: Mapping[Node, Sequence[Node]] = field(default_factory=dict)
    counts: Mapping[Node, object] | None = None

    def causes(self) -> Mapping[Node, int]:
        """The seeds that lead to each node, as bits in the order of ``starts``."""
        bits = {start: 1 << place for place, start in enumerate(self.starts)}
        found = {node: bits.get(node, 0) for node in self.found}
        moved = True
        while moved:  # nodes come in the order in which they were found, so that few rounds are needed
            moved = False
            for node, known in found.items():
                mask = known
                for before in self.before.get(node, ()):
                    mask |= found[before]
                if mask != known:
                    found[node], moved = mask, True
        return found


@dataclass(frozen=True)
class Affected:
    """All that some seeds affect."""

    reached: Reached
    searches: Sequence[Search]

    def causes(self, goals: Iterable[Node]) -> Mapping[Node, frozenset[Node]]:
        """The seeds that affect each of the goals."""
        found: dict[Node, set[Node]] = {goal: set() for goal in goals}
        for search in self.searches:
            groups = list(search.starts.values())
            for node, mask in search.causes().items():
                if mask and node in found and (search.counts is None or node in search.counts):
                    found[node].update(*(seeds for place, seeds in enumerate(groups) if mask >> place & 1))
        return {goal: frozenset(seeds) for goal, seeds in found.items()}
