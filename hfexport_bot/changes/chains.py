"""Why a class is affected: the chain from what changed to it, and the file that its author may edit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from hfexport_bot.changes.facts import Facts
from hfexport_bot.changes.search import Node, Reached
from hfexport_bot.changes.symbols import Symbol, told
from hfexport_bot.changes.units import BODY, EFFECTS, IMPORT

#: Links of a chain that are shown.
_SHOWN = 5
#: Changed symbols that are named where a definition has several.
_NAMED = 3


class Chains:
    """Writes reasons.

    Args:
        reached: what was reached, each node with the one before.
        seeds: the changed symbols of each node that a chain may start from.
        facts: the facts of a file.
        is_there: whether a side has a file, one whose facts are not read too.
    """

    def __init__(
        self,
        reached: Reached,
        seeds: Mapping[Node, Sequence[Symbol]],
        facts: Callable[[str], Sequence[Facts]],
        is_there: Callable[[str], bool],
    ) -> None:
        self._reached = reached
        self._facts = facts
        self._is_there = is_there
        # Members of a class are seeds of their own and one node: it is affected by all of them.
        self._symbols: dict[Node, list[Symbol]] = {}
        for seed, symbols in seeds.items():
            for node in {seed, *(Node(*seed[:2], when=when) for when in ((), seed.when))}:
                self._symbols.setdefault(node, []).extend(symbols)

    def text(self, node: Node, class_name: str) -> str:
        """The chain that leads to a node, ending in a class."""
        nodes = self._nodes(node)
        first = nodes[0]
        links = [name for name, _ in itertools.groupby(map(_name, nodes))]
        if links[-1] != class_name:
            links.append(class_name)
        symbols = self._symbols.get(first, [])
        start = self._start(symbols) if symbols else f"{links[0]} changed"
        rest = links[1:]
        if len(rest) > _SHOWN:
            rest = [*rest[:2], "…", *rest[2 - _SHOWN :]]
        return " → ".join([start, *rest])

    def distance(self, node: Node) -> int:
        """How many links lead from what changed to a node."""
        return len([*itertools.groupby(map(_name, self._nodes(node)))]) - 1

    def _nodes(self, node: Node) -> list[Node]:
        """The nodes of a chain, from what changed on."""
        found = [node]
        while (before := self._reached[found[-1]].before) is not None:
            found.append(before)
        return found[::-1]

    def _start(self, symbols: Sequence[Symbol]) -> str:
        names = list(dict.fromkeys(symbol.name for symbol in symbols))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        hows = {symbol.how for symbol in symbols}
        how = "changed" if len(hows) > 1 else hows.pop()
        path = symbols[0].path
        if how.startswith("reads "):
            return f"{', '.join(names[:_NAMED])}{more} in {PurePosixPath(path).name} {how}"
        if symbols[0].definition in (EFFECTS, IMPORT) and how != "changed":
            return f"{PurePosixPath(path).name} {how}"
        return f"{told(names[:_NAMED], how, more)} in {self._edited(path)}{self._copied(symbols[0])}"

    def _edited(self, path: str) -> str:
        """The file that the author of a change to ``path`` edits. A copy from elsewhere has its header, and not the
        file that this names."""
        file = PurePosixPath(path)
        for facts in self._facts(path):
            if facts.generated and self._is_there(str(file.with_name(facts.generated))):
                return facts.generated
        return file.name

    def _copied(self, symbol: Symbol) -> str:
        for facts in self._facts(symbol.path):
            definition = facts.definitions.get(symbol.definition)
            if definition is not None and definition.copied:
                return f", a copy of {definition.copied}"
        return ""


def _name(node: Node) -> str:
    if node.definition in (EFFECTS, IMPORT):
        return f"the import of {PurePosixPath(node.path).name}"
    if node.definition == BODY:
        return f"module-level code of {PurePosixPath(node.path).name}"
    return Symbol(*node[:3]).name
