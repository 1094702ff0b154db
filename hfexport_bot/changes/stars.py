"""Star imports that changed, or stand in a new order: the names that they bind otherwise now."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from hfexport_bot.changes.graph import Graph
from hfexport_bot.changes.imports import ChangedImport
from hfexport_bot.changes.order import MOVED, Star
from hfexport_bot.changes.symbols import Compared, Symbol
from hfexport_bot.changes.units import IMPORT, WHOLE


def with_starred(compared: Compared, path: str, graph: Graph) -> Compared:
    """What differs between two versions of a file, with the names that star imports bind otherwise."""
    known = {symbol.definition for symbol in compared.symbols}
    hows = {name: how for name, how in _rebound(compared, path, graph) if name not in known}
    defined = {name for facts in graph.modules.facts.get(path, ()) for name in facts.rows}
    imports = tuple(
        ChangedImport(name, how, tuple((use.definition, use.part) for use in graph.users_in(path, name)))
        for name, how in hows.items()
        if name not in defined
    )
    symbols = tuple(Symbol(path, name, WHOLE if name in defined else IMPORT, how) for name, how in hows.items())
    return replace(compared, symbols=compared.symbols + symbols, imports=compared.imports + imports)


def _rebound(compared: Compared, path: str, graph: Graph) -> Iterator[tuple[str, str]]:
    """The names that are bound otherwise, and how."""
    for name, stars in compared.starred.items():
        offered = [_offered(star, path, graph) for star in sorted(stars)]
        if name is None:
            yield from ((each, MOVED) for each in _brought(offered, 2, path, graph))
        elif any(name in names if names is not None else name[0] != "_" for names in offered):
            yield name, MOVED
    offered = [_offered(star, path, graph) for star in sorted(compared.stars)]
    yield from ((each, "changed") for each in _brought(offered, 1, path, graph))


def _brought(offered: Sequence[Collection[str] | None], times: int, path: str, graph: Graph) -> Sequence[str]:
    """The names that so many of some star imports may bring."""
    unknown = offered.count(None)
    found = Counter(each for names in offered for each in names or ())
    names = {each for each, known in found.items() if known + unknown >= times}
    return sorted(names | _left_open(path, graph) if unknown >= times else names)


def _offered(star: Star, path: str, graph: Graph) -> Collection[str] | None:
    """The names that a star import brings; None where its module is none of the repository's."""
    module = graph.modules.module(path, *star)
    return None if module is None else graph.modules.exported(module).keys()


def _left_open(path: str, graph: Graph) -> set[str]:
    """The names that a file uses and that only a star import can have bound."""
    versions = graph.modules.facts.get(path, ())
    used = {
        name.partition(".")[0].partition("[")[0]
        for facts in versions
        for definition in facts.definitions.values()
        for part in definition.parts.values()
        for name in part.names
    }
    bound = {name for facts in versions for name in (*facts.rows, *(row.local for row in facts.imports))}
    return {name for name in used - bound if name.isidentifier() and not hasattr(builtins, name)}
