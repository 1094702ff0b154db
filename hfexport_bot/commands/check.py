"""``hfexport-bot check`` and sweeps: models of one revision, planned first and then run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from hfexport_bot.changes.place import Place, find_place
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import every_model, resolve_targets
from hfexport_bot.changes.tree import FolderTree
from hfexport_bot.commands.finished import Finished, ended, failure_of, notes_of, require_cases, rerun_of
from hfexport_bot.errors import UsageError
from hfexport_bot.plan import engines_of, not_planned
from hfexport_bot.preparation import (
    Surroundings,
    check_disabled,
    log_dir,
    one_revision,
    plan,
    prepare,
    private_setup,
    run_planned,
    runner_setup,
)
from hfexport_bot.reporting.reading import read_reports
from hfexport_bot.sample import recorded_seconds
from hfexport_bot.schema import Layout, Report, Revision, Shard
from hfexport_bot.settings import Overrides, in_force
from hfexport_bot.shards import Plan, own_version, pack
from hfexport_bot.verdicts.blame import blamed
from hfexport_bot.verdicts.compare import make_cases


def check_models(names: Sequence[str], folder: Path | None, overrides: Overrides, around: Surroundings) -> Finished:
    """Run the named models of one revision: of a folder, or of the installed transformers.

    Raises `UsageError` for an unknown model, class or workaround, naming the nearest, and for wrong settings.
    """
    started = time.monotonic()
    place = find_place(names, folder)
    return _run(_plan("check", names, place, overrides, around, 1), place, around, None, started)


def plan_sweep(
    names: Sequence[str], folder: Path | None, overrides: Overrides, around: Surroundings, shards: int = 1
) -> Plan:
    """The named models of one revision, or all of them, in so many shards. Raises what `check_models` raises."""
    return _plan("sweep", names, find_place(names, folder), overrides, around, shards)


def run_sweep(plan: Plan, around: Surroundings, shard: Shard | None = None) -> Finished:
    """Run the cases of a sweep, or of one of its shards. Raises `UsageError` where its tree has other content now."""
    started = time.monotonic()
    place = find_place((), Path(plan.rerun.tree) if plan.rerun.tree else None)
    if place.revision != plan.head:
        raise UsageError(f"--plan: it is of {_named(plan.head)}, and here is {_named(place.revision)}; plan again")
    return _run(plan, place, around, shard, started)


def _plan(
    command: Literal["check", "sweep"],
    names: Sequence[str],
    place: Place,
    overrides: Overrides,
    around: Surroundings,
    shards: int,
) -> Plan:
    tree = FolderTree(place.root)
    settings, _ = one_revision(place, overrides, around)
    engines = engines_of(settings, place.layout, tree, tree)
    check_disabled(settings, around, place.layout, engines, tree)
    modules, left_out = (
        (resolve_targets(place.names, tree, place.layout), ()) if names else every_model(tree, place.layout)
    )
    selection = Selection(affected=modules)
    planned = plan(selection, settings, engines)
    require_cases(planned, names)
    recorded = recorded_seconds(read_reports("--record", around.records))
    return Plan(
        version=own_version(),
        command=command,
        head=place.revision,
        layout=place.layout,
        settings=settings,
        cases=planned,
        shards=pack(planned, recorded, shards),
        not_run=tuple(not_planned(selection, settings.tasks)),
        notes=left_out,
        rerun=rerun_of(place.tree, overrides),
        whole=not names,
    )


def _run(plan: Plan, place: Place, around: Surroundings, shard: Shard | None, started: float) -> Finished:
    settings, tree = plan.settings, FolderTree(place.root)
    root = None if place.layout is Layout.INSTALLED else place.root
    setup = runner_setup(place.layout, root, settings, settings.head_hooks, log_dir(around, "head"))
    planned = plan.cases_of(shard) if shard else plan.cases
    prepared = prepare({"head": setup}, {"head": tree}, planned, settings, around)
    planned = () if prepared.failure else planned
    with ExitStack() as open_things:
        head = private_setup(prepared.setups["head"], open_things) if planned else prepared.setups["head"]
        run_cases = open_things.enter_context(around.open_runners())
        result = run_planned(planned, None, head, run_cases, around)
    ran, missed = ended(planned, result)
    accepted, expired = in_force(settings.accepted, around.today)
    report = Report(
        command=plan.command,
        head=plan.head,
        cases=blamed(
            make_cases(ran, None, result.head, accepted), tree, {}, workarounds=settings.head_hooks.workarounds
        ),
        not_run=(*plan.not_run, *missed),
        notes=(*plan.notes, *prepared.notes, *notes_of(settings, expired, result)),
        failure=prepared.failure or failure_of(result),
        seconds=time.monotonic() - started,
        versions=result.versions,
        fail_on=settings.fail_on,
        rerun=plan.rerun,
        shard=shard,
    )
    return Finished(report, report.failure, result.interrupted)


def _named(revision: Revision) -> str:
    return f"{revision.name} {revision.sha[:12]}".strip()
