"""``hfexport-bot cases``: which models can be built, fed and run in eager."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from hfexport_bot.changes.place import find_place
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import every_model, resolve_targets
from hfexport_bot.changes.tree import FolderTree
from hfexport_bot.commands.finished import failure_of, require_cases, runner_notes
from hfexport_bot.plan import PlannedCase, plan_cases
from hfexport_bot.preparation import Surroundings, one_revision, prepare, private_setup, run_planned
from hfexport_bot.schema import Backend, Census, CensusEntry, Outcome, Shapes
from hfexport_bot.settings import Overrides


def survey_models(names: Sequence[str], folder: Path | None, overrides: Overrides, around: Surroundings) -> Census:
    """Find out which model classes have a model and inputs that eager takes; of all models where none is named.

    Raises `UsageError` for an unknown model or class, naming the nearest, and for wrong settings.
    """
    started = time.monotonic()
    place = find_place(names, folder)
    tree = FolderTree(place.root)
    settings, setup = one_revision(place, overrides, around)
    targets, left_out = (
        (resolve_targets(place.names, tree, place.layout), ()) if names else every_model(tree, place.layout)
    )
    planned = plan_cases(
        Selection(affected=targets), (Backend.DYNAMO,), (Shapes.DYNAMIC,), settings.tasks, settings.variants
    )
    require_cases(planned, names)
    prepared = prepare({"head": setup}, {"head": tree}, planned, settings, around)
    planned = () if prepared.failure else planned
    with ExitStack() as open_things:
        setup = private_setup(prepared.setups["head"], open_things) if planned else prepared.setups["head"]
        run_cases = open_things.enter_context(around.open_runners())
        result = run_planned(planned, None, setup, run_cases, around, survey=True)
    if result.interrupted:
        raise KeyboardInterrupt
    return Census(
        revision=place.revision,
        entries=tuple(_entry(case, result.head[case.id]) for case in planned if case.id in result.head),
        notes=(*left_out, *prepared.notes, *runner_notes(result)),
        failure=prepared.failure or failure_of(result),
        seconds=time.monotonic() - started,
        versions=result.versions,
    )


def _entry(case: PlannedCase, outcome: Outcome) -> CensusEntry:
    told = {name: getattr(outcome, name) for name in CensusEntry.model_fields.keys() & Outcome.model_fields.keys()}
    which = {name: getattr(case.id, name) for name in ("model", "class_name", "task", "variant")}
    return CensusEntry(**which, **told, outcome=outcome.kind)
