"""From changed symbols to all that they affect, each with the chain that leads there.

Uses are followed from the used to the user. A class is one node, whichever of its members is concerned, except for the
broad bases (see `policy`): there a member is a node of its own, and its users are the code that takes it by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from hfexport_bot.changes import policy
from hfexport_bot.changes.effects import Effects
from hfexport_bot.changes.families import Families
from hfexport_bot.changes.filling import filled
from hfexport_bot.changes.given import Given
from hfexport_bot.changes.graph import Graph, Mention, Use
from hfexport_bot.changes.guards import Guards
from hfexport_bot.changes.loading import Loading
from hfexport_bot.changes.lookups import How, Lookups
from hfexport_bot.changes.processors import BUILDS, Processors
from hfexport_bot.changes.registered import registered
from hfexport_bot.changes.search import Affected, Node, Search, Visit
from hfexport_bot.changes.units import BODY, EFFECTS, IMPORT
from hfexport_bot.changes.uses import HINT, ONLY_NAMED
from hfexport_bot.schema import Task


class Reach:
    """Follows uses through a graph, and what ``more`` says of a definition: others that it affects and that no use
    tells of."""

    def __init__(
        self,
        graph: Graph,
        families: Families,
        loading: Loading,
        processors: Processors,
        guards: Guards,
        more: Callable[[Node], Iterable[Node]] = lambda node: (),
    ) -> None:
        self._graph = graph
        self._families = families
        self._broad = families.broad
        self._lookups = Lookups(graph, families)
        self._loading = loading
        self._effects = Effects(graph)
        self._processors = processors
        self._guards = guards
        self._more = more
        self._transformers = families.transformers
        self._filling: set[Node] = set()
        self._is_taken = cache(self._find_taken)
        self._whole = cache(self._find_whole)
        self._following = cache(lambda node, task: tuple(self._expand(node, task)))
        self._is_for_pickling = cache(self._find_for_pickling)

    def affected(self, seeds: Iterable[Node]) -> Affected:
        """All that the seeds affect. Those among them that are members of broad bases affect no more than what also
        uses their class."""
        plain: dict[Node, list[Node]] = {}
        tasks: dict[Node, Task] = {}
        members: dict[tuple[str, str], dict[Node, list[Node]]] = {}
        for seed in seeds:
            arrived = self._arrive(Use(*seed[:3]), Task.FORWARD, direct=True)
            if arrived is not None:
                node, task = arrived[0]._replace(when=seed.when), arrived[1]
                owner = (node.path, node.definition)
                if tasks.get(node) is not Task.FORWARD:
                    tasks[node] = task
                group = members.setdefault(owner, {}) if node.part and owner in self._broad else plain
                group.setdefault(node, []).append(seed)
        search = self._run(plain, tasks)
        search.starts = plain
        found, searches = dict(search.found), [search]
        for owner, nodes in members.items():
            search = self._run(nodes, tasks, self._families.concerned(*owner))
            # Most members that change are on no exported path: spare the users of their class then.
            models = any(node.path.startswith(policy.MODELS) and not node.part for node in search.found)
            search.starts, search.counts = nodes, self._whole(*owner) if models else {}
            searches.append(search)
            for node, visit in search.found.items():
                known = found.get(node)
                if node in search.counts:
                    task = visit.task if search.counts[node].task is Task.FORWARD else Task.GENERATE
                    if known is None or not known.counts or (known.task, task) == (Task.GENERATE, Task.FORWARD):
                        found[node] = Visit(task, visit.before)
                elif known is None:
                    found[node] = visit._replace(counts=False)
        return Affected(found, searches)

    def _find_whole(self, path: str, name: str) -> Mapping[Node, Visit]:
        """All that uses a class in any way."""
        uses = [use for use in self._graph.users(path, name) if not use.path.startswith(policy.TESTS)]
        arrived = [(use, found[0]) for use in uses if (found := self._arrive(use, Task.FORWARD)) is not None]
        followed = (self._guards.followed(Node(path, name), use, node) for use, node in arrived)
        return self._run([Node(path, name), *filter(None, followed)], {}).found

    def _run(
        self, seeds: Iterable[Node], tasks: Mapping[Node, Task], concerned: Sequence[Node] | None = None
    ) -> Search:
        """Walk from the seeds, which affect every case unless ``tasks`` says otherwise. ``concerned``: the
        configurations that a mixin of their base is about."""
        search = Search()
        found = search.found
        # What affects every case first, so that no chain through generate hides one through forward.
        waiting: dict[Task, deque[tuple[Node, Node | None]]] = {task: deque() for task in Task}
        for seed in seeds:
            waiting[tasks.get(seed, Task.FORWARD)].append((seed, None))
        for task in (Task.FORWARD, Task.GENERATE):
            queue = waiting[task]
            while queue:
                node, before = queue.popleft()
                if node in found:
                    continue
                family = self._broad.get((node.path, node.definition))
                if policy.is_of_generate(family, node.part) and task is not Task.GENERATE:
                    waiting[Task.GENERATE].append((node, before))
                    continue
                found[node] = Visit(task, before)
                following = self._following(node, task)
                if concerned is not None and family == policy.CONFIG_BASE and not node.part:
                    following = tuple((config, task) for config in concerned)
                for after, label in following:
                    search.before.setdefault(after, []).append(node)
                    if after not in found:
                        waiting[label].append((after, node))
        return search

    # -- what uses a node ----------------------------------------------------------------------------------------

    def _expand(self, node: Node, task: Task) -> Iterator[tuple[Node, Task]]:
        if node.when and not node.part and self._broad.get((node.path, node.definition)) == policy.CONFIG_BASE:
            configurations = (Node(*config) for config in self._families.configurations)
            yield from ((config, task) for config in configurations if self._guards.is_said(config.path, node.when))
            return
        for use, label in self._uses(node, task):
            arrived = (use, label) if isinstance(use, Node) else self._arrive(use, label)
            if arrived is not None:
                after = self._guards.followed(node, Use(*use[:3]), arrived[0])
                if after is not None:
                    yield after, arrived[1]

    def _uses(self, node: Node, task: Task) -> Iterator[tuple[Use | Node, Task]]:
        """What uses a node: parts of definitions, and nodes that it leads to otherwise."""
        if node.definition == EFFECTS:
            yield from self._of_tables(node, [*self._effects.uses(node.path, node.part)], task)
            return
        if node.part.startswith("["):
            yield from self._of_entry(node, task)
            yield from self._of_filled(node, task)
            return
        if node.part in policy.CONFIGURED and (node.path, node.definition) not in self._broad:
            yield from self._of_configured(node, task)
            return
        if IMPORT in (node.definition, node.part):
            yield from ((use, task) for use in self._loading.uses(node.path, node.definition))
            return
        if not node.part and node.path.startswith(policy.MODELS):
            for entry in self._graph.tables.get(node.definition, ()):
                if entry.path.startswith(policy.AUTO) and self._lookups.is_asked_for(entry.part):
                    yield Node(entry.path, entry.definition, entry.part), task
        of_definition = ((use, task) for use in self._of_definition(node))
        for use, label in self._of_member(node, task) if node.part else of_definition:
            if use.path.startswith(policy.TESTS) and not node.path.startswith(policy.TESTS):
                continue  # tests name models to check them
            yield use, label
        if not node.part:
            yield from ((other, task) for other in self._more(node))
            asking = self._processors.asked_for_by(node.path, node.definition)
            yield from ((Node(*config), Task.GENERATE) for config in asking)
            yield from ((use, task) for use in registered(self._graph, node.path, node.definition))
            yield from self._of_filled(node, task)

    def _of_definition(self, node: Node) -> Iterator[Use]:
        """What uses a definition by name; all of a file where it is what runs at import."""
        if node.definition == BODY:
            names = {name for facts in self._graph.modules.facts.get(node.path, ()) for name in facts.rows}
            yield from (Use(node.path, name, "") for name in sorted(names) if name != BODY)
            if self._graph.kind(node.path, BODY) == "patches":
                yield Use(node.path, IMPORT, "")
            return
        registry = node.definition in policy.REGISTRIES
        broad = (node.path, node.definition) in self._broad
        versions = self._graph.modules.facts.get(node.path, ())
        stays = all(node.definition in facts.rows for facts in versions)
        users = self._graph.users(node.path, node.definition)
        named = {use.path for use in users if use.part in policy.CONFIGURED}
        for use in users:
            if use.after == HINT and (broad or (use.path in named and not self._families.gets_its_own(use))):
                continue
            if use.part == BUILDS and self._processors.is_optional(node.definition):
                continue
            if stays and (use.after == ONLY_NAMED or use.part in policy.LISTENS):
                continue
            by_a_base = self._broad.get((use.path, use.definition)) in policy.BASES
            if by_a_base and (registry or (use.after == policy.KEYS and self._families.is_constant(node))):
                continue
            if not (broad and use.after and self._families.takes_a_member(node, use.after)):
                yield use

    def _of_configured(self, node: Node, task: Task) -> Iterator[tuple[Use | Node, Task]]:
        """What has the configuration that a base of models names: those that derive from it and name no other."""
        children = self._graph.children(node.path, node.definition)
        for path, name in children:
            definition = self._graph.definition(path, name)
            if definition is None or policy.CONFIGURED.isdisjoint(definition.parts):
                yield Node(path, name, "" if self._families.has_forward(path, name) else node.part), task
        for use in self._of_definition(Node(node.path, node.definition)):
            if (use.path, use.definition) not in children or use.part:
                yield use, task

    def _of_member(self, node: Node, task: Task) -> Iterator[tuple[Use, Task]]:
        """What takes a member of a broad base. Objects that configure generation are asked by ``generate`` alone."""
        owner = (node.path, node.definition)
        family = self._broad[owner]
        whole = Use(node.path, node.definition, "")
        if (
            (node.part in policy.ENTRIES and family == policy.MODEL_BASE)
            or (node.part.startswith(policy.VALIDATES) and family == policy.CONFIG_BASE)
            or (node.part == policy.GENERATE and family == policy.GENERATION_BASE)
        ):
            yield whole, task
        for mention in self._graph.mentions(node.part):
            if mention[:3] != node[:3] and self._may_be(mention, owner):
                asked = family == policy.GENERATION_CONFIG and not mention.root
                yield Use(*mention[:3]), Task.GENERATE if asked else task
        for entry in self._graph.tables.get(node.part, ()):
            if entry.definition == policy.GENERATION_MODES and policy.GREEDY in entry.part:
                yield entry, task

    def _may_be(self, mention: Mention, owner: tuple[str, str]) -> bool:
        """Whether an attribute that is taken may be a member of a class."""
        if mention.own:
            return self._families.is_related((mention.path, mention.definition), owner)
        held = policy.may_hold(mention.path, self._broad[owner])
        if not mention.root:
            return held
        targets = self._graph.resolve(mention.path, mention.root)
        return any(
            self._families.is_related((path, name), owner)
            if self._graph.kind(path, name) == "class"
            else held and self._graph.kind(path, name) == "constant"
            for path, name in targets
            if name is not None
        )

    def _of_entry(self, node: Node, task: Task) -> Iterator[tuple[Use | Node, Task]]:
        """What looks an entry of a table up: by its key, or by one that is known at run time."""
        key = node.part.strip("[]'\"")
        written = node.part[1:2] in ("'", '"')  # not `{KEY: value}`
        for use, literal, how in self._lookups.of_table(node.path, node.definition):
            if literal and written and not use.after.startswith(node.part):
                continue
            if how is How.PASSED_ON:
                yield use._replace(part=node.part), task
            elif how is How.BY_CONFIGURATIONS and not self._lookups.is_named_beside(use, key):
                yield from self._for_configurations(use, key, task)
            elif literal or how is How.BY_CONFIGURATIONS or self._lookups.may_ask(use, node.path, node.definition, key):
                yield use, task

    def _of_filled(self, node: Node, task: Task) -> Iterator[tuple[Node, Task]]:
        """What reads the tables that a definition fills, and loads its file; through whatever other code looks the
        tables up."""
        if node not in self._filling:
            yield from self._of_tables(node, [*filled(self._graph, node)], task)

    def _of_tables(self, node: Node, tables: Iterable[Use], task: Task) -> Iterator[tuple[Node, Task]]:
        self._filling.add(node)  # two files may fill each other's tables
        waiting = [arrived for use in tables if (arrived := self._arrive(use, task)) is not None]
        seen = set(waiting)
        for arrived in waiting:
            if arrived[0].path in self._loading.loaders(node.path):
                yield arrived
                continue
            following = [each for each in self._following(*arrived) if each not in seen]
            seen.update(following)
            waiting += following
        self._filling.discard(node)

    def _for_configurations(self, use: Use, key: str, task: Task) -> Iterator[tuple[Node, Task]]:
        """What looks a key up for the configurations that name it, or for those with the field that stands for it."""
        field = policy.LAYERS_BY_FIELD.get(key)
        arrived = self._arrive(use, task) if field and self._lookups.is_of_cache(use) else None
        if field and arrived is not None:
            when = (Given(key, argument=False), Given(field, argument=False))
            yield arrived[0]._replace(when=when), arrived[1]
        else:
            yield from ((Node(*config), task) for config in self._lookups.configurations_naming(key))

    # -- where a use leads to ------------------------------------------------------------------------------------

    def _arrive(self, use: Use, task: Task, direct: bool = False) -> tuple[Node, Task] | None:
        """The node that a used or changed (``direct``) part belongs to; None where no exported path runs it."""
        path, name, part = use.path, use.definition, use.part
        if IMPORT in (name, part) or name == EFFECTS:
            return Node(path, name, part), task
        if self._transformers and policy.is_behind_boundary(path, name, part):
            return None
        family = self._broad.get((path, name))
        if family is not None:
            part = "" if policy.is_special(part) else part
            return Node(path, name, part), Task.GENERATE if policy.is_of_generate(family, part) else task
        if part.startswith("["):
            return Node(path, name, part), task
        if path.startswith(policy.TESTS) and policy.runs_in_a_test_only(name, part):
            return None
        if part and self._is_for_pickling(part):
            return None
        a_model = bool(part) and self._families.is_model(path, name)
        if a_model and part in policy.CONFIGURED and not self._families.has_forward(path, name):
            return Node(path, name, part), task
        if a_model and self._families.is_method(path, name, part):
            if not direct and not self._is_taken(part):
                return None
            if self._families.only_generates(path, part):
                task = Task.GENERATE
        return Node(path, name), task

    def _find_for_pickling(self, member: str) -> bool:
        """Whether nothing but special methods that no exported path runs takes an attribute of that name."""
        others = (mention.part for mention in self._graph.each_mention(member) if mention.part != member)
        return policy.is_never_run(next(others, "")) and all(map(policy.is_never_run, others))

    def _find_taken(self, member: str) -> bool:
        """Whether any code takes an attribute of that name, or a model is called by it."""
        return member in policy.ENTRIES or any(
            mention.part != member and not mention.path.startswith(policy.TESTS)
            for mention in self._graph.each_mention(member)
        )
