"""Tables that are filled from other places than where they are defined: by calls that run when a file is imported, such
as ``TABLE.update(a=f)`` or ``fill()``. What is put in affects what reads the table, where the file is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from hfexport_bot.changes.graph import Graph, Use
from hfexport_bot.changes.registries import KEPT
from hfexport_bot.changes.search import Node
from hfexport_bot.changes.units import BODY, CALLED, IMPORT, WHOLE

#: Methods that put something in by the key that they are given.
_BY_KEY = frozenset({"update", "setdefault", "register"})


def filled(graph: Graph, node: Node) -> Iterator[Use]:
    """The tables that a definition fills, or the entries where their keys are known. Where a call hands something to
    what is not of the repository, or to a function that keeps it somewhere, that is whatever loads the file."""
    path, name, part = node.path, node.definition, node.part
    kind = graph.kind(path, name)
    if name.endswith(CALLED):
        called = name.removesuffix(CALLED)
        found = [*_tables(graph, path, called, part if called.rpartition(".")[2] in _BY_KEY else "")]
        yield from found or (Use(path, IMPORT, ""),)
    elif kind == "constant" and any(row.local == name for facts in graph.modules.facts[path] for row in facts.imports):
        # ``TABLE += [f]`` of one that is imported
        yield from (use for use in _tables(graph, path, name, part) if use[:2] != (path, name))
    elif kind == "constant" and (
        tables := {each for facts in graph.modules.facts[path] for each in facts.fills.get(name, ())}
    ):
        if KEPT in tables:
            yield Use(path, IMPORT, "")
        for table in sorted(tables - {KEPT}):
            yield from _tables(graph, path, table, "")
    elif name == BODY and (body := graph.definition(path, BODY)) is not None:
        for word in body.parts[WHOLE].names:
            yield from _by_function(graph, path, word, "")


def _tables(graph: Graph, path: str, dotted: str, part: str) -> Iterator[Use]:
    for target, name in graph.resolve(path, dotted):
        kind = graph.kind(target, str(name))
        if kind == "constant":
            yield Use(target, str(name), part)
        elif kind == "class":
            yield Use(target, str(name), "")
    yield from _by_function(graph, path, dotted, part)


def _by_function(graph: Graph, path: str, dotted: str, part: str) -> Iterator[Use]:
    for target, name in graph.resolve(path, dotted):
        for facts in graph.modules.facts.get(target, ()) if graph.kind(target, str(name)) == "function" else ():
            for table in facts.fills.get(str(name), ()):
                yield from _tables(graph, target, table, part)
