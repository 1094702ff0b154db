"""``hfexport-bot check``: the named models of one revision."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from hfexport_bot.changes.place import find_place
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import resolve_targets
from hfexport_bot.changes.tree import FolderTree
from hfexport_bot.commands.finished import Finished, failure_of, notes_of, require_cases, rerun_of
from hfexport_bot.plan import not_planned
from hfexport_bot.preparation import Surroundings, check_disabled, engines_of, one_revision, plan, prepare, run_planned
from hfexport_bot.schema import Report
from hfexport_bot.settings import Overrides, in_force
from hfexport_bot.verdicts.blame import blamed
from hfexport_bot.verdicts.compare import make_cases


def check_models(names: Sequence[str], folder: Path | None, overrides: Overrides, around: Surroundings) -> Finished:
    """Run the named models of one revision: of a folder, or of the installed transformers.

    Raises `UsageError` for an unknown model, class or workaround, naming the nearest, and for wrong settings.
    """
    started = time.monotonic()
    place = find_place(names, folder)
    tree = FolderTree(place.root)
    settings, setup = one_revision(place, overrides, around)
    engines = engines_of(settings, place.layout, tree, tree)
    check_disabled(settings, around, place.layout, engines, tree)
    selection = Selection(affected=resolve_targets(place.names, tree, place.layout))
    planned = plan(selection, settings, engines)
    require_cases(planned, names)
    prepared = prepare({"head": setup}, {"head": tree}, planned, settings, around)
    planned = () if prepared.failure else planned
    with ExitStack() as open_things:
        result = run_planned(planned, None, prepared.setups["head"], around, open_things)
    accepted, expired = in_force(settings.accepted, around.today)
    report = Report(
        command="check",
        head=place.revision,
        cases=blamed(make_cases(planned, None, result.head, accepted), tree, {}),
        not_run=tuple(not_planned(selection, settings.tasks)),
        notes=(*prepared.notes, *notes_of(settings, expired, result)),
        failure=prepared.failure or failure_of(result),
        seconds=time.monotonic() - started,
        versions=result.versions,
        fail_on=settings.fail_on,
        rerun=rerun_of(place.tree, overrides),
    )
    return Finished(report, report.failure)
