"""The model classes of a repository's own files, their bases followed through the imports between these files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property

from hfexport_bot.changes.facts import Facts
from hfexport_bot.changes.modeling import (
    Classes,
    Elsewhere,
    SourceError,
    flat_statements,
    generating_classes,
    model_classes,
    parse,
    public_model_classes,
    read_classes,
)
from hfexport_bot.changes.modules import Modules
from hfexport_bot.changes.tree import Tree


class Inheritance:
    """Reads the files that bases are imported from, each when it is first asked for."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._parsed = cache(self._parse)
        self._classes = cache(self._find_classes)

    @cached_property
    def _modules(self) -> Modules:
        return Modules({}, self._tree.files(), None)

    def of(self, path: str) -> Elsewhere:
        """Finds the classes that the names of a file lead to in others."""
        return lambda dotted: self._follow(path, dotted, frozenset())

    def completed(self, path: str, facts: Facts) -> Facts:
        """The facts of a file, with those of its model classes that the file alone does not show."""
        if not any(row[0] == "class" and self._is_derived(path, facts, row[2]) for row in facts.rows.values()):
            return facts
        module = self._parsed(path)
        if module is None:
            return facts
        models = model_classes(module, self.of(path))
        if models == tuple(facts.models):
            return facts
        public, generating = public_model_classes(module, self.of(path)), generating_classes(module, self.of(path))
        return replace(facts, models=models, public=public if models else (), generating=generating)

    def _is_derived(self, path: str, facts: Facts, bases: Sequence[str]) -> bool:
        """Whether one of the bases of a class may be in another file of the repository."""
        first = {base.partition(".")[0] for base in bases} - facts.rows.keys()
        imported = [(row.level, row.module) for row in facts.imports if row.local in first]
        return any(
            self._modules.module(path, *each) is not None for each in (*imported, *(facts.stars if first else ()))
        )

    def _parse(self, path: str) -> ast.Module | None:
        source = self._tree.read(path)
        try:
            return None if source is None else parse(source)
        except SourceError:
            return None

    def _find_classes(self, path: str) -> Classes | None:
        module = self._parsed(path)
        return None if module is None else read_classes(module, self.of(path))

    def _follow(self, path: str, dotted: str, seen: frozenset[tuple[str, str]]) -> tuple[Classes, str] | None:
        if (path, dotted) in seen:
            return None
        for inside, name in self._sources(path, dotted):
            classes = self._classes(inside)
            if classes is None:
                continue
            if name in classes.classes:
                return classes, name
            if (found := self._follow(inside, name, seen | {(path, dotted)})) is not None:
                return found
        return None

    def _sources(self, path: str, dotted: str) -> Iterator[tuple[str, str]]:
        """The files that the imports of a file may have a name from, each with the name there."""
        module = self._parsed(path)
        first, _, rest = dotted.partition(".")
        for node in flat_statements(module.body) if module is not None else ():
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name == "*":
                        yield from self._file(path, node.level, node.module or "", dotted)
                    elif (alias.asname or alias.name) == first:
                        name = f"{alias.name}.{rest}".rstrip(".")
                        yield from self._file(path, node.level, node.module or "", name)
                        yield from self._file(path, node.level, f"{node.module or ''}.{alias.name}".lstrip("."), rest)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname == first:
                        yield from self._file(path, 0, alias.name, rest)
                    elif not alias.asname and dotted.startswith(f"{alias.name}."):
                        yield from self._file(path, 0, alias.name, dotted.removeprefix(f"{alias.name}."))

    def _file(self, importer: str, level: int, module: str, name: str) -> Iterator[tuple[str, str]]:
        found = self._modules.module(importer, level, module)
        if found is not None and name and (path := self._modules.path(found)):
            yield path, name
