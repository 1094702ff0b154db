"""A Python file taken apart into what a change can name: functions, classes with their members, constants with their
entries, and the statements that run at import.

Facts (`facts`) are read from these units, and two versions of a file are compared by them (`symbols`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hfexport_bot.changes.modeling import is_documenting, parse

#: The part of a definition that is no member: a function's whole body, a class's bases and decorators.
WHOLE = ""
#: The statements of a file that run at import and define nothing.
BODY = "<module>"
#: Importing a file, whatever of it is used: what it does to others, and whether it can be done.
IMPORT = "<import>"
#: That a file loads another one that does something to others, which is the part.
EFFECTS = "<effects>"
#: Never part of a repository.
_ELSEWHERE = sys.stdlib_module_names | {"numpy", "torch"}
#: Ends the name of a unit that has what a file hands to a method of what it imports, such as ``TABLE.update()``.
CALLED = "()"
#: Callers at module level of which nothing but messages depends.
MESSAGES = re.compile(r"logg\w*|log|warnings|print")

_DICTS = frozenset({"dict", "OrderedDict"})
#: Methods that put an entry into a table: its key, and what belongs to it.
_PUTS = frozenset({"register", "setdefault"})
_DOTTED = re.compile(r"[\w.]+")
_LAYERS = frozenset({"nn.Module", "torch.nn.Module", "Module", "GradientCheckpointingLayer"})
#: Statements that only say what a package offers.
OFFERS = frozenset({"__all__", "_import_structure"})


@dataclass
class Unit:
    """One definition of a module's level: ``kind`` is ``class``, ``function``, ``constant`` or ``body``; ``parts`` has
    the nodes of each member or entry, those of the rest under `WHOLE`."""

    kind: str
    line: int
    bases: list[ast.expr] = field(default_factory=list)
    parts: dict[str, list[ast.AST]] = field(default_factory=dict)

    def add(self, part: str, *nodes: ast.AST) -> None:
        self.parts.setdefault(part, []).extend(nodes)


@dataclass(frozen=True)
class Units:
    """A file's definitions by name, and its imports of module level (those for type checkers included). ``known`` are
    the kinds, by name, of what the file defines elsewhere than in what was taken apart."""

    definitions: dict[str, Unit] = field(default_factory=dict)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    offers: list[ast.stmt] = field(default_factory=list)
    known: Mapping[str, str] = field(default_factory=dict)

    def kind(self, name: str) -> str:
        """The kind of a definition; empty where there is none of that name."""
        found = self.definitions.get(name)
        return found.kind if found else self.known.get(name, "")


@dataclass(frozen=True)
class File:
    """A file, with what its facts say: first and last line of each statement, and the kind of each definition. Where
    they say nothing (``spans`` is None), it is always parsed as a whole."""

    source: bytes
    spans: Sequence[tuple[int, int]] | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def statements(self) -> Sequence[bytes]:
        """The text of each statement."""
        lines = self.source.splitlines()
        return [b"\n".join(lines[first - 1 : last]) for first, last in self.spans or ()]

    def parsed(self, is_kept: Callable[[bytes], bool]) -> ast.Module:
        """Those of its statements that are kept, by their text, each on its own lines. Raises `SourceError`."""
        if self.spans is None:
            return parse(self.source)
        lines = self.source.splitlines()
        for (first, last), text in zip(self.spans, self.statements, strict=True):
            if not is_kept(text):
                lines[first - 1 : last] = [b""] * (last - first + 1)
        return parse(b"\n".join(lines) + b"\n")

    def units(self, is_kept: Callable[[bytes], bool]) -> Units:
        """The units of those statements that are kept. Raises `SourceError`."""
        return take_apart(self.parsed(is_kept), self.kinds)


def take_apart(module: ast.Module, known: Mapping[str, str] | None = None) -> Units:
    """Sort the statements of a file. A name that is defined twice, as under ``if`` and ``else``, is one unit."""
    units = Units(known=known or {})
    for statement, conditions in _flat(module.body):
        for condition in conditions:
            _unit(units, BODY, "body", statement).add(WHOLE, condition)
        _sort(units, statement)
    return units


def _flat(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, tuple[ast.expr, ...]]]:
    """Statements, those under conditions included, each with the conditions met on the way to the first of them."""
    for node in body:
        if isinstance(node, ast.Pass):
            continue
        if isinstance(node, ast.If):
            inner = [*_flat(node.body), *_flat(node.orelse)]
            own = () if ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING" else (node.test,)
            for position, (statement, conditions) in enumerate(inner):
                yield statement, ((*own, *conditions) if position == 0 else conditions)
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from _flat([*node.body, *handlers, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.With):
            yield from _flat(node.body)
        else:
            yield node, ()


def _sort(units: Units, node: ast.stmt) -> None:
    if isinstance(node, ast.Import | ast.ImportFrom):
        units.imports.append(node)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        _unit(units, node.name, "function", node).add(WHOLE, node)
    elif isinstance(node, ast.ClassDef):
        _class(_unit(units, node.name, "class", node), node, units)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        _assignment(units, node)
    elif is_text(node):
        pass
    elif not _handed(units, node):
        _unit(units, BODY, "body", node).add(WHOLE, node)


def _unit(units: Units, name: str, kind: str, node: ast.AST) -> Unit:
    found = units.definitions.get(name)
    if found is None:
        found = units.definitions[name] = Unit(kind, getattr(node, "lineno", 0))
    elif kind == "class":
        found.kind = kind
    return found


def _class(unit: Unit, node: ast.ClassDef, units: Units) -> None:
    unit.bases.extend(node.bases)
    unit.add(WHOLE, *node.bases, *(keyword.value for keyword in node.keywords))
    unit.add(WHOLE, *(each for each in node.decorator_list if not is_documenting(each)))
    plain = is_layer(node)
    for statement, conditions in _flat(node.body):
        unit.add(WHOLE, *conditions)
        if plain and isinstance(statement, ast.AnnAssign) and statement.value is None:
            continue
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            unit.add(statement.name, statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and (names := _targets(statement)):
            for name in names:
                unit.add(name, statement)
        elif not is_text(statement):
            unit.add(WHOLE, statement)
            _handed(units, statement)


def is_layer(node: ast.ClassDef) -> bool:
    """Whether a class is a layer, whose bare annotations nothing reads: those of other classes may make fields."""
    return bool(node.bases) and all(ast.unparse(base) in _LAYERS for base in node.bases) and not node.decorator_list


def _assignment(units: Units, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
    names = _targets(node)
    root = root_of(node.targets[0]) if isinstance(node, ast.Assign) else root_of(node.target)
    if not names and units.kind(root):  # `REGISTRY["x"] = y`
        names = [root]
    if OFFERS.intersection([*names, root]):
        units.offers.append(node)
    elif names:
        for name in names:
            _constant(_unit(units, name, "constant", node), node, node.value)
    else:
        _unit(units, BODY, "body", node).add(WHOLE, node)
    if isinstance(node.value, ast.Call) and getattr(node.value.func, "attr", "") in _PUTS:
        _handed(units, node)


def _handed(units: Units, node: ast.stmt) -> bool:
    """Sort what a statement such as ``TABLE.update({...})`` hands on; False where it does not."""
    value = getattr(node, "value", None)
    name = _registered(value, units) if isinstance(node, ast.Expr | ast.Assign) else None
    if name is not None:
        _constant(_unit(units, name, "constant", node), node, value)
    return name is not None


def _constant(unit: Unit, node: ast.stmt, value: ast.expr | None) -> None:
    entries = dict(_entries(value))
    if not entries:
        unit.add(WHOLE, node)
    for key, entry in entries.items():
        unit.add(f"[{key}]", entry)


def _entries(value: ast.AST | None) -> Iterator[tuple[str, ast.expr]]:
    """Key and value of a table written out: a dict, or pairs in a call of dict, OrderedDict or ``update``. Strings
    that are listed are keys themselves."""
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        if all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in value.elts):
            yield from ((ast.unparse(each), each) for each in value.elts)
        return
    if isinstance(value, ast.Dict):
        if all(key is not None for key in value.keys):
            yield from ((ast.unparse(key), item) for key, item in zip(value.keys, value.values, strict=True) if key)
    elif isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        tabular = name in _DICTS or name == "update"
        inner = value.args[0] if value.args else None
        if name in _PUTS and isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            put = [*value.args[1:], *(each.value for each in value.keywords)]
            yield ast.unparse(inner), ast.Tuple(put, ast.Load()) if put else value
        elif tabular and not value.args and all(each.arg for each in value.keywords):
            yield from ((repr(each.arg), each.value) for each in value.keywords)
        elif tabular and len(value.args) == 1 and not value.keywords:
            pairs = inner.elts if isinstance(inner, ast.List | ast.Tuple) else []
            if pairs and all(isinstance(pair, ast.Tuple) and len(pair.elts) == 2 for pair in pairs):
                yield from ((ast.unparse(pair.elts[0]), pair.elts[1]) for pair in pairs if isinstance(pair, ast.Tuple))
            else:
                yield from _entries(inner)


def _registered(call: object, units: Units) -> str | None:
    """The constant that a call such as ``REGISTRY.update({...})`` adds to, or the unit of what it hands to others."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    root, written = root_of(call.func), ast.unparse(call.func)
    if units.kind(root) == "constant":
        return root
    if not (call.args or call.keywords) or not _DOTTED.fullmatch(written) or MESSAGES.fullmatch(root):
        return None
    own = units.kind(written + CALLED) or units.kind(root) == "class" or {root, "*"} & {*_imported(units.imports)}
    return written + CALLED if own else None


def _imported(nodes: Sequence[ast.Import | ast.ImportFrom]) -> Iterator[str]:
    """The names that are imported and may be a repository's own."""
    for node in nodes:
        for alias in node.names:
            level, module = (node.level, node.module or "") if isinstance(node, ast.ImportFrom) else (0, alias.name)
            if not is_elsewhere(level, module):
                yield alias.asname or (alias.name if isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0])


def is_elsewhere(level: int, module: str) -> bool:
    """Whether an import names what is never part of a repository."""
    return not level and module.partition(".")[0] in _ELSEWHERE


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    flat = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [target.id for target in flat if isinstance(target, ast.Name)]


def root_of(node: ast.expr) -> str:
    """The name that an expression such as ``a.b["c"](d)`` begins with; empty where it begins with none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_text(node: ast.AST) -> bool:
    """Whether a statement is a bare string: a docstring, or a comment in the form of one."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def acts_on_others(node: ast.AST) -> bool:
    """Whether a statement that runs at import stops it, sets what another module owns, or calls what may."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return not MESSAGES.fullmatch(root_of(node.value.func))
    return isinstance(node, ast.Raise | ast.Assert | ast.Delete | ast.For | ast.While) or sets_elsewhere(node)


def sets_elsewhere(node: ast.AST) -> bool:
    """Whether a statement that runs at import sets an attribute or entry of what its file does not define."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)


def hands_over(node: ast.AST, local: Collection[str], imported: Collection[str]) -> bool:
    """Whether a statement that runs at import sets something of others, at any depth, or hands what the file has to a
    function of its own or of what it has ``imported``, which may keep it."""
    if isinstance(node, ast.For | ast.While):
        inner = [each for each in ast.walk(node) if isinstance(each, ast.stmt) and each is not node]
        return any(_calls_method(each) or hands_over(each, local, imported) for each in inner)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        root = root_of(node.value)
        known = root in ("setattr", *local, *imported) and not MESSAGES.fullmatch(root)
        return known and not given_to(node.value).isdisjoint(local)
    return sets_elsewhere(node)


def given_to(call: ast.Call) -> set[str]:
    """The names that a call is given, at any depth."""
    given = [*call.args, *(each.value for each in call.keywords)]
    return {each.id for value in given for each in ast.walk(value) if isinstance(each, ast.Name)}


def _calls_method(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not MESSAGES.fullmatch(root_of(call))
