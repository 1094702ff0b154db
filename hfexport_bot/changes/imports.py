"""The import statements of a file: the names they bind, what importing the file loads, and what a change of them means.

A name that was bound and is not any more, or is bound to something else, is a changed definition: it affects what uses
it. One that nobody uses affects nothing.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from hfexport_bot.changes.modeling import is_documenting
from hfexport_bot.changes.units import File, Units, is_elsewhere
from hfexport_bot.changes.uses import read_part

#: Modules that have each other's names.
_ALIKE = {"typing_extensions": "typing", "collections.abc": "typing"}
_FUTURE = "__future__"
_BUILTINS = frozenset(dir(builtins))
_END = re.compile(r"[.\[]")
#: Begins statements that have no import of module level inside.
_DEFINES = re.compile(rb"@|(class|def|async)\b")


class Import(NamedTuple):
    """A name bound by an import: ``name`` is None where the module itself is bound."""

    local: str
    level: int
    module: str
    name: str | None


class Load(NamedTuple):
    """A module that is loaded as a file is imported, with the name taken from it; empty where none is. ``sure``:
    neither a condition nor a ``try`` stands around it."""

    level: int
    module: str
    name: str
    sure: bool


@dataclass(frozen=True)
class ChangedImport:
    """A name that an import binds otherwise than before. ``uses`` are the definitions and parts of its own file that
    use it; ``at_import``: one of them does so when the file is imported."""

    name: str
    how: str
    uses: tuple[tuple[str, str], ...] = ()
    at_import: bool = False


def import_rows(node: ast.Import | ast.ImportFrom) -> list[Import]:
    """The names that an import statement binds; the name of a star import is ``*``."""
    if isinstance(node, ast.ImportFrom):
        return [Import(a.asname or a.name, node.level, node.module or "", a.name) for a in node.names]
    return [
        Import(a.asname, 0, a.name, None)
        if a.asname
        else Import(a.name.partition(".")[0], 0, a.name.partition(".")[0], None)
        for a in node.names
    ]


def read_loads(body: Sequence[ast.stmt], sure: bool = True) -> Iterator[Load]:
    """What a file loads when it is imported; what type checkers alone see is left out."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            if not is_elsewhere(node.level, node.module or ""):
                yield from (Load(node.level, node.module or "", each.name, sure) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (Load(0, each.name, "", sure) for each in node.names if not is_elsewhere(0, each.name))
        elif isinstance(node, ast.If):
            checking = ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING"
            yield from () if checking else read_loads(node.body, False)
            yield from read_loads(node.orelse, sure and checking)
        elif isinstance(node, ast.Try):
            handled = [each for handler in node.handlers for each in handler.body]
            yield from read_loads([*node.body, *handled, *node.orelse], False)
            yield from read_loads(node.finalbody, sure)
        elif isinstance(node, ast.With):
            yield from read_loads(node.body, False)


def changed_imports(
    files: Sequence[File], changed: Sequence[Units], placed: Mapping[str, str]
) -> tuple[ChangedImport, ...]:
    """The names that imports bind otherwise on the two sides.

    ``changed`` are the units of what is not alike on both sides. More of the files is read only where these bind names
    otherwise: what else imports something, and what has such a name in its text. ``placed``: names that the same
    imports bind in another order or under other conditions, and how.
    """
    rows = [_rows(units) for units in changed]
    differing = [name for name in {**rows[1], **rows[0]} if rows[0].get(name) != rows[1].get(name)]
    asked = dict.fromkeys((*differing, *placed))
    sides = [_Side(file, [*asked]) for file in files]
    found = (_changed(name, sides[0], sides[1], placed.get(name, "")) for name in asked)
    return tuple(each for each in found if each is not None)


def _changed(name: str, old: _Side, new: _Side, how: str) -> ChangedImport | None:
    if _meaning(old.rows.get(name)) == _meaning(new.rows.get(name)):
        return ChangedImport(name, how, *new.uses(name)) if how else None
    before, after = old.binds(name), new.binds(name)
    if before and after:
        # Where a definition took the name over, or gave it up, that definition is what changed.
        taken_over = old.defines(name) != new.defines(name)
        return None if taken_over else ChangedImport(name, "changed", *new.uses(name))
    # It is used where it is no longer bound, or was used where it was not yet.
    here = new if before else old
    return ChangedImport(
        name, "removed" if before else "added", *(((), False) if name in _BUILTINS else here.uses(name))
    )


class _Side:
    """A file of one side, and the names that are asked for."""

    def __init__(self, file: File, names: Sequence[str]) -> None:
        self._file = file
        self._names = names

    @cached_property
    def rows(self) -> Mapping[str, frozenset[Import]]:
        return _rows(self._file.units(lambda text: b"import" in text and not _DEFINES.match(text)))

    @cached_property
    def _units(self) -> Units:
        """Those of the statements that may use one of the names."""
        words = "|".join(map(re.escape, self._names))
        may_use = re.compile("" if _FUTURE in self._names else rf"\b(?:{words})\b")
        return self._file.units(lambda text: may_use.search(text.decode(errors="replace")) is not None)

    @cached_property
    def _using(self) -> Sequence[_Using]:
        return [
            _Using(definition, part, unit.kind, nodes)
            for definition, unit in self._units.definitions.items()
            for part, nodes in unit.parts.items()
        ]

    def defines(self, name: str) -> bool:
        return name in (self._units.definitions if self._file.spans is None else self._file.kinds)

    def binds(self, name: str) -> bool:
        """Whether a statement of the file binds a name."""
        return name in self.rows or self.defines(name)

    def uses(self, name: str) -> tuple[tuple[tuple[str, str], ...], bool]:
        """The definitions and parts that use a name, and whether one does so at import."""
        found = [each for each in self._using if each.uses(name)]
        return tuple((each.definition, each.part) for each in found), any(each.at_import(name) for each in found)


class _Using:
    """A part of a definition, and the names that it uses."""

    def __init__(self, definition: str, part: str, kind: str, nodes: Sequence[ast.AST]) -> None:
        self.definition = definition
        self.part = part
        self._kind = kind
        self._nodes = nodes

    def uses(self, name: str) -> bool:
        if name == _FUTURE:  # whether hints are evaluated
            return any(isinstance(node, ast.AnnAssign) and self._kind == "class" for node in self._nodes)
        return name in self._words and name in self._open

    def at_import(self, name: str) -> bool:
        outside = [each for node in self._nodes for each in _outside(node)]
        return _Using(self.definition, self.part, self._kind, outside).uses(name)

    @cached_property
    def _words(self) -> frozenset[str]:
        names = (each for node in self._nodes for each in ast.walk(node) if isinstance(each, ast.Name))
        return frozenset(each.id for each in names)

    @cached_property
    def _open(self) -> frozenset[str]:
        """The first words of the names that it has from outside."""
        return frozenset(_END.split(word, maxsplit=1)[0] for word in read_part(self._nodes, self._kind).names)


def _outside(node: ast.AST) -> list[ast.AST]:
    """What of a node runs when its file is imported."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        defaults = [each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None]
        return [*(each for each in node.decorator_list if not is_documenting(each)), *defaults]
    return [node]


def _rows(units: Units) -> dict[str, frozenset[Import]]:
    """The imports that bind each name; that of a statement of ``__future__`` has its module for a name."""
    found: dict[str, set[Import]] = {}
    for node in units.imports:
        for row in import_rows(node):
            if row.name != "*":
                found.setdefault(_FUTURE if row.module == _FUTURE else row.local, set()).add(row)
    return {name: frozenset(rows) for name, rows in found.items()}


def _meaning(rows: frozenset[Import] | None) -> object:
    return rows and {(row.level, _ALIKE.get(row.module, row.module), row.name) for row in rows}
