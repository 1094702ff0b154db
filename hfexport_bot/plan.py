"""From affected classes to cases, in the order they run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hfexport_bot.changes.expectations import Expectation
from hfexport_bot.changes.layout import EXPORTERS
from hfexport_bot.changes.place import has_exporters
from hfexport_bot.changes.selection import AffectedModule, Selection
from hfexport_bot.changes.tree import Tree
from hfexport_bot.errors import UsageError
from hfexport_bot.schema import Backend, CaseId, Engine, EngineChoice, Layout, NotRun, Shapes, Task, Variant
from hfexport_bot.settings import Settings

#: Backends from the quickest to the slowest, so that most findings come early.
_BACKEND_ORDER = (Backend.DYNAMO, Backend.ONNX, Backend.EXECUTORCH)


@dataclass(frozen=True)
class PlannedCase:
    """A case, the module its class is in on each side (None: the class isn't there), and why it runs."""

    id: CaseId
    base_module: str | None
    head_module: str | None
    reason: str


@dataclass(frozen=True)
class Engines:
    """Who exports on each side."""

    base: tuple[Engine, ...] = (Engine.OWN,)
    head: tuple[Engine, ...] = (Engine.OWN,)


class _Kind(NamedTuple):
    shapes: Shapes
    task: Task
    variant: Variant | None
    engine: Engine


def choose_engines(choice: EngineChoice, layout: Layout, base: bool, head: bool) -> Engines:
    """Who exports on each side, given what was asked for and whether the side's transformers has exporters.

    Where base has them head's cases of that engine run also without: what base exported is lost, and they say so.
    Raises `UsageError` where the repository's engine was asked for and neither side has it.
    """
    if choice is EngineChoice.AUTO:
        choice = EngineChoice.BOTH if layout is Layout.TRANSFORMERS and (base or head) else EngineChoice.OWN
    if choice is EngineChoice.OWN:
        return Engines()
    if not (base or head):
        raise UsageError(
            f"engine {choice.value}: there is no {EXPORTERS[layout]}; use --engine own, or a transformers that has it"
        )
    own = (Engine.OWN,) if choice is EngineChoice.BOTH else ()
    repo = (Engine.REPO,)
    return Engines(base=own + (repo if base else ()), head=own + repo)


def engines_of(settings: Settings, layout: Layout, base: Tree, head: Tree) -> Engines:
    """Who exports on each side, as the settings ask and the sides can."""
    return choose_engines(settings.engine, layout, *(has_exporters(tree, layout) for tree in (base, head)))


def plan_cases(
    selection: Selection,
    backends: Sequence[Backend],
    shapes: Sequence[Shapes],
    tasks: Sequence[Task],
    variants: Sequence[Variant] = (),
    engines: Engines | None = None,
) -> tuple[PlannedCase, ...]:
    """Every affected class with every backend, kind of shapes and task: cheap backends first, then as selected.

    ``generate`` has cases for the classes that generate. A class that moved with its file is one case under head's
    name; a class that only base has keeps base's. ``variants`` come beside the plain model.
    """
    engines = engines or Engines()
    kinds = [
        _Kind(kind, task, variant, engine)
        for kind in Shapes
        for task in Task
        for variant in (None, *variants)
        for engine in Engine
        if kind in shapes and task in tasks and engine in (*engines.base, *engines.head)
    ]
    cases: dict[CaseId, PlannedCase] = {}
    for backend in (each for each in _BACKEND_ORDER if each in backends):
        for module in selection.affected:
            for name in module.classes:
                for kind in kinds:
                    case = _case(module, name, backend, kind, engines)
                    if case is not None:
                        cases[case.id] = case
    return tuple(cases.values())


def plan_entries(
    planned: Sequence[PlannedCase],
    entries: Collection[Expectation],
    selection: Selection,
    backends: Sequence[Backend],
    shapes: Sequence[Shapes],
    engines: Engines,
) -> tuple[PlannedCase, ...]:
    """Cases of the entries for expected failures of which a plan has none: in tasks that it does not ask for, or else
    in any kind of shapes."""
    theirs = Engines(*(tuple({Engine.REPO} & {*side}) for side in (engines.base, engines.head)))
    more: dict[CaseId, PlannedCase] = {}
    for kinds in (shapes, tuple(Shapes)):
        there = [*(case.id for case in planned), *more]
        left = [entry for entry in entries if not any(map(entry.covers, there))]
        every = plan_cases(selection, backends, kinds, tuple(Task), (), theirs) if left else ()
        more |= {case.id: case for case in every if any(entry.covers(case.id) for entry in left)}
    return tuple(more.values())


def not_planned(selection: Selection, tasks: Sequence[Task]) -> Iterator[NotRun]:
    """The affected classes that have no case in the tasks asked for, and why."""
    for module in selection.affected:
        by_task = {
            Task.FORWARD: {*module.head_classes, *module.base_classes},
            Task.GENERATE: {*module.head_generating, *module.base_generating},
        }
        for name in module.classes:
            file = module.head or module.base
            if file is None or any(name in by_task[task] for task in tasks):
                continue
            generates = name in by_task[Task.GENERATE]
            reason = "affected only when it generates: add --task generate" if generates else "it does not generate"
            yield NotRun(kind="class", name=f"{file.model}/{name}", reason=reason)


def _case(module: AffectedModule, name: str, backend: Backend, kind: _Kind, engines: Engines) -> PlannedCase | None:
    generates = kind.task is Task.GENERATE
    base = module.base if name in (module.base_generating if generates else module.base_classes) else None
    head = module.head if name in (module.head_generating if generates else module.head_classes) else None
    base = base if kind.engine in engines.base else None
    head = head if kind.engine in engines.head else None
    file = head or base
    if file is None:
        return None
    return PlannedCase(
        id=CaseId(model=file.model, class_name=name, backend=backend, **kind._asdict()),
        base_module=base.module if base else None,
        head_module=head.module if head else None,
        reason=module.reason_of(name),
    )
