"""From changed files to the model classes they affect, and to what is not run and why.

What changed is a set of symbols (`symbols`); what they affect is found by following their uses (`reach`), in both
revisions at once. Nothing is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from hfexport_bot.changes import policy
from hfexport_bot.changes.chains import Chains
from hfexport_bot.changes.changed import Changed
from hfexport_bot.changes.configurations import Edges, configuration_edges
from hfexport_bot.changes.data_files import is_data, reading
from hfexport_bot.changes.effects import Effects
from hfexport_bot.changes.expectations import is_told_by_expectations
from hfexport_bot.changes.exporters import Hits, affected_by_exporters, is_exporter_file
from hfexport_bot.changes.facts import Facts
from hfexport_bot.changes.families import Families
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.graph import Graph
from hfexport_bot.changes.guards import Guards
from hfexport_bot.changes.installs import what_else_is_installed
from hfexport_bot.changes.layout import has_odd_name, is_modeling_file, is_test_or_doc, model_file
from hfexport_bot.changes.loading import Loading
from hfexport_bot.changes.named import Asked, Named, classes_named, may_name_models, unread_files
from hfexport_bot.changes.naming import Naming
from hfexport_bot.changes.processors import Processors
from hfexport_bot.changes.reach import Reach
from hfexport_bot.changes.reading import Sides, many_objects
from hfexport_bot.changes.recorded import Built
from hfexport_bot.changes.search import Affected, Node, Reached
from hfexport_bot.changes.selection import (
    ONLY_TEXT,
    SAME_NEEDS,
    AffectedModule,
    Selection,
    with_classes,
)
from hfexport_bot.changes.stars import with_starred
from hfexport_bot.changes.symbols import Symbol
from hfexport_bot.changes.tree import StoredTree
from hfexport_bot.schema import Layout, NotRun, Task

_NOT_THEIRS = "the engine own does not use the checkout's exporters; --engine repo or both does"
#: What test classes derive from that test no model in particular.
_PLAIN_TESTS = frozenset({"unittest.TestCase", "TestCase"})


def select(
    changes: Iterable[FileChange],
    base: StoredTree,
    head: StoredTree,
    layout: Layout,
    hits: Hits | None = None,
    asked: Asked | None = None,
    built: Built | None = None,
) -> Selection:
    """Find the affected model classes.

    ``hits``: where a checkout's own exporters are run, on which cases its patches and fixes acted before
    (`recorded_hits`); otherwise None, and a change to those exporters affects nothing. ``asked``: what the repository's
    settings have to do with the change. ``built``: what earlier runs tell of composite models (`recorded_builds`).

    A file that is no Python on one side takes the other side's classes, so that its cases run and end as errors in
    stage ``source``.
    """
    asked = asked or Asked()
    changes = list(changes)
    installs = what_else_is_installed(changes, base, head, layout)
    python = [
        change
        for change in changes
        if change.path.endswith(".py") and change not in installs.changes and _counts(change.path, layout, asked)
    ]
    aside = [change for change in changes if change not in python and change not in installs.changes]
    own = [change for change in python if is_exporter_file(change.path, layout)]
    by_exporters = affected_by_exporters(own if hits is not None else (), base, head, layout, hits or {})
    others = [change for change in python if change not in own]
    found, named = Selection(), Named()
    read = {asked.file}
    if others or installs.altered or may_name_models(asked, aside, layout):
        with many_objects():
            data = [change.path for change in aside if is_data(change.path, layout)]
            selecting = _Selecting(others, base, head, layout, asked, built or {}, data)
            found = selecting.selection(installs.altered)
            read |= selecting.read
        named = classes_named(asked, changes, selecting.touched, selecting.public, (base, head), layout)
    reason = "not used in an export to torch.export, ONNX or ExecuTorch"
    told = [entry for entry in found.not_run if not is_told_by_expectations(entry, asked.sources)]
    not_run = [*told, *(NotRun(kind="file", name=path, reason=reason) for path in by_exporters.unused)]
    if installs.altered is None:
        not_run += [NotRun(kind="file", name=change.path, reason=SAME_NEEDS) for change in installs.changes]
    if hits is None:
        not_run += [NotRun(kind="file", name=change.path, reason=_NOT_THEIRS) for change in own]
    if any(change.path == asked.file for change in changes) and not (asked.globs or asked.renamed):
        not_run.append(NotRun(kind="file", name=asked.file, reason=asked.postponed or ONLY_TEXT))
    not_run += unread_files(sorted({change.path for change in aside} - read - named.files))
    affected = with_classes(found.affected, by_exporters.classes, base, head, layout)
    return Selection(
        with_classes(affected, named.classes, base, head, layout),
        tuple(sorted(not_run, key=lambda entry: (entry.name, entry.reason))),
    )


def _counts(path: str, layout: Layout, asked: Asked) -> bool:
    """Whether a file may affect models: no document, and of the tests only those that make a model's inputs."""
    if path in asked.hooks:
        return True
    if layout is Layout.TRANSFORMERS and path.startswith(policy.TESTS):
        return policy.is_read(path)
    return not is_test_or_doc(path)


class _Why(NamedTuple):
    """Why a class is run: in every case or in those of ``generate``, its chain, all the changed symbols that lead to
    it, and the links of the chain."""

    task: Task
    text: str
    causes: frozenset[str] = frozenset()
    distance: int = 0


#: A modeling file and one of its classes.
_Owner = tuple[str, str]


class _Selecting:
    """One selection at work."""

    def __init__(
        self,
        changes: Sequence[FileChange],
        base: StoredTree,
        head: StoredTree,
        layout: Layout,
        asked: Asked,
        built: Built,
        data: Sequence[str],
    ) -> None:
        self._layout = layout
        self._built = built
        self._hooks = asked.hooks
        self._changes = changes
        self._moved = {change.old: change.path for change in changes if change.old and change.new != change.old}
        self._trees = (head, base)
        self._sides = Sides(base, head, layout, changes, asked.hooks)
        self._modules = self._sides.modules()
        self._graph = Graph(self._modules)
        self._compared = {
            change.path: with_starred(self._sides.compare(change), change.path, self._graph) for change in changes
        }
        loading = Loading(self._graph, self._compared)
        #: What reads each changed file that is no Python.
        code = [path for path in self._modules.facts if path not in asked.hooks]
        self._reading = {path: (*reading(path, code, self._trees),) for path in data}
        #: The files that are no Python and that some code reads.
        self.read = {path for path, symbols in self._reading.items() if symbols}
        self._changed = Changed(
            changes,
            self._sides,
            self._modules,
            self._compared,
            loading,
            Effects(self._graph),
            layout,
            asked.hooks,
            self._reading,
        )
        self._families = Families(self._graph, layout is Layout.TRANSFORMERS)
        processors = Processors(self._graph, self._trees)
        guards = Guards(self._graph, self._families, self._trees, Naming(self._graph))
        self._reach = Reach(self._graph, self._families, loading, processors, guards, self._edges)
        #: The files whose code changed or uses what did.
        self.touched: set[str] = set()

    def selection(self, every: str | None = None) -> Selection:
        """Everything affected, by path, and everything that is not run, by name. ``every``: why all models are."""
        seeds: dict[Node, list[Symbol]] = {}
        for symbol in self._changed.symbols():
            seeds.setdefault(self._seed(symbol), []).append(symbol)
        found = self._reach.affected(seeds)
        reached = found.reached
        self.touched = {node.path for node in (*seeds, *reached)}
        chains = Chains(reached, seeds, self._facts, lambda path: any(path in blobs for blobs in self._sides.blobs))
        reasons: dict[_Owner, _Why] = {}
        for change in self._changes:
            self._whole_file(change, reasons)
        for owner, node in self._owners(reached):
            known = reasons.get(owner)
            if known is None or known.task is Task.GENERATE:
                reasons[owner] = _Why(reached[node].task, chains.text(node, owner[1]), distance=chains.distance(node))
        self._trace_back(seeds, found, reasons)
        self._tell_without_forward(reached, chains)
        for path, names in self.public.items() if every else ():
            for name in names:
                known = reasons.get((path, name), _Why(Task.FORWARD, ""))
                text = "; ".join(filter(None, (known.text, every)))
                reasons[path, name] = known._replace(task=Task.FORWARD, text=text, causes=known.causes | {str(every)})
        affected = [*self._modules_of(reasons)]
        return Selection(
            tuple(affected), tuple(sorted(self._changed.not_run, key=lambda entry: (entry.name, entry.reason)))
        )

    def _seed(self, symbol: Symbol) -> Node:
        return Node(symbol.path, symbol.definition, symbol.part, symbol.when)

    def _facts(self, path: str) -> Sequence[Facts]:
        return self._modules.facts.get(path, ())

    @property
    def public(self) -> Mapping[str, Sequence[str]]:
        """The public model classes of each modeling file, on either side."""
        return {
            path: [*dict.fromkeys(name for facts in self._facts(path) for name in facts.public)]
            for path in sorted(self._modules.facts)
            if is_modeling_file(path, self._layout)
        }

    # -- what it affects -----------------------------------------------------------------------------------------

    def _edges(self, node: Node) -> Iterator[Node]:
        """What a definition affects though nothing there names it: the models of a configuration, and the classes that
        earlier runs built from a model."""
        if self._layout is Layout.MODELING and node.definition.endswith("Config"):
            yield from self._configurations.get(node, ())
        if node.path in self._built and any(node.definition in facts.models for facts in self._facts(node.path)):
            yield from self._composites[node.path]

    @cached_property
    def _composites(self) -> Mapping[str, Sequence[Node]]:
        """The classes that were built from each file, itself aside."""
        homes = {
            (model_file(path, self._layout).model, name): path for path, names in self.public.items() for name in names
        }
        return {
            path: [Node(homes[key], key[1]) for key in sorted(keys) if homes.get(key, path) != path]
            for path, keys in self._built.items()
        }

    @cached_property
    def _configurations(self) -> Edges:
        return configuration_edges(self._graph, self._trees)

    def _owners(self, reached: Reached) -> Iterator[tuple[_Owner, Node]]:
        """`_model_classes` by head's paths."""
        return (((self._moved.get(path, path), name), node) for (path, name), node in self._model_classes(reached))

    def _model_classes(self, reached: Reached) -> Iterator[tuple[_Owner, Node]]:
        """The public model classes among what was reached, and those whose inputs a reached test makes."""
        for node in reached:
            if node.part or not reached[node].counts:
                continue
            if is_modeling_file(node.path, self._layout):
                if any(node.definition in facts.public for facts in self._facts(node.path)):
                    yield (node.path, node.definition), node
            elif self._layout is Layout.TRANSFORMERS and node.path.startswith("tests/models/"):
                for owner in self._tested(node):
                    yield owner, node

    def _tested(self, node: Node) -> Iterator[_Owner]:
        """The model classes that a test class tests: those it lists, or else all of its model."""
        folder = policy.MODELS + node.path.split("/")[2] + "/"
        for facts in self._facts(node.path):
            definition = facts.definitions.get(node.definition)
            if definition is None or definition.kind != "class" or not node.definition.endswith("Test"):
                continue
            listed = definition.parts.get("all_model_classes")
            if listed is None and _PLAIN_TESTS.issuperset(definition.bases):
                continue  # of whole checkpoints, say
            for path, versions in self._modules.facts.items():
                if path.startswith(folder) and is_modeling_file(path, self._layout):
                    for name in dict.fromkeys(name for each in versions for name in each.public):
                        if listed is None or name in listed.names:
                            yield path, name

    def _whole_file(self, change: FileChange, reasons: dict[_Owner, _Why]) -> None:
        """A modeling file that moved, or is no Python on one side, is run with all its classes."""
        compared = self._compared[change.path]
        moved = change.old != change.new and change.old and change.new
        if not is_modeling_file(change.path, self._layout) or not (
            moved or (compared.error and not compared.both_broken)
        ):
            return
        name = PurePosixPath(change.path).name
        reason = f"{name} moved from {change.old}" if moved else f"{name} is no Python on one side: {compared.error}"
        paths = [path for path in (change.new, change.old) if path and is_modeling_file(path, self._layout)]
        for path in paths:
            for facts in self._facts(path):
                for each in facts.public:
                    reasons[change.path, each] = _Why(Task.FORWARD, reason, frozenset({reason}))

    def _modules_of(self, reasons: Mapping[_Owner, _Why]) -> Iterator[AffectedModule]:
        by_path: dict[str, dict[str, _Why]] = {}
        for (path, name), found in reasons.items():
            by_path.setdefault(path, {})[name] = found
        back = {new: old for old, new in self._moved.items()}
        for path in sorted(by_path):
            if has_odd_name(path):
                self._changed.leave_out(
                    path, "its path has characters other than letters, digits and _ . - /, which a case id can't hold"
                )
                continue
            old = back.get(path, path)
            old = old if is_modeling_file(old, self._layout) else ""
            base, head = self._sides.base.get(old), self._sides.head.get(path)
            on_base, on_head = base or Facts(), head or Facts()
            # A side that can't be read runs the other side's classes.
            on_base, on_head = (
                on_head if on_base.error and head else on_base,
                on_base if on_head.error and base else on_head,
            )
            why = by_path[path]
            plain = {name for name, each in why.items() if each.task is Task.FORWARD}
            module = AffectedModule(
                base=model_file(old, self._layout) if base else None,
                head=model_file(path, self._layout) if head and is_modeling_file(path, self._layout) else None,
                base_classes=tuple(name for name in on_base.public if name in plain),
                head_classes=tuple(name for name in on_head.public if name in plain),
                reason=next(iter(why.values())).text,
                base_generating=tuple(name for name in on_base.generating if name in why),
                head_generating=tuple(name for name in on_head.generating if name in why),
                reasons={name: each.text for name, each in why.items()},
                causes={name: each.causes for name, each in why.items() if each.causes},
                distances={name: each.distance for name, each in why.items()},
            )
            yield from (each for each in module.by_place() if each.classes)

    # -- what is not run -----------------------------------------------------------------------------------------

    def _tell_without_forward(self, reached: Reached, chains: Chains) -> None:
        """Name the affected model classes that their file offers and that have no forward to export."""
        for node in reached:
            if (
                node.part
                or not reached[node].counts
                or not is_modeling_file(node.path, self._layout)
                or node.definition.endswith("PreTrainedModel")
            ):
                continue
            for facts in self._facts(node.path)[:1]:
                offered = node.definition in (facts.exports or ()) and node.definition not in facts.models
                if offered and self._families.is_model(node.path, node.definition):
                    why = f"it has no forward of its own to export; {chains.text(node, node.definition)}"
                    name = f"{model_file(node.path, self._layout).model}/{node.definition}"
                    self._changed.not_run.append(NotRun(kind="class", name=name, reason=why))

    def _trace_back(self, seeds: Mapping[Node, Sequence[Symbol]], found: Affected, reasons: dict[_Owner, _Why]) -> None:
        """Note for each class all the changed symbols that lead to it, and tell those that lead to none."""
        owners = list(self._owners(found.reached))
        hooks = [node for node in found.reached if node.path in self._hooks]
        causes = found.causes([*(node for _, node in owners), *hooks])
        for owner, node in owners:
            names = {f"{symbol.path}:{symbol.name}" for seed in causes[node] for symbol in seeds[seed]}
            reasons[owner] = reasons[owner]._replace(causes=reasons[owner].causes | names)
        used = frozenset[Node]().union(*causes.values())
        # What a file runs at import is two seeds, for itself and for others, by one name.
        names_used = {(symbol.path, symbol.name) for seed in used for symbol in seeds[seed]}
        unused: dict[str, list[Symbol]] = {}
        for seed, symbols in seeds.items():
            left = [] if seed in used else [each for each in symbols if (each.path, each.name) not in names_used]
            if left:
                unused.setdefault(seed.path, []).extend(left)
        self._changed.tell_unused(unused)
