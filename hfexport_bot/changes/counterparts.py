"""The line that an author edits for a line that was generated or copied: the ``modular_*.py`` file of a generated
modeling file, and what ``# Copied from`` names. Nothing is imported.
"""

from __future__ import annotations

import ast
import itertools
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from hfexport_bot.changes.modeling import SourceError, generated_from, parse
from hfexport_bot.changes.statements import statement_at, statements
from hfexport_bot.changes.tree import Tree

_COPIED = re.compile(r"\s*# Copied from (transformers\.[\w.]+)")
#: A copy may be one of a copy, a generated class may take a method from another model's: so many steps are followed.
_STEPS = 6

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Place:
    """A line of a file and the function or class around it. ``exact``: it is the statement itself that was looked
    for, not only the header of what it belongs to."""

    file: str
    line: int
    owner: str
    exact: bool = True


def editable(tree: Tree, file: str, line: int) -> Place | None:
    """The line to edit for one that was generated or copied; None for one that is written where it stands, or whose
    origin is not in the tree."""
    source = tree.read(file)
    found = None
    place = Place(file, line, "")
    for _ in range(_STEPS):
        step = _origin(tree, place) if source is not None else None
        if step is None or not step.exact:
            return step or found
        found = place = step
    return found


def _origin(tree: Tree, place: Place) -> Place | None:
    """One step: from a line to the one that it was generated or copied from."""
    source = tree.read(place.file) or b""
    try:
        owners = _around(parse(source), place.line)
    except SourceError:
        return None
    if not owners:
        return None
    if name := generated_from(source):
        modular = posixpath.join(posixpath.dirname(place.file), name)
        return _in_modular(tree, source, place.line, [node.name for node in owners], modular)
    lines = source.decode(errors="replace").splitlines()
    for depth, node in enumerate(owners, start=1):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        copied = _COPIED.match(lines[first - 2]) if first > 1 else None
        if copied:
            inside = [each.name for each in owners[depth:]]
            return _in_copied(tree, source, place.line, node.name, inside, copied[1])
    return None


def _around(module: ast.Module, line: int) -> list[_Definition]:
    """The definitions around a line, the outermost first."""
    found: list[_Definition] = []
    body: list[ast.stmt] = module.body
    while True:
        inner = next((node for node in _definitions(body) if node.lineno <= line <= (node.end_lineno or 0)), None)
        if inner is None:
            return found
        found.append(inner)
        body = inner.body


def _definitions(body: list[ast.stmt]) -> Iterator[_Definition]:
    """The definitions of a block, those under conditions included."""
    for node in body:
        if isinstance(node, _Definition):
            yield node
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(node, name, []))


def _in_modular(tree: Tree, generated: bytes, line: int, owners: list[str], path: str) -> Place | None:
    """The line in a modular file, or in the file whose class gives the method."""
    source = tree.read(path)
    if source is None:
        return None
    try:
        module = parse(source)
    except SourceError:
        return None
    found = _matching(generated, line, owners, source, owners, path)
    if found is not None:
        return found
    classes = {node.name: node for node in _definitions(module.body) if isinstance(node, ast.ClassDef)}
    owner = classes.get(owners[0])
    if owner is None:
        return None
    for base in owner.bases:
        other = _imported(module, ast.unparse(base).rpartition(".")[2], path)
        if other is not None and (inherited := tree.read(other[0])) is not None:
            found = _matching(generated, line, owners, inherited, [other[1], *owners[1:]], other[0])
            if found is not None:
                return found
    return Place(path, owner.lineno, owner.name, exact=False)


def _imported(module: ast.Module, name: str, path: str) -> tuple[str, str] | None:
    """The file and the name that a name of a module is imported from, if by a relative import."""
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    folder = path
                    for _ in range(node.level):
                        folder = posixpath.dirname(folder)
                    return posixpath.join(folder, *(node.module or "").split(".")) + ".py", alias.name
    return None


def _in_copied(tree: Tree, copy: bytes, line: int, name: str, inside: list[str], dotted: str) -> Place | None:
    """The line in what ``# Copied from transformers.models.x.modeling_x.Class.method`` names."""
    parts = dotted.split(".")
    module = next((end for end in range(len(parts), 0, -1) if parts[end - 1].startswith(("modeling_", "modular_"))), 0)
    for end in [module] if module else range(len(parts) - 1, 0, -1):
        path = "/".join(parts[:end]) + ".py"
        for candidate in (f"src/{path}", path):
            source = tree.read(candidate)
            if source is not None:
                owners = [*parts[end:], *inside]
                return _matching(copy, line, [name, *inside], source, owners, candidate)
    return None


def _matching(
    source: bytes, line: int, owners: list[str], other: bytes, other_owners: list[str], path: str
) -> Place | None:
    """The statement of ``line`` in the same function of another file, or else that function's header; None where there
    is no such function. Model names in it may differ as those of the two classes do."""
    try:
        here, there = statements(source), statements(other)
        around = _named(parse(other), other_owners)
    except SourceError:
        return None
    if around is None:
        return None
    owner = ".".join(other_owners)
    wanted = statement_at(here, line)
    if wanted is not None:
        old, new = _prefixes(owners[0], other_owners[0])

        def text(code: bytes, first: int, last: int, *, rename: bool) -> str:
            found = " ".join(b" ".join(code.splitlines()[first - 1 : last]).decode(errors="replace").split())
            return found.replace(old, new).replace(old.lower(), new.lower()) if rename and old else found

        same = text(source, wanted.first, wanted.last, rename=True)
        before = [s for s in here if s.function == wanted.function and s.first < wanted.first]
        nth = sum(text(source, s.first, s.last, rename=True) == same for s in before)
        inside = [s for s in there if around.lineno <= s.first <= (around.end_lineno or 0)]
        alike = [s for s in inside if text(other, s.first, s.last, rename=False) == same]
        if alike:
            match = alike[min(nth, len(alike) - 1)]
            return Place(path, match.first + min(line - wanted.first, match.last - match.first), owner)
    return Place(path, around.lineno, owner, exact=False)


def _named(module: ast.Module, names: list[str]) -> _Definition | None:
    found: _Definition | None = None
    body = module.body
    for name in names:
        found = next((node for node in _definitions(body) if node.name == name), None)
        if found is None:
            return None
        body = found.body
    return found


def _prefixes(name: str, other: str) -> tuple[str, str]:
    """What two names of classes differ in, without what they end in alike: ``Qwen2`` and ``Llama``."""
    pairs = zip(reversed(name), reversed(other), strict=False)
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return name[: len(name) - common], other[: len(other) - common]
