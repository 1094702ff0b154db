"""What one Python file says, without running it: its definitions, the names each of them uses, and its imports.

Facts depend on nothing but the file's bytes, so that they are kept by git blob (`store`). `VERSION` moves whenever
they would come out otherwise.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from hfexport_bot.changes.imports import Import, Load, import_rows, read_loads
from hfexport_bot.changes.modeling import (
    SourceError,
    generated_from,
    generating_classes,
    model_classes,
    parse,
    public_model_classes,
)
from hfexport_bot.changes.registries import read_fills, read_marks
from hfexport_bot.changes.units import BODY, WHOLE, Unit, Units, acts_on_others, hands_over, is_elsewhere, take_apart
from hfexport_bot.changes.uses import ANY_NAME, OPERATORS, Part, constants_of, read_part

VERSION = 26

_END = re.compile(r"[.\[]")
_COPIED = re.compile(rb"# Copied from transformers\.(\S+)")


class Definition(NamedTuple):
    """A function, class or constant of a module's level; ``parts`` by member or entry, see `units.Unit`. ``copied`` is
    where it says that it was copied from."""

    kind: str
    line: int
    bases: Sequence[str]
    parts: Mapping[str, Part]
    copied: str


@dataclass(frozen=True)
class Facts:
    """All facts of a file. ``error`` says why it could not be read, with its line; it then has no others.

    ``rows`` are the definitions as they are stored; `definitions` takes them apart when they are first asked for.
    ``attributes``: all that its code takes of anything. ``inner``: imports inside functions, each with its definition
    and part. ``models`` are the model classes, ``public`` those the file offers, ``generating`` those that generate.
    ``generated`` is the name of the modular file it was generated from. ``lazy``: the package offers what its files'
    ``__all__`` name. ``spans``: first and last line of each statement of the file. ``marks``: see
    `read_marks`; ``fills``: see `read_fills`. ``acts``: it does something to others
    as it is imported. ``loads``: what it loads then.
    """

    error: tuple[str, int] | None = None
    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    imports: Sequence[Import] = ()
    inner: Sequence[tuple[Import, str, str]] = ()
    stars: Sequence[tuple[int, str]] = ()
    attributes: Sequence[str] = ()
    exports: Sequence[str] | None = None
    structure: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lazy: bool = False
    generated: str = ""
    models: Sequence[str] = ()
    public: Sequence[str] = ()
    generating: Sequence[str] = ()
    spans: Sequence[tuple[int, int]] = ()
    marks: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    fills: Mapping[str, Sequence[str]] = field(default_factory=dict)
    acts: bool = False
    loads: Sequence[Load] = ()

    @cached_property
    def definitions(self) -> Mapping[str, Definition]:
        """The definitions by name."""
        return {
            name: Definition(kind, line, bases, {key: Part(*part) for key, part in parts.items()}, copied)
            for name, (kind, line, bases, parts, copied) in self.rows.items()
        }

    def dump(self) -> bytes:
        """As JSON."""
        return json.dumps([getattr(self, each.name) for each in fields(self)], separators=(",", ":")).encode()

    @classmethod
    def load(cls, text: bytes) -> Facts:
        """From what `dump` gave."""
        error, rows, imports, inner, stars, *rest, loads = json.loads(text)
        found = cls(
            (error[0], error[1]) if error else None,
            rows,
            [Import(*row) for row in imports],
            [(Import(*row), definition, part) for row, definition, part in inner],
            [(level, module) for level, module in stars],
            *rest,
        )
        return replace(found, loads=[Load(*row) for row in loads])


def read_facts(source: bytes) -> Facts:
    """Read a file's facts. What is no Python, or too large, has an error instead of them."""
    try:
        module = parse(source)
        return _facts(module, source)
    except SourceError as error:
        return Facts(error=(str(error), error.line))
    except RecursionError:
        return Facts(error=("nested too deeply", 0))


def _facts(module: ast.Module, source: bytes) -> Facts:
    units = take_apart(module)
    imports, stars = _imports(units.imports)
    imported = {each.local for each in imports}
    imports = [each for each in imports if not is_elsewhere(each.level, each.module)]
    bound = {each.local for each in imports}
    local = bound | units.definitions.keys()
    copied = _copied(source)
    constants = constants_of(
        {
            name: [node for nodes in unit.parts.values() for node in nodes]
            for name, unit in units.definitions.items()
            if unit.kind == "constant"
        }
    )
    definitions = {
        name: Definition(
            _kind(unit, local, imported),
            unit.line,
            [base for base in map(_dotted, unit.bases) if base],
            {
                key: _known(read_part(nodes, unit.kind, constants), local, bool(stars))
                for key, nodes in unit.parts.items()
            },
            copied.get(name, ""),
        )
        for name, unit in units.definitions.items()
    }
    exports, structure = _offers(units.offers)
    models = model_classes(module)
    inner = [
        (Import(*row), name, key)
        for name, definition in definitions.items()
        for key, part in definition.parts.items()
        for row in part.imports
        if not is_elsewhere(row[1], row[2])
    ]
    taken = {
        attribute
        for definition in definitions.values()
        for part in definition.parts.values()
        for attribute in (*part.own, *part.attrs, *(each for name in part.names for each in _END.split(name)[1:]))
    }
    return Facts(
        rows=definitions,
        imports=imports,
        inner=inner,
        stars=stars,
        attributes=sorted(taken - {""}),
        exports=exports,
        structure=structure,
        lazy=b"define_import_structure" in source,
        generated=generated_from(source),
        models=models,
        public=public_model_classes(module) if models else (),
        generating=generating_classes(module) if models else (),
        spans=_spans(module.body),
        marks=read_marks(module, local),
        fills=read_fills(module, local),
        acts=any(acts_on_others(node) for node in _body(units)),
        loads=list(dict.fromkeys(read_loads(module.body))),
    )


def _kind(unit: Unit, local: set[str], imported: set[str]) -> str:
    """That of a unit; what runs at import ``patches`` where it sets something of others, or hands them something."""
    nodes = unit.parts.get(WHOLE, ()) if unit.kind == "body" else ()
    return "patches" if any(hands_over(node, local, imported) for node in nodes) else unit.kind


def _body(units: Units) -> Sequence[ast.AST]:
    """The statements that run at import and define nothing."""
    return units.definitions[BODY].parts.get(WHOLE, ()) if BODY in units.definitions else ()


def _spans(body: Sequence[ast.stmt]) -> list[tuple[int, int]]:
    """First and last line of each statement, decorators included; those that share a line are one."""
    found: list[tuple[int, int]] = []
    for node in body:
        decorators = [each.lineno for each in getattr(node, "decorator_list", ())]
        first, last = min([node.lineno, *decorators]), node.end_lineno or node.lineno
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _known(part: Part, local: set[str], stars: bool) -> Part:
    """Without names that the file neither defines nor imports; with a star import, they may be its."""
    kept = [
        name
        for name in part.names
        if stars or name == ANY_NAME or name.startswith(OPERATORS) or _END.split(name, 1)[0] in local
    ]
    return part._replace(names=kept, imports=part.imports)


def _imports(nodes: Sequence[ast.Import | ast.ImportFrom]) -> tuple[list[Import], list[tuple[int, str]]]:
    imports: list[Import] = []
    stars: list[tuple[int, str]] = []
    for node in nodes:
        for row in import_rows(node):
            if row.name == "*":
                stars.append((row.level, row.module))
            else:
                imports.append(row)
    return imports, stars


def _offers(nodes: Sequence[ast.stmt]) -> tuple[list[str] | None, dict[str, list[str]]]:
    """What ``__all__`` and ``_import_structure`` say, where it is written out."""
    exports: list[str] | None = None
    structure: dict[str, list[str]] = {}
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            structure[str(target.slice.value)] = _strings(value)
        elif isinstance(target, ast.Name) and target.id == "__all__":
            exports = [*(exports or []), *_strings(value)]
        elif isinstance(value, ast.Dict):
            for key, item in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant):
                    structure[str(key.value)] = _strings(item)
    return exports, structure


def _strings(node: ast.AST | None) -> list[str]:
    found = [] if node is None else [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return [each for each in found if isinstance(each, str)]


def _copied(source: bytes) -> dict[str, str]:
    """Name of each definition under a ``# Copied from`` comment, and what that names."""
    found: dict[str, str] = {}
    for match in _COPIED.finditer(source):
        after = re.match(rb"[^\n]*\n(?:\s*@[^\n]*\n)*\s*(?:class|def) (\w+)", source[match.end() : match.end() + 600])
        if after and source[match.start() - 1 : match.start()] in (b"", b"\n"):
            found[after[1].decode()] = match[1].decode()
    return found


def _dotted(node: ast.expr) -> str:
    target = node.value if isinstance(node, ast.Subscript) else node
    text = ast.unparse(target)
    return text if re.fullmatch(r"[\w.]+", text) else ""
