"""Star imports in a new order: the names that another one of them binds now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from hfexport_bot.changes.graph import Graph
from hfexport_bot.changes.imports import ChangedImport
from hfexport_bot.changes.order import MOVED, Star
from hfexport_bot.changes.symbols import Compared, Symbol
from hfexport_bot.changes.units import IMPORT, WHOLE


def with_starred(compared: Compared, path: str, graph: Graph) -> Compared:
    """What differs between two versions of a file, with the names that star imports bind in another order."""
    known = {symbol.definition for symbol in compared.symbols}
    names = [each for each in dict.fromkeys(_rebound(compared, path, graph)) if each not in known]
    defined = {name for facts in graph.modules.facts.get(path, ()) for name in facts.rows}
    imports = tuple(
        ChangedImport(name, MOVED, tuple((use.definition, use.part) for use in graph.users_in(path, name)))
        for name in names
        if name not in defined
    )
    symbols = tuple(Symbol(path, name, WHOLE if name in defined else IMPORT, MOVED) for name in names)
    return replace(compared, symbols=compared.symbols + symbols, imports=compared.imports + imports)


def _rebound(compared: Compared, path: str, graph: Graph) -> Iterator[str]:
    for name, stars in compared.starred.items():
        offered = [_offered(star, path, graph) for star in sorted(stars)]
        if name is not None:
            if any(name in names if names is not None else name[0] != "_" for names in offered):
                yield name
            continue
        several = Counter(each for names in offered for each in names or ())
        unknown = offered.count(None)
        yield from sorted(each for each, times in several.items() if times + unknown > 1)
        if unknown > 1:
            yield from sorted(_left_open(path, graph))


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
    return {name for name in used - bound if name.isidentifier()}
