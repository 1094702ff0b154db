"""Which file and definition a name leads to, through imports, re-exports, star imports and lazy packages.

A *module* is a path without ``.py`` or ``/__init__.py``. A *target* is a file's path and the name of a definition in
it, None for the module itself, `ANYTHING` where a name cannot be told from the others of its file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, cached_property

from hfexport_bot.changes.facts import Facts
from hfexport_bot.changes.imports import Import

Target = tuple[str, str | None]

#: Some name of a file, nobody knows which.
ANYTHING = "*"
#: Holds all names of a module.
NAMESPACE = "__dict__"
#: Gives a module names when they are asked for.
ON_DEMAND = "__getattr__"


class Modules:
    """The files of a repository as Python finds them.

    Args:
        facts: each file's facts by path; of both sides where they differ.
        paths: every path there is, whether or not its facts are known.
        roots: folders on the module path, such as ``src``; None: every folder above the importer.
    """

    def __init__(self, facts: Mapping[str, Sequence[Facts]], paths: Sequence[str], roots: Sequence[str] | None) -> None:
        self.facts = facts
        self._paths = paths
        self._roots = roots
        self.module_from = cache(self._module_from)
        self.lookup = cache(self._lookup)
        self.exported = cache(self._exported)
        self._open: set[tuple[str, str]] = set()

    @cached_property
    def _files(self) -> Mapping[str, str]:
        """Path by module; that of a folder without ``__init__.py`` is empty."""
        found: dict[str, str] = {}
        for path in self._paths:
            if path.endswith(".py"):
                found[module_of(path)] = path
                folder = path.rpartition("/")[0]
                while folder and folder not in found:
                    found[folder] = ""
                    folder = folder.rpartition("/")[0]
                found.setdefault(".", "")
        return found

    @cached_property
    def _inside(self) -> Mapping[str, Sequence[str]]:
        """The modules in each folder whose facts are known."""
        found: dict[str, list[str]] = {}
        for path in self.facts:
            folder, _, name = path.rpartition("/")
            if name != "__init__.py":
                found.setdefault(folder, []).append(module_of(path))
        return found

    def module(self, importer: str, level: int, name: str) -> str | None:
        """The module that an import statement of the file at ``importer`` names; None: it is somebody else's."""
        return self.module_from(importer.rpartition("/")[0], level, name)

    def _module_from(self, folder: str, level: int, name: str) -> str | None:
        for _ in range(level - 1):
            folder = folder.rpartition("/")[0]
        starts = [folder]
        if not level and self._roots is not None:
            starts = list(self._roots)
        elif not level:
            while folder:
                folder = folder.rpartition("/")[0]
                starts.append(folder)
        inside = name.replace(".", "/")
        for start in starts:
            found = f"{start}/{inside}" if start and inside else start or inside or "."
            if found in self._files and (level or found != "."):
                return found
        return None

    def like(self, importer: str, level: int, glob: str) -> tuple[Target, ...]:
        """The modules that an import by a string that is known in part may name."""
        package, _, name = glob.rpartition(".")
        if self._roots is not None and name.startswith(ANYTHING):
            return ()  # one of all there are: what transformers imports so are models, which it names elsewhere
        near = not package.strip(ANYTHING)
        folder = importer.rpartition("/")[0] if near else self.module(importer, level, package)
        files = (
            f"{folder}/{found}".lstrip("/") for found in self._names.get(folder or "", ()) if fnmatchcase(found, name)
        )
        return tuple((self._files[each], None) for each in files)

    @cached_property
    def _names(self) -> Mapping[str, Sequence[str]]:
        """The last part of each module's name, by the folder that it is in."""
        found: dict[str, list[str]] = {}
        for module in self._files:
            folder, _, name = module.rpartition("/")
            found.setdefault(folder, []).append(name)
        return found

    def path(self, module: str) -> str:
        """The file of a module; empty for a folder without one."""
        return self._files.get(module, "")

    def bound(self, importer: str, row: Import) -> tuple[Target, ...]:
        """What a name bound by an import leads to."""
        module = self.module(importer, row.level, row.module)
        if module is None:
            return ()
        if row.name is None:
            return ((self.path(module) or module, None),)
        return self.lookup(module, row.name)

    def local(self, path: str, name: str) -> tuple[Target, ...]:
        """What a name of a file's own level leads to."""
        return self.lookup(module_of(path), name)

    def _lookup(self, module: str, name: str) -> tuple[Target, ...]:
        if (module, name) in self._open:  # a cycle of imports
            return ()
        self._open.add((module, name))
        try:
            return tuple(dict.fromkeys(self._find(module, name)))
        finally:
            self._open.discard((module, name))

    def _find(self, module: str, name: str) -> Iterator[Target]:
        path = self.path(module)
        versions = self.facts.get(path, ())
        found: list[Target] = []
        imported = False
        for facts in versions:
            if name in facts.rows:
                found.append((path, name))
            for row in facts.imports:
                if row.local == name:
                    imported = True
                    found += self.bound(path, row)
        inner = f"{module}/{name}" if module != "." else name
        if not found and inner in self._files:
            found.append((self._files[inner] or inner, None))
        for facts in versions if not found else ():
            for level, starred in facts.stars:
                source = self.module(path, level, starred)
                found += self.exported(source).get(name, ()) if source else ()
            for inside, names in facts.structure.items():
                if name in names:
                    found += self.lookup(f"{module}/{inside.replace('.', '/')}", name)
            if ON_DEMAND in facts.rows and name[:2] != "__":
                found += [*self._on_demand(module, facts, name), (path, ON_DEMAND)]
            if facts.lazy and not found:
                found += self.exported(module).get(name, ())
        if not found and versions and not imported:  # what is imported from elsewhere is none of this file's
            found.append((path, ANYTHING))
        yield from found

    def _on_demand(self, module: str, facts: Facts, name: str) -> Iterator[Target]:
        """What a package that has names on demand gives for one: its tables say from which file, or its imports."""
        for row, definition, _ in facts.inner:
            if definition == ON_DEMAND and row.local == name:
                yield from self.bound(self.path(module), row)
        for kind, _, _, parts, *_ in facts.rows.values():
            for key, part in parts.items() if kind == "constant" else ():
                word = key.strip("[]'\"")
                files = part[3] if word == name else [word] if name in part[3] else []
                for inside in (each.lstrip(".").replace(".", "/") for each in files):
                    if f"{module}/{inside}" in self._files:
                        yield from self.lookup(f"{module}/{inside}", name)

    def _exported(self, module: str) -> Mapping[str, tuple[Target, ...]]:
        """What ``from module import *`` brings."""
        if (module, ANYTHING) in self._open:
            return {}
        self._open.add((module, ANYTHING))
        found: dict[str, list[Target]] = {}
        path = self.path(module)
        for facts in self.facts.get(path, ()):
            names = facts.exports
            if names is None:
                names = [each for each in (*facts.rows, *(row.local for row in facts.imports)) if each[0] not in "_<"]
            for name in names:
                found.setdefault(name, []).extend(self.lookup(module, name))
            sources = [self.module(path, level, starred) for level, starred in facts.stars]
            sources += self._inside.get(module, ()) if facts.lazy else ()
            for source in sources:
                for name, targets in self.exported(source).items() if source else ():
                    found.setdefault(name, []).extend(targets)
        self._open.discard((module, ANYTHING))
        return {name: tuple(dict.fromkeys(targets)) for name, targets in found.items()}


def module_of(path: str) -> str:
    """The module of a file: its path without ``.py`` or ``/__init__.py``."""
    stem = path.removesuffix(".py")
    if stem == "__init__":
        return "."
    return stem.removesuffix("/__init__")
