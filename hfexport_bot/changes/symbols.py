"""Which definitions of a file a change touches, comments, docstrings and type hints of functions aside."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hfexport_bot.changes import policy
from hfexport_bot.changes.facts import Facts
from hfexport_bot.changes.given import Given, functions_of, may_be_followed, when_changed, without_settings_aside
from hfexport_bot.changes.imports import ChangedImport, changed_imports
from hfexport_bot.changes.modeling import SourceError, alike
from hfexport_bot.changes.order import CONDITION, MOVED, REORDERED, Order, Star, changed_order
from hfexport_bot.changes.units import BODY, EFFECTS, IMPORT, WHOLE, File, Units, acts_on_others, take_apart

#: How a function changed that only sets otherwise what lies behind the boundary, such as plans for several devices.
ASIDE = "changed behind the boundary"


@dataclass(frozen=True, order=True)
class Symbol:
    """A changed definition of a file, or a ``part`` of one: a class's member, a table's entry. ``how`` is ``changed``,
    ``added``, ``removed``, `ASIDE`, or one of those of `order`. With ``when``, it changed only for code that gives one
    of these."""

    path: str
    definition: str
    part: str = WHOLE
    how: str = "changed"
    when: tuple[Given, ...] = ()

    @property
    def name(self) -> str:
        """As it is written: ``LlamaAttention.forward``, ``ACT2CLS['gelu']``."""
        if self.definition in (BODY, IMPORT):
            return "module-level code"
        if self.definition == EFFECTS:
            return f"the import of {self.part}"
        if self.part == IMPORT:
            return self.definition
        return self.definition + ("." if self.part and self.part[0] != "[" else "") + self.part

    def __str__(self) -> str:
        return told([self.name], self.how)


def told(names: Sequence[str], how: str, more: str = "") -> str:
    """How some definitions changed, in words; ``more`` is put after their names."""
    listed = ", ".join(names) + more
    if how in (REORDERED, MOVED):
        return f"order of {listed} changed"
    if how == CONDITION:
        return f"condition around {listed} changed"
    return f"{listed} {'' if how == 'changed' else 'were ' if len(names) > 1 else 'was '}{how}"


@dataclass(frozen=True)
class Compared:
    """What differs between two versions of a file. ``imports``: names among the symbols that an import binds
    otherwise. ``acts``: code changed that runs at import and does something to others. ``error``: a side that is no
    Python, and why; then every definition of the other side counts as changed. ``moved``: statements have a new order,
    whether or not it means anything. ``starred`` and ``stars``: see `Order`."""

    symbols: tuple[Symbol, ...] = ()
    imports: tuple[ChangedImport, ...] = ()
    acts: bool = False
    error: SourceError | None = None
    both_broken: bool = False
    moved: bool = False
    starred: Mapping[str | None, frozenset[Star]] = field(default_factory=dict)
    stars: frozenset[Star] = frozenset()


def compare(
    path: str, old: bytes | None, new: bytes | None, facts: tuple[Facts | None, Facts | None] = (None, None)
) -> Compared:
    """Find the changed definitions of one file; None is a side that has no such file.

    Where the facts of both sides are known, only statements that are not on both sides alike are parsed.
    """
    modules: list[ast.Module] = []
    units: list[Units | None] = []
    error: SourceError | None = None
    files = [File(source or b"") for source in (old, new)]
    common: Counter[bytes] = Counter()
    if old is not None and new is not None and all(each is not None and not each.error for each in facts):
        kinds = [{name: row[0] for name, row in each.rows.items()} for each in facts if each is not None]
        spans = [each.spans for each in facts if each is not None]
        files = [File(*each) for each in zip((old, new), spans, kinds, strict=True)]
        common = Counter(files[0].statements) & Counter(files[1].statements)
    for source, file in zip((old, new), files, strict=True):
        try:
            modules.append(file.parsed(_all_but(common)))
            units.append(take_apart(modules[-1], file.kinds) if source is not None else Units())
        except SourceError as problem:
            error = problem
            units.append(None)
    before, after = units
    if before is None or after is None:
        readable = before or after
        names = readable.definitions if readable else ()
        return Compared(tuple(Symbol(path, name) for name in names), (), False, error, readable is None)
    try:
        symbols = tuple(_differences(path, before, after))
        if policy.is_shared(path):
            symbols = tuple(_with_conditions(symbols, before, after))
        both = old is not None and new is not None
        order = changed_order(files, modules, common) if both else Order()
        imports = changed_imports(files, (before, after), order.imports) if both else ()
        symbols += tuple(_by_order(path, symbols, order, imports, {*before.known, *after.known}))
        bodies = [side.definitions[BODY].parts[WHOLE] for side in (before, after) if BODY in side.definitions]
        acts = any(symbol.definition == BODY for symbol in symbols) and (
            order.acts or any(acts_on_others(node) for nodes in bodies for node in nodes)
        )
        return Compared(symbols, imports, acts, moved=order.any, starred=order.starred, stars=order.stars)
    except RecursionError:
        return Compared(tuple(Symbol(path, name) for name in before.definitions.keys() | after.definitions.keys()))


def _by_order(
    path: str, known: Sequence[Symbol], order: Order, imports: Sequence[ChangedImport], names: Collection[str]
) -> Iterator[Symbol]:
    """The names that imports bind otherwise, and what only a new order changed, or other conditions. ``names``: those
    that the file defines."""
    yield from (Symbol(path, each.name, IMPORT, each.how) for each in imports)
    found = {(each.definition, each.part) for each in known if each.how != ASIDE and not each.when}
    defined = {(name, WHOLE): how for name, how in order.imports.items() if name in names}
    for (name, part), how in (order.parts | defined).items():
        if (name, part) not in found and (name, WHOLE) not in found:
            yield Symbol(path, name, part, how)
    if order.early:
        yield Symbol(path, IMPORT, WHOLE, f"uses {order.early} before it is defined")


def _all_but(common: Counter[bytes]) -> Callable[[bytes], bool]:
    """Tells of each statement of a file in turn whether it is more than what is common."""
    left = common.copy()

    def differs(text: bytes) -> bool:
        left[text] -= 1
        return left[text] < 0

    return differs


def _differences(path: str, old: Units, new: Units) -> Iterator[Symbol]:
    for name in dict.fromkeys((*new.definitions, *old.definitions)):
        before, after = old.definitions.get(name), new.definitions.get(name)
        if before is None or after is None:
            both = name == BODY or (old.kind(name) and new.kind(name))
            how = "changed" if both else "added" if before is None else "removed"
            yield Symbol(path, name, WHOLE, how)
        else:
            parts = [_without_tests(unit.parts) if name == BODY else unit.parts for unit in (before, after)]
            yield from (Symbol(path, name, *found) for found in _parts(*parts))


def _without_tests(parts: Mapping[str, list[ast.AST]]) -> dict[str, list[ast.AST]]:
    """Without the conditions around statements, which are compared with these (`changed_order`)."""
    return {part: [node for node in nodes if not isinstance(node, ast.expr)] for part, nodes in parts.items()}


def _with_conditions(symbols: Iterable[Symbol], old: Units, new: Units) -> Iterator[Symbol]:
    """Some symbols, the changed functions among them with what must be given for the change to run, and `ASIDE` where
    they differ behind the boundary alone."""
    defaults = tuple(
        functions_of({name: unit.parts.get(WHOLE, []) for name, unit in side.definitions.items()})
        for side in (old, new)
    )
    for symbol in symbols:
        when = None
        if symbol.how == "changed" and not policy.is_behind_boundary(symbol.path, symbol.definition, symbol.part):
            # What a file runs at import counts as changed where only one side has any.
            units = [
                side.definitions[symbol.definition] for side in (old, new) if symbol.definition in side.definitions
            ]
            nodes = [node for unit in units for node in unit.parts.get(symbol.part, [])]
            if len(nodes) == 2 and isinstance(nodes[0], ast.FunctionDef) and isinstance(nodes[1], ast.FunctionDef):
                if alike(without_settings_aside(nodes[0]), without_settings_aside(nodes[1])):
                    yield replace(symbol, how=ASIDE)
                    continue
                when = when_changed(nodes[0], nodes[1], (defaults[0], defaults[1]))
        yield replace(symbol, when=when) if when and may_be_followed(symbol.part, when) else symbol


def _parts(old: Mapping[str, list[ast.AST]], new: Mapping[str, list[ast.AST]]) -> Iterator[tuple[str, str]]:
    for part in dict.fromkeys((*new, *old)):
        before, after = old.get(part), new.get(part)
        if before is None or after is None:
            if part or (before or after):
                yield part, "changed" if not part else "added" if before is None else "removed"
        elif not alike(before, after):
            yield part, "changed"
    if [key for key in new if key[:1] == "[" and key in old] != [key for key in old if key[:1] == "[" and key in new]:
        yield WHOLE, REORDERED  # the entries of a table
