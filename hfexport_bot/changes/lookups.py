"""Who looks entries of tables up: of registries such as ``ACT2FN``, and of the auto classes' tables of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from functools import cache, cached_property

from hfexport_bot.changes import policy
from hfexport_bot.changes.families import Families
from hfexport_bot.changes.graph import Graph, Use
from hfexport_bot.changes.naming import Naming
from hfexport_bot.changes.uses import FILLS


class How(Enum):
    """How a table's entries are looked up: by what hands them on (``ACT2FN = ClassInstantier(ACT2CLS)``), by the
    base of all configurations or by a cache that is made for one, or by any other code."""

    PASSED_ON = auto()
    BY_CONFIGURATIONS = auto()
    ASKED = auto()


#: What may look entries of a table up, whether by a key that is written there, and how.
Lookup = tuple[Use, bool, How]


class Lookups:
    """The lookups of all tables."""

    def __init__(self, graph: Graph, families: Families) -> None:
        self._graph = graph
        self._families = families
        self._naming = Naming(graph)
        self._of_table = cache(lambda path, name: tuple(self._find_lookups(path, name)))
        self._is_asked_for = cache(self._find_asked_for)

    def of_table(self, path: str, name: str) -> Sequence[Lookup]:
        """The lookups of one table: the same for each of its entries, of which some tables have hundreds."""
        return self._of_table(path, name)

    def is_asked_for(self, part: str) -> bool:
        """Whether any code looks entries of that key up in the tables of auto classes: most models are parts of no
        other, and there are as many tables as tasks."""
        return self._is_asked_for(part)

    def may_ask(self, use: Use, path: str, name: str, key: str) -> bool:
        """Whether code that chooses at run time may look that key up in a table."""
        if path.startswith(policy.AUTO):
            return self._naming.names(use.path.rpartition("/")[0], key)
        return name not in policy.KEYED_BY_CONFIG or self._naming.may_ask_for(use.path, key)

    def configurations_naming(self, key: str) -> Iterator[tuple[str, str]]:
        """The configurations of models that name a key."""
        for path, name in self._families.configurations:
            if self._naming.names(path.rpartition("/")[0], key):
                yield path, name

    def is_of_cache(self, use: Use) -> bool:
        """Whether it is a cache that looks an entry up."""
        return self._families.broad.get((use.path, use.definition)) in policy.CACHES

    def is_named_beside(self, use: Use, key: str) -> bool:
        """Whether a cache may be made for a key that no configuration names: code of its file does, without asking for
        the field that stands for it."""
        field = policy.LAYERS_BY_FIELD.get(key)
        return self.is_of_cache(use) and any(
            key in part[3] and field not in part[3]
            for facts in self._graph.modules.facts.get(use.path, ())
            for row in facts.rows.values()
            if row[0] != "constant"
            for part in row[3].values()
        )

    def _find_lookups(self, path: str, name: str) -> Iterator[Lookup]:
        of_auto = path.startswith(policy.AUTO)
        for use in self._graph.users(path, name):
            if use.path.startswith(policy.TESTS) or use.after == FILLS:
                continue
            literal, among_auto = use.after.startswith("["), use.path.startswith(policy.AUTO)
            kind = self._graph.kind(use.path, use.definition)
            family = self._families.broad.get((use.path, use.definition))
            if kind == "constant" or (kind == "class" and among_auto):
                yield use, literal, How.PASSED_ON
            elif family in (policy.CONFIG_BASE, *policy.CACHES) and name in policy.KEYED_BY_CONFIG:
                yield use, literal, How.BY_CONFIGURATIONS
            elif of_auto:
                if not among_auto and (literal or use.path.startswith(policy.MODELS)):
                    yield use, literal, How.ASKED
                elif not among_auto and kind == "class" and family is None:
                    # A head that models share builds the model that a configuration is for.
                    for path_of, heir in sorted(self._graph.descendants(use.path, use.definition)):
                        if path_of.startswith(policy.MODELS):
                            yield Use(path_of, str(heir), ""), False, How.ASKED
            elif family not in policy.BASES or not (name in policy.REGISTRIES or use.after == policy.KEYS):
                yield use, literal, How.ASKED

    def _find_asked_for(self, part: str) -> bool:
        key = part.strip("[]'\"")
        return any(
            after.startswith(part) if after else not folder or self._naming.names(folder, key)
            for folder, after in self._auto_lookups
        )

    @cached_property
    def _auto_lookups(self) -> Sequence[tuple[str, str]]:
        """The folders that look entries of the auto classes' tables up, each with the key where it is written there. A
        table elsewhere that takes them over on an exported path, an empty folder, may be asked for any."""
        found: set[tuple[str, str]] = set()
        for path, versions in self._graph.modules.facts.items():
            names = {name for facts in versions for name in facts.rows} if path.startswith(policy.AUTO) else ()
            for name in names:
                for use, literal, how in self.of_table(path, name):
                    if how is How.ASKED:
                        found.add((use.path.rpartition("/")[0], use.after if literal else ""))
                    elif not use.path.startswith(policy.AUTO) and not policy.is_behind_boundary(*use[:3]):
                        found.add(("", use.after if literal else ""))
        return sorted(found)
