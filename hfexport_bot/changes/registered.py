"""Where definitions are registered: what reads a table is affected by what is put into it."""

from __future__ import annotations

from collections.abc import Iterator

from hfexport_bot.changes.graph import Graph, Use
from hfexport_bot.changes.modules import ANYTHING
from hfexport_bot.changes.registries import REGISTERING
from hfexport_bot.changes.units import IMPORT
from hfexport_bot.changes.uses import OPERATORS


def registered(graph: Graph, path: str, name: str) -> Iterator[Use]:
    """What a definition is put into by its decorators, by its entry where that is known, and what reads the tables of
    the classes that it derives from."""
    for facts in graph.modules.facts.get(path, ()):
        for dotted, key in facts.marks.get(name, ()):
            if "::" in key:
                yield from _of_operator(graph, key.strip("'\""))
            elif REGISTERING.fullmatch(dotted) and not _is_own(graph, path, dotted.partition(".")[0]):
                yield Use(path, IMPORT, "")
            last = dotted.rpartition(".")[2]
            for target, owner in graph.resolve(path, dotted):
                kind = graph.kind(target, str(owner))
                if kind == "function" and ("." not in dotted or last == owner):
                    yield from _tables(graph, target, str(owner), f"[{key}]" if key else "")
                elif "." in dotted and (kind in ("class", "function") or _makes_own(graph, target, str(owner))):
                    yield Use(target, str(owner), "")
    yield from _listed(graph, path, name)
    for base in sorted((target, str(owner)) for target, owner in graph.ancestors(path, name)):
        if base != (path, name) and any(base[1] in facts.fills for facts in graph.modules.facts.get(base[0], ())):
            yield from (use for use in graph.users(*base) if use.after[:1].isidentifier())


def _is_own(graph: Graph, path: str, root: str) -> bool:
    """Whether a name of a file leads to something of the repository."""
    return any(name != ANYTHING for _, name in graph.resolve(path, root))


def _listed(graph: Graph, path: str, name: str) -> Iterator[Use]:
    """What asks the classes that a class derives from for all that derive from them."""
    for mention in graph.mentions("__subclasses__"):
        asked = [(mention.path, mention.definition)] if mention.own else graph.resolve(mention.path, mention.root)
        if not graph.ancestors(path, name).isdisjoint(asked):
            yield Use(*mention[:3])


def _of_operator(graph: Graph, name: str) -> Iterator[Use]:
    """What calls an operator ``space::name`` through ``torch.ops``."""
    wanted = OPERATORS + name.replace("::", ".")
    first, _, rest = wanted.partition(".")
    for path in graph.modules.facts:
        yield from (use for use in graph.users_in(path, first) if f"{use.after}.".startswith(f"{rest}."))


def _tables(graph: Graph, path: str, function: str, part: str) -> Iterator[Use]:
    for facts in graph.modules.facts.get(path, ()):
        for table in facts.fills.get(function, ()):
            for target, name in graph.resolve(path, table):
                if graph.kind(target, str(name)) == "constant":
                    yield Use(target, str(name), part)


def _makes_own(graph: Graph, path: str, name: str) -> bool:
    """Whether a constant is an object of a class of the repository."""
    definition = graph.definition(path, name)
    if definition is None or definition.kind != "constant":
        return False
    words = [word for part in definition.parts.values() for word in part.names]
    return any(
        graph.kind(target, str(owner)) == "class" for word in words for target, owner in graph.resolve(path, word)
    )
