"""What the classes of a repository are: broad bases whose members count one by one (see `policy`), models, and the
configurations and members that belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property

from hfexport_bot.changes import policy
from hfexport_bot.changes.graph import Graph, Use
from hfexport_bot.changes.search import Node


class Families:
    """The classes of both sides. Outside of ``transformers`` no base is broad."""

    def __init__(self, graph: Graph, transformers: bool) -> None:
        self._graph = graph
        self.transformers = transformers
        self.is_model = cache(self._find_model)
        self.is_related = cache(self._find_related)
        self.concerned = cache(self._find_concerned)

    @cached_property
    def broad(self) -> Mapping[tuple[str, str], str]:
        """Each class of the broad bases, and by which of them it is one."""
        found: dict[tuple[str, str], str] = {}
        if not self.transformers:
            return found
        shared = [path for path in self._graph.modules.facts if policy.is_shared(path)]
        for base in (*policy.BASES, *policy.CACHES):
            for path in shared:
                if self._graph.kind(path, base) == "class":
                    for owner in self._graph.ancestors(path, base):
                        found.setdefault((owner[0], str(owner[1])), base)
                    for derived in self._graph.descendants(path, base) if base in policy.CACHES else ():
                        found.setdefault((derived[0], str(derived[1])), base)
        return found

    @cached_property
    def configurations(self) -> Sequence[tuple[str, str]]:
        """The configurations of models."""
        classes = {
            target
            for owner, family in self.broad.items()
            if family == owner[1] == policy.CONFIG_BASE
            for target in self._graph.descendants(*owner)
        }
        return [owner for owner in sorted((path, str(name)) for path, name in classes) if owner not in self.broad]

    @cached_property
    def _generating_members(self) -> frozenset[str]:
        """Members that only ``generate`` runs."""
        members: dict[str, set[str]] = {}
        for (path, name), family in self.broad.items():
            definition = self._graph.definition(path, name)
            if definition is not None:
                members.setdefault(family, set()).update(definition.parts)
        return frozenset(members.get(policy.GENERATION_BASE, set()) - members.get(policy.MODEL_BASE, set()))

    def only_generates(self, path: str, member: str) -> bool:
        """Whether only ``generate`` runs a method of a model, and no other of its file."""
        return member in self._generating_members and not any(
            mention.path == path and mention.part not in self._generating_members
            for mention in self._graph.mentions(member)
        )

    def has_forward(self, path: str, name: str) -> bool:
        """Whether a class is a model that can be called."""
        return any(name in facts.models for facts in self._graph.modules.facts.get(path, ()))

    def _find_model(self, path: str, name: str) -> bool:
        return self.has_forward(path, name) or any(
            (path, name) in self._graph.descendants(*owner)
            for owner, family in self.broad.items()
            if owner[1] == family == policy.MODEL_BASE
        )

    def _find_related(self, one: tuple[str, str], other: tuple[str, str]) -> bool:
        """Whether an object may be of both classes."""
        return not self._graph.descendants(*one).isdisjoint(self._graph.descendants(*other))

    def _find_concerned(self, path: str, name: str) -> Sequence[Node] | None:
        """The configurations that have what a mixin of their base is about; None for any other class."""
        attribute = policy.CONCERNS.get(name)
        if attribute is None:
            return None
        return [
            Node(*owner)
            for owner in sorted((target[0], str(target[1])) for target in self._graph.descendants(path, name))
            if owner not in self.broad and self.has(*owner, attribute)
        ]

    def has(self, path: str, name: str, member: str) -> bool:
        """Whether a class has a member that is not of its broad bases."""
        owners = [(base, str(derived)) for base, derived in self._graph.ancestors(path, name)]
        return any(
            owner not in self.broad
            and (definition := self._graph.definition(*owner)) is not None
            and member in definition.parts
            for owner in owners
        )

    def is_constant(self, node: Node) -> bool:
        """Whether a definition is a constant."""
        return self._graph.kind(node.path, node.definition) == "constant"

    def is_method(self, path: str, name: str, part: str) -> bool:
        """Whether a member runs when it is called, not with its class."""
        return not policy.is_special(part) and any(
            row[3][part][5]
            for facts in self._graph.modules.facts.get(path, ())
            if (row := facts.rows.get(name)) is not None and part in row[3]
        )

    def gets_its_own(self, use: Use) -> bool:
        """Whether a hint tells of the configuration that a class is made with: layers get what the model at hand has,
        whatever they hint, and a model that names its configuration has that."""
        definition = self._graph.definition(use.path, use.definition)
        named = definition is not None and not policy.CONFIGURED.isdisjoint(definition.parts)
        return self.is_model(use.path, use.definition) and not named

    def takes_a_member(self, node: Node, after: str) -> bool:
        """Whether ``Class.member`` uses no more of a class than that member, which counts on its own."""
        definition = self._graph.definition(node.path, node.definition)
        if definition is None or after.partition(".")[0] not in definition.parts:
            return False
        makes, waiting = {"__init__", node.definition}, [after.partition(".")[0]]
        seen: set[str] = set()
        while waiting:
            member = waiting.pop()
            part = definition.parts.get(member)
            if part is None or member in seen:
                continue
            seen.add(member)
            if not makes.isdisjoint((*part.own, *part.names)):
                return False
            waiting += part.own
        return True
