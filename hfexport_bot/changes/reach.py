"""From changed symbols to all that they affect, each with the chain that leads there.

Uses are followed from the used to the user. A class is one node, whichever of its members is concerned, except for the
broad bases (see `policy`): there a member is a node of its own, and its users are the code that takes it by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import NamedTuple

from hfexport_bot.changes import policy
from hfexport_bot.changes.graph import Graph, Mention, Use
from hfexport_bot.changes.units import BODY
from hfexport_bot.schema import Layout, Task


class Node(NamedTuple):
    """Something affected: a definition, a member of a broad base, or an entry of a table."""

    path: str
    definition: str
    part: str = ""


class Visit(NamedTuple):
    """How a node is affected: in every case, or in those of ``generate`` alone, and from which node. One that does not
    count is a link of chains alone."""

    task: Task
    before: Node | None
    counts: bool = True


Reached = Mapping[Node, Visit]


class Reach:
    """Follows uses through a graph."""

    def __init__(self, graph: Graph, layout: Layout) -> None:
        self._graph = graph
        self._transformers = layout is Layout.TRANSFORMERS
        self._is_taken = cache(self._find_taken)
        self.is_model = cache(self._find_model)
        self._is_related = cache(self._find_related)
        self._named = cache(self._find_named)
        self._whole = cache(lambda path, name: self._run([Node(path, name)]))

    def affected(self, seeds: Iterable[Node]) -> Reached:
        """All that the seeds affect. Those among them that are members of broad bases affect no more than what also
        uses their class."""
        plain: list[Node] = []
        members: dict[tuple[str, str], list[Node]] = {}
        for seed in seeds:
            arrived = self._arrive(Use(*seed), Task.FORWARD, direct=True)
            if arrived is None:
                continue
            node, _ = arrived
            if node.part and (node.path, node.definition) in self.broad:
                members.setdefault((node.path, node.definition), []).append(node)
            else:
                plain.append(node)
        found = dict(self._run(plain))
        for owner, nodes in members.items():
            reached = self._run(nodes)
            # Most members that change are on no exported path: spare the users of their class then.
            models = any(node.path.startswith(policy.MODELS) and not node.part for node in reached)
            whole = self._whole(*owner) if models else {}
            for node, visit in reached.items():
                known = found.get(node)
                if node in whole:
                    task = visit.task if whole[node].task is Task.FORWARD else Task.GENERATE
                    if known is None or not known.counts or (known.task, task) == (Task.GENERATE, Task.FORWARD):
                        found[node] = Visit(task, visit.before)
                elif known is None:
                    found[node] = visit._replace(counts=False)
        return found

    def _run(self, seeds: Iterable[Node]) -> Reached:
        found: dict[Node, Visit] = {}
        # What affects every case first, so that no chain through generate hides one through forward.
        waiting: dict[Task, deque[tuple[Node, Node | None]]] = {task: deque() for task in Task}
        waiting[Task.FORWARD].extend((seed, None) for seed in seeds)
        for task in (Task.FORWARD, Task.GENERATE):
            queue = waiting[task]
            while queue:
                node, before = queue.popleft()
                if node in found:
                    continue
                own = task
                if self.broad.get((node.path, node.definition)) == policy.GENERATION_BASE:
                    own = Task.GENERATE
                if own is not task:
                    waiting[own].append((node, before))
                    continue
                found[node] = Visit(task, before)
                for following, label in self._expand(node, task):
                    if following not in found:
                        waiting[label].append((following, node))
        return found

    # -- what uses a node ----------------------------------------------------------------------------------------

    def _expand(self, node: Node, task: Task) -> Iterator[tuple[Node, Task]]:
        if node.definition == BODY:
            names = {name for facts in self._graph.modules.facts.get(node.path, ()) for name in facts.rows}
            uses: Iterable[Use] = (Use(node.path, name, "") for name in sorted(names) if name != BODY)
        elif node.part.startswith("["):
            yield from self._of_entry(node, task)
            return
        elif node.part:
            uses = self._of_member(node)
        else:
            uses = self._graph.users(node.path, node.definition)
            for entry in self._graph.tables.get(node.definition, ()) if node.path.startswith(policy.MODELS) else ():
                if entry.path.startswith(policy.AUTO):
                    yield Node(entry.path, entry.definition, entry.part), task
        registry = node.definition in policy.REGISTRIES
        for use in uses:
            if registry and self.broad.get((use.path, use.definition)) in policy.BASES:
                continue
            if use.path.startswith(policy.TESTS) and not node.path.startswith(policy.TESTS):
                continue  # tests name models to check them
            arrived = self._arrive(use, task)
            if arrived is not None:
                yield arrived

    def _of_member(self, node: Node) -> Iterator[Use]:
        """What takes a member of a broad base."""
        owner = (node.path, node.definition)
        family = self.broad[owner]
        if node.part in policy.ENTRIES and family == policy.MODEL_BASE:
            yield Use(node.path, node.definition, "")
        if node.part == policy.GENERATE and family == policy.GENERATION_BASE:
            yield Use(node.path, node.definition, "")
        for mention in self._graph.mentions(node.part):
            if mention[:3] != node and self._may_be(mention, owner):
                yield Use(mention.path, mention.definition, mention.part)
        for entry in self._graph.tables.get(node.part, ()):
            if entry.definition == policy.GENERATION_MODES and policy.GREEDY in entry.part:
                yield entry

    def _may_be(self, mention: Mention, owner: tuple[str, str]) -> bool:
        """Whether an attribute that is taken may be a member of a class."""
        if mention.own:
            return self._is_related((mention.path, mention.definition), owner)
        if not mention.root:
            return True
        targets = self._graph.resolve(mention.path, mention.root)
        return any(
            self._is_related((path, name), owner)
            if self._kind(path, name) == "class"
            else self._kind(path, name) == "constant"
            for path, name in targets
            if name is not None
        )

    def _of_entry(self, node: Node, task: Task) -> Iterator[tuple[Node, Task]]:
        """What looks an entry of a table up: by its key, or by one that is known at run time."""
        auto = node.path.startswith(policy.AUTO)
        for use in self._graph.users(node.path, node.definition):
            literal = use.after.startswith("[")
            if literal and not use.after.startswith(node.part):
                continue
            if use.path.startswith(policy.TESTS):
                continue
            kind = self._kind(use.path, use.definition)
            if kind == "constant" or (kind == "class" and use.path.startswith(policy.AUTO)):
                yield Node(use.path, use.definition, node.part), task  # `ACT2FN = ClassInstantier(ACT2CLS)`
                continue
            if use.path.startswith(policy.AUTO) and auto:
                continue
            if auto and not literal and not self._named(use.path.rpartition("/")[0], node.part.strip("[]'\"")):
                continue
            if node.definition in policy.REGISTRIES and self.broad.get((use.path, use.definition)) in policy.BASES:
                continue
            arrived = self._arrive(use, task)
            if arrived is not None:
                yield arrived

    # -- where a use leads to ------------------------------------------------------------------------------------

    def _arrive(self, use: Use, task: Task, direct: bool = False) -> tuple[Node, Task] | None:
        """The node that a used or changed (``direct``) part belongs to; None where no exported path runs it."""
        path, name, part = use.path, use.definition, use.part
        if self._transformers and policy.is_behind_boundary(path, name, part):
            return None
        family = self.broad.get((path, name))
        if family is not None:
            task = Task.GENERATE if family == policy.GENERATION_BASE else task
            return Node(path, name, "" if not part or policy.is_special(part) else part), task
        if part.startswith("["):
            return Node(path, name, part), task
        if path.startswith(policy.TESTS) and policy.runs_in_a_test_only(name, part):
            return None
        if part and not direct and self.is_model(path, name) and self._is_method(path, name, part):
            if not self._is_taken(part):
                return None
            if part in self._generating_members:
                task = Task.GENERATE
        return Node(path, name), task

    def _kind(self, path: str, name: str) -> str:
        for facts in self._graph.modules.facts.get(path, ()):
            if name in facts.rows:
                return str(facts.rows[name][0])
        return ""

    def _is_method(self, path: str, name: str, part: str) -> bool:
        """Whether a member runs when it is called, not with its class."""
        return not policy.is_special(part) and any(
            row[3][part][5]
            for facts in self._graph.modules.facts.get(path, ())
            if (row := facts.rows.get(name)) is not None and part in row[3]
        )

    def _find_taken(self, member: str) -> bool:
        """Whether any code takes an attribute of that name, or a model is called by it."""
        return member in policy.ENTRIES or any(
            mention.part != member and not mention.path.startswith(policy.TESTS)
            for mention in self._graph.mentions(member)
        )

    # -- classes -------------------------------------------------------------------------------------------------

    @cached_property
    def broad(self) -> Mapping[tuple[str, str], str]:
        """Each class of the broad bases, and by which of them it is one."""
        found: dict[tuple[str, str], str] = {}
        if not self._transformers:
            return found
        shared = [path for path in self._graph.modules.facts if policy.is_shared(path)]
        for base in (*policy.BASES, *policy.CACHES):
            for path in shared:
                if self._kind(path, base) == "class":
                    for owner in self._graph.ancestors(path, base):
                        found.setdefault((owner[0], str(owner[1])), base)
                    for derived in self._graph.descendants(path, base) if base in policy.CACHES else ():
                        found.setdefault((derived[0], str(derived[1])), base)
        return found

    @cached_property
    def _generating_members(self) -> frozenset[str]:
        """Members that only ``generate`` runs."""
        members: dict[str, set[str]] = {}
        for (path, name), family in self.broad.items():
            definition = self._graph.definition(path, name)
            if definition is not None:
                members.setdefault(family, set()).update(definition.parts)
        return frozenset(members.get(policy.GENERATION_BASE, set()) - members.get(policy.MODEL_BASE, set()))

    def _find_model(self, path: str, name: str) -> bool:
        return any(name in facts.models for facts in self._graph.modules.facts.get(path, ())) or any(
            (path, name) in self._graph.descendants(*owner)
            for owner, family in self.broad.items()
            if owner[1] == family == policy.MODEL_BASE
        )

    def _find_related(self, one: tuple[str, str], other: tuple[str, str]) -> bool:
        """Whether an object may be of both classes."""
        return not self._graph.descendants(*one).isdisjoint(self._graph.descendants(*other))

    # -- composite models ----------------------------------------------------------------------------------------

    def _find_named(self, folder: str, model_type: str) -> bool:
        """Whether the configurations or tests of a model's folder name a type of model, or a class of it."""
        if not folder.startswith(policy.MODELS):
            return False
        tests = f"tests/models/{folder.removeprefix(policy.MODELS)}"
        classes = self._classes_of_type.get(model_type, frozenset())
        for path in (*self._folders.get(tests, ()), *self._folders.get(folder, ())):
            test = path.startswith(tests)
            if not test and not path.startswith(f"{folder}/configuration_"):
                continue
            for facts in self._graph.modules.facts[path]:
                for name, row in facts.rows.items():
                    for key, part in row[3].items():
                        if test and policy.is_check(key or name):
                            continue
                        if model_type in part[3] or (test and not classes.isdisjoint(part[0])):
                            return True
        return False

    @cached_property
    def _folders(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for path in self._graph.modules.facts:
            found.setdefault(path.rpartition("/")[0], []).append(path)
        return found

    @cached_property
    def _classes_of_type(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for path, versions in self._graph.modules.facts.items():
            if path.startswith(policy.AUTO):
                for facts in versions:
                    for row in facts.rows.values():
                        for key, part in row[3].items():
                            if key.startswith("["):
                                found.setdefault(key.strip("[]'\""), set()).update(part[3])
        return {key: frozenset(classes) for key, classes in found.items()}
