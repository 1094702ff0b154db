"""Importing as a use: whose import loads a file, and which imports of a change fail.

A file that cannot be imported, or does something to others as it is imported, affects everything that loads it,
whatever of it is used: all of each file that imports it, all of its package where it is an ``__init__.py``, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property

from hfexport_bot.changes import policy
from hfexport_bot.changes.facts import Facts
from hfexport_bot.changes.graph import Graph, Use
from hfexport_bot.changes.imports import Load
from hfexport_bot.changes.modules import ON_DEMAND, Modules, module_of
from hfexport_bot.changes.symbols import Compared, Symbol
from hfexport_bot.changes.units import BODY, IMPORT, WHOLE


class Loading:
    """Who loads what.

    Args:
        graph: the uses of both sides.
        compared: what differs in each changed file.
    """

    def __init__(self, graph: Graph, compared: Mapping[str, Compared]) -> None:
        self._graph = graph
        self._modules = graph.modules
        self._compared = compared
        self.loaders = cache(self._find_loaders)

    def uses(self, path: str, name: str) -> Iterator[Use]:
        """What the import of a file affects (``name`` is `IMPORT`), or a name that one of its imports binds."""
        if name != IMPORT:
            yield from self._of_name(path, name)
            return
        for definition in sorted({name for facts in self._modules.facts.get(path, ()) for name in facts.rows}):
            if definition != BODY:
                yield Use(path, definition, WHOLE)
        yield from self._loaders.get(path, ())
        if path.rpartition("/")[2] == "__init__.py":
            folder = path.removesuffix("__init__.py")
            yield from (Use(each, IMPORT, WHOLE) for each in self._modules.facts if each.startswith(folder))

    def _find_loaders(self, path: str) -> frozenset[str]:
        """The files whose import loads a file, itself included. What a function of transformers' shared code imports is
        loaded by few of those that import that code."""
        found, waiting = {path}, [path]
        while waiting:
            for use in self.uses(waiting.pop(), IMPORT):
                if use.path not in found:
                    found.add(use.path)
                    if use.definition == IMPORT or not policy.is_shared(use.path):
                        waiting.append(use.path)
        return frozenset(found)

    def _of_name(self, path: str, name: str) -> Iterator[Use]:
        for changed in self._compared[path].imports if path in self._compared else ():
            if changed.name == name and (changed.how not in ("added", "removed") or not self._is_starred(path, name)):
                yield from (Use(path, *use) for use in changed.uses)
                if changed.at_import and changed.how == "removed":
                    yield Use(path, IMPORT, WHOLE)
        for user in self._offered(path, name):
            yield from self._graph.users_in(user, name)
            for other, local in self._importers(user, name):
                yield from self._graph.users_in(other, local)
        for user, local in self._rebound.get((module_of(path), name), ()):
            yield from self._graph.users_in(user, local)

    def _offered(self, path: str, name: str) -> Sequence[str]:
        """The files that a name of one comes to by star imports, of one another too."""
        found: dict[str, None] = {}
        waiting = [path]
        while waiting:
            module = module_of(waiting.pop())
            for user in self._starring.get(module, ()) if name in self._modules.exported(module) else ():
                if user not in found and not self._has_its_own(user, name):
                    found[user] = None
                    waiting.append(user)
        return [*found]

    def _importers(self, path: str, name: str) -> Iterator[tuple[str, str]]:
        """The files that import a name of another by its name, and what they call it."""
        for user, versions in self._modules.facts.items():
            for row in versions[0].imports:
                if row.name == name and self._modules.module(user, row.level, row.module) == module_of(path):
                    yield user, row.local

    def _is_starred(self, path: str, name: str) -> bool:
        """Whether a star import of a file may bring a name."""
        stars = {star for facts in self._modules.facts.get(path, ()) for star in facts.stars}
        sources = [self._modules.module(path, *star) for star in stars]
        return any(source is None or name in self._modules.exported(source) for source in sources)

    def _has_its_own(self, path: str, name: str) -> bool:
        """Whether a file has a name without a star import."""
        facts = self._modules.facts[path][0]
        return name in facts.rows or any(row.local == name for row in facts.imports)

    @cached_property
    def _starring(self) -> Mapping[str, Sequence[str]]:
        """The files that import all that a module offers."""
        found: dict[str, list[str]] = {}
        for path, versions in self._modules.facts.items():
            for level, name in versions[0].stars:
                found.setdefault(str(self._modules.module(path, level, name)), []).append(path)
        return found

    @cached_property
    def _rebound(self) -> Mapping[tuple[str, str], Sequence[tuple[str, str]]]:
        """The files that import a name from where a changed import binds it, and what they call it."""
        wanted = {changed.name for compared in self._compared.values() for changed in compared.imports}
        found: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for user, versions in self._modules.facts.items():
            for row in versions[0].imports:
                # Where one side alone imports it from there, that import is itself what changed.
                if row.name in wanted and all(row in facts.imports for facts in versions):
                    module = self._modules.module(user, row.level, row.module)
                    found.setdefault((str(module), str(row.name)), []).append((user, row.local))
        return found

    @cached_property
    def _loaders(self) -> Mapping[str, Sequence[Use]]:
        found: dict[str, dict[Use, None]] = {}
        for path, versions in self._modules.facts.items():
            if path.startswith(policy.TESTS):
                continue
            for facts in versions:
                for load in facts.loads:
                    for target in loaded(self._modules, path, load):
                        found.setdefault(target, {})[Use(path, IMPORT, WHOLE)] = None
                for row, definition, part in facts.inner:
                    for target in loaded(self._modules, path, Load(row.level, row.module, row.name or "", False)):
                        found.setdefault(target, {})[Use(path, definition, part)] = None
        return {path: tuple(uses) for path, uses in found.items()}


def loaded(modules: Modules, path: str, load: Load) -> Iterator[str]:
    """The files that an import loads, packages around them aside."""
    module = modules.module(path, load.level, load.module)
    if module is None:
        return
    yield modules.path(module)
    if load.name not in ("", "*"):
        yield from (target[0] for target in modules.lookup(module, load.name))


class Failing:
    """Finds the files that can no longer be imported.

    Args:
        base, head: the facts of each side by path.
        both: the files of both sides as Python finds them, and ``after`` those of head alone.
    """

    def __init__(self, base: Mapping[str, Facts], head: Mapping[str, Facts], both: Modules, after: Modules) -> None:
        self._base = base
        self._head = head
        self._both = both
        self._after = after

    def symbols(self, paths: Iterable[tuple[str | None, str | None]]) -> Iterator[Symbol]:
        """What fails by the change of some files, each given by its path on base and on head."""
        gone: set[str] = set()
        for old, new in paths:
            before, after = self._base.get(old or ""), self._head.get(new or "")
            if before is None:
                continue
            if old and (after is None or old != new or _lost(before, after)):
                gone.add(old)
            if new and after is not None and not after.error and not before.error:
                added = dict.fromkeys(after.loads)
                for load in before.loads:
                    added.pop(load, None)
                for load in added:
                    if load.sure and (why := self._fails(new, load) or self._turns_back(new, load)):
                        yield Symbol(new, IMPORT, WHOLE, why)
        for path, facts in self._head.items() if gone else ():
            for load in facts.loads:
                module = self._both.module(path, load.level, load.module) if load.sure else None
                if module is not None and self._both.path(module) in gone and (why := self._missing(path, load)):
                    yield Symbol(path, IMPORT, WHOLE, why)

    def _fails(self, path: str, load: Load) -> str:
        top = load.module.partition(".")[0]
        if load.level or self._after.module(path, 0, top) is not None:
            return self._missing(path, load)
        known = top in self._packages
        return "" if known else f"imports {load.module}, a package that nothing else needs to be imported"

    def _missing(self, path: str, load: Load) -> str:
        """Why an import of the repository's own finds nothing."""
        written = "." * load.level + load.module
        module = self._after.module(path, load.level, load.module)
        if module is None:
            return f"imports {written}, which is not there"
        facts = self._head.get(self._after.path(module))
        if load.name in ("", "*") or (self._after.path(module) and (facts is None or _may_have(facts, load.name))):
            return ""
        if self._after.module(path, load.level, f"{load.module}.{load.name}".lstrip(".")) is not None:
            return ""
        return f"imports {load.name} from {written}, which does not have it"

    @cached_property
    def _packages(self) -> frozenset[str]:
        """The packages from elsewhere that base could not be imported without."""
        loads = (load for facts in self._base.values() for load in facts.loads if load.sure and not load.level)
        return frozenset(load.module.partition(".")[0] for load in loads)

    def _turns_back(self, path: str, load: Load) -> str:
        """Why a name cannot be had from a module that is imported from here: it imports this file first."""
        if load.name in ("", "*"):
            return ""
        waiting = [each for each in loaded(self._after, path, load) if each != path]
        start, seen = waiting[:1], set[str]()
        while waiting:
            here = waiting.pop()
            if here in seen:
                continue
            seen.add(here)
            facts = self._head.get(here)
            for each in facts.loads if facts is not None else ():
                if each.sure:
                    waiting += loaded(self._after, here, each)
        if path not in seen:
            return ""
        return f"imports {load.name} from {start[0].rpartition('/')[2]}, which imports it in turn"


def _lost(before: Facts, after: Facts) -> bool:
    """Whether names that a file had are gone."""
    names = [{*facts.rows, *(row.local for row in facts.imports)} for facts in (before, after)]
    return not after.error and bool(names[0] - names[1] - {BODY})


def _may_have(facts: Facts, name: str) -> bool:
    names = (*facts.rows, *(row.local for row in facts.imports), *facts.structure)
    open_ended = facts.error or facts.lazy or facts.stars or ON_DEMAND in facts.rows
    return bool(open_ended) or name in names or any(name in offered for offered in facts.structure.values())
