"""Which definitions of a file a change touches, comments, docstrings and type hints of functions aside."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hfexport_bot.changes.facts import MAX_BYTES, import_rows
from hfexport_bot.changes.modeling import SourceError, alike, parse
from hfexport_bot.changes.units import BODY, WHOLE, Units, take_apart


@dataclass(frozen=True, order=True)
class Symbol:
    """A changed definition of a file, or a ``part`` of one: a class's member, a table's entry. ``how`` is ``changed``,
    ``added`` or ``removed``."""

    path: str
    definition: str
    part: str = WHOLE
    how: str = "changed"

    @property
    def name(self) -> str:
        """As it is written: ``LlamaAttention.forward``, ``ACT2CLS['gelu']``."""
        if self.definition == BODY:
            return "module-level code"
        return self.definition + ("." if self.part and self.part[0] != "[" else "") + self.part

    def __str__(self) -> str:
        return f"{self.name} {'was ' if self.how != 'changed' else ''}{self.how}"


@dataclass(frozen=True)
class Compared:
    """What differs between two versions of a file. ``error``: a side that is no Python, and why; then every
    definition of the other side counts as changed."""

    symbols: tuple[Symbol, ...] = ()
    error: SourceError | None = None
    both_broken: bool = False


def compare(path: str, old: bytes | None, new: bytes | None) -> Compared:
    """Find the changed definitions of one file; None is a side that has no such file."""
    units: list[Units | None] = []
    error: SourceError | None = None
    for source in (old, new):
        try:
            if source is not None and len(source) > MAX_BYTES:
                raise SourceError(f"larger than {MAX_BYTES >> 20} MiB, so that it is not read", 0)
            units.append(take_apart(parse(source)) if source is not None else Units({}, [], []))
        except SourceError as problem:
            error = problem
            units.append(None)
    before, after = units
    if before is None or after is None:
        readable = before or after
        names = readable.definitions if readable else ()
        return Compared(tuple(Symbol(path, name) for name in names), error, readable is None)
    try:
        return Compared(tuple(_differences(path, before, after)))
    except RecursionError:
        return Compared(tuple(Symbol(path, name) for name in before.definitions.keys() | after.definitions.keys()))


def _differences(path: str, old: Units, new: Units) -> Iterator[Symbol]:
    for name in dict.fromkeys((*new.definitions, *old.definitions)):
        before, after = old.definitions.get(name), new.definitions.get(name)
        if before is None or after is None:
            how = "changed" if name == BODY else "added" if before is None else "removed"
            yield Symbol(path, name, WHOLE, how)
        else:
            yield from (Symbol(path, name, *found) for found in _parts(before.parts, after.parts))
    before_rows, after_rows = _bound(old), _bound(new)
    for name, row in after_rows.items():
        if before_rows.get(name, row) != row and name not in old.definitions:
            yield Symbol(path, name)


def _parts(old: Mapping[str, list[ast.AST]], new: Mapping[str, list[ast.AST]]) -> Iterator[tuple[str, str]]:
    for part in dict.fromkeys((*new, *old)):
        before, after = old.get(part), new.get(part)
        if before is None or after is None:
            if part or (before or after):
                yield part, "changed" if not part else "added" if before is None else "removed"
        elif not alike(before, after):
            yield part, "changed"


def _bound(units: Units) -> dict[str, tuple[object, ...]]:
    return {row.local: tuple(row[1:]) for node in units.imports for row in import_rows(node) if row.name != "*"}
