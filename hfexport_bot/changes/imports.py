"""Which modeling files import a file, by the names they import it under; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import PurePosixPath

from hfexport_bot.changes.layout import is_modeling_file
from hfexport_bot.changes.modeling import SourceError, parse
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Layout

#: What an import statement may name: the number of leading dots, and the names between dots.
Imported = tuple[int, tuple[str, ...]]


def imported_names(module: ast.Module) -> frozenset[Imported]:
    """Every module that a file may import, anywhere in it: of ``from a import b`` both ``a`` and ``a.b``."""
    found: set[Imported] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found.update((0, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = tuple(node.module.split(".")) if node.module else ()
            found.add((node.level, start))
            found.update((node.level, (*start, alias.name)) for alias in node.names)
    return frozenset(found)


def imports_file(names: Iterable[Imported], importer: str, file: str) -> bool:
    """Whether one of the names that the file at the path ``importer`` imports leads to the path ``file``.

    A name without leading dots is looked up from the importer's folder and from all above it.
    """
    target = PurePosixPath(file).with_suffix("").parts
    target = target[:-1] if target[-1] == "__init__" else target
    folder = PurePosixPath(importer).parent.parts
    for dots, name in names:
        if dots == 0:
            before = target[: len(target) - len(name)]
            if name == target[len(before) :] and before == folder[: len(before)]:
                return True
        elif dots - 1 <= len(folder) and (*folder[: len(folder) - dots + 1], *name) == target:
            return True
    return False


class ModelingImports:
    """What the modeling files of one revision import; read when it is first asked for."""

    def __init__(self, tree: Tree, layout: Layout) -> None:
        self._tree = tree
        self._layout = layout

    def users(self, path: str) -> set[str]:
        """The modeling files that import ``path`` directly; those in its folder if it is a package's ``__init__.py``,
        which runs before them."""
        found = {user for user, names in self._names.items() if imports_file(names, user, path)}
        file = PurePosixPath(path)
        if file.name == "__init__.py":
            found |= {user for user in self._names if PurePosixPath(user).parent == file.parent}
        return found - {path}

    @cached_property
    def _names(self) -> Mapping[str, frozenset[Imported]]:
        modeling = (path for path in self._tree.files() if is_modeling_file(path, self._layout))
        return {path: self._read(path) for path in modeling}

    def _read(self, path: str) -> frozenset[Imported]:
        try:
            return imported_names(parse(self._tree.read(path) or b""))
        except SourceError:
            return frozenset()
