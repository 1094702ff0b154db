"""Imports that are there for what they do: a module that puts something into tables of others, or changes others, as it
is loaded. Where a file begins or ceases to load it, what reads those tables is affected, or whatever loads the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from hfexport_bot.changes import policy
from hfexport_bot.changes.facts import Facts
from hfexport_bot.changes.filling import filled
from hfexport_bot.changes.graph import Graph, Use
from hfexport_bot.changes.imports import Load
from hfexport_bot.changes.loading import loaded
from hfexport_bot.changes.order import CONDITION
from hfexport_bot.changes.registered import registered
from hfexport_bot.changes.search import Node
from hfexport_bot.changes.symbols import Compared, Symbol
from hfexport_bot.changes.units import EFFECTS, IMPORT

#: A side's facts of a file.
_FactsOf = Callable[[str], Facts | None]


class Effects:
    """What is done to others by the modules that a file loads."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._modules = graph.modules
        self.of = cache(self._find)

    def uses(self, path: str, module: str) -> Iterator[Use]:
        """What is affected where the file at ``path`` loads another, at ``module``, otherwise than before."""
        yield from (Use(path, IMPORT, "") if use.definition == IMPORT else use for use in self.of(module))

    def _find(self, path: str) -> tuple[Use, ...]:
        """The tables that a file puts something into as it is loaded, and its own import where it acts on others."""
        found: dict[Use, None] = {}
        versions = self._modules.facts.get(path, ())
        for facts in versions:
            if facts.acts:
                found[Use(path, IMPORT, "")] = None
            for name, row in facts.rows.items():
                for part in row[3]:
                    found |= dict.fromkeys(filled(self._graph, Node(path, name, part)))
                found |= dict.fromkeys(registered(self._graph, path, name))
        return tuple(use for use in found if use.path != path or use.definition == IMPORT)

    def symbols(
        self, path: str, sides: tuple[Mapping[str, Facts], Mapping[str, Facts]], compared: Compared
    ) -> Iterator[Symbol]:
        """What a file of both sides loads otherwise than before, as far as that does something."""
        facts = [side.get(path) for side in sides]
        old, new = facts
        if old is None or new is None or path.startswith(policy.TESTS):
            return
        guarded = {each.name for each in compared.imports if each.how == CONDITION}
        before, after = [*dict.fromkeys(old.loads)], [*dict.fromkeys(new.loads)]
        if before == after and not guarded:
            return
        known, now = self._reached(path, before, sides[0].get), self._reached(path, after, sides[1].get)
        hows: dict[str, str] = {}
        for module in dict.fromkeys((*known, *now)):
            name = module.rpartition("/")[2] if not module.endswith("__init__.py") else module
            if module not in now:
                hows[module] = f"no longer loads {name}"
            elif module not in known:
                hows[module] = f"newly loads {name}"
            elif known[module] != now[module]:
                hows[module] = f"loads {name} under another condition"
        rows = [Load(row.level, row.module, row.name or "", False) for row in new.imports if row.local in guarded]
        for module in self._loaded(path, rows):
            if not (known.get(module) and now.get(module)):
                hows.setdefault(module, f"loads {module.rpartition('/')[2]} under another condition")
        for module in self._swapped(path, before, after):
            hows.setdefault(module, f"loads {module.rpartition('/')[2]} in another order")
        yield from (Symbol(path, EFFECTS, module, how) for module, how in hows.items() if self.of(module))

    def _loaded(self, path: str, loads: Iterable[Load]) -> Iterator[str]:
        return (each for load in loads for each in loaded(self._modules, path, load) if each and each != path)

    def _reached(self, path: str, loads: Iterable[Load], facts_of: _FactsOf) -> Mapping[str, bool]:
        """All that is loaded by the imports of a file, and whether it surely is: no condition is on the way."""
        found: dict[str, bool] = {}
        waiting = [(path, load.sure, load) for load in loads]
        waiting += [(each, True, load) for each in self._around(path) for load in self._loads(each, facts_of)]
        while waiting:
            here, sure, load = waiting.pop()
            for module in self._loaded(here, [load]):
                for each in (module, *self._around(module)):
                    if each != path and (each not in found or (sure and not found[each])):
                        found[each] = sure
                        waiting += [(each, sure and row.sure, row) for row in self._loads(each, facts_of)]
        return found

    def _loads(self, path: str, facts_of: _FactsOf) -> Iterable[Load]:
        facts = facts_of(path)
        return facts.loads if facts is not None else ()

    def _around(self, path: str) -> Iterator[str]:
        """The files of the packages that a file is in."""
        folder = path.rpartition("/")[0]
        while folder:
            if (package := self._modules.path(folder)) and package != path:
                yield package
            folder = folder.rpartition("/")[0]

    def _swapped(self, path: str, before: Iterable[Load], after: Iterable[Load]) -> Iterator[str]:
        """The files that act as they are loaded and that a file loads in another order among themselves."""
        sides = [
            [each for each in dict.fromkeys(self._loaded(path, loads)) if self.of(each)] for loads in (before, after)
        ]
        common = [[each for each in side if each in other] for side, other in zip(sides, sides[::-1], strict=True)]
        yield from (new for old, new in zip(*common, strict=True) if old != new)
