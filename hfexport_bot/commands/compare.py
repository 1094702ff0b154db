"""``hfexport-bot run``: what is to be run of the change between two revisions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from hfexport_bot.changes.expectations import changed_expectations
from hfexport_bot.changes.git import Git
from hfexport_bot.changes.layout import EXPORTERS, detect_layout
from hfexport_bot.changes.place import as_given, has_exporters
from hfexport_bot.changes.revisions import find_pair
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import globs_of_no_class, resolve_on_both
from hfexport_bot.changes.tree import GitTree, Tree
from hfexport_bot.changes.workarounds import edited_workarounds
from hfexport_bot.commands.auditing import ASIDE, ChangeAudit
from hfexport_bot.commands.both_sides import run_change
from hfexport_bot.commands.detect import select_changes
from hfexport_bot.commands.finished import Finished, rerun_of
from hfexport_bot.execution.sides import available_cpus
from hfexport_bot.plan import Engines, PlannedCase, engines_of, not_planned, plan_entries
from hfexport_bot.preparation import Surroundings, check_disabled, plan
from hfexport_bot.reporting.reading import read_reports
from hfexport_bot.sample import recorded_seconds, take_sample, without_done
from hfexport_bot.schema import Engine, Layout, Revision
from hfexport_bot.settings import Overrides, Settings, combine, concerning, postponed, read_both
from hfexport_bot.shards import Plan, own_version, pack


def compare_revisions(repo: Path, base: str, head: str, overrides: Overrides, around: Surroundings) -> Finished:
    """Run what changed between the merge base of two revisions and ``head`` on both sides.

    Raises `UsageError` for a folder that is no repository, an unknown revision or workaround, and wrong settings.
    """
    started = time.monotonic()
    return run_change(plan_change(repo, base, head, overrides, around), repo, around, started=started)


def plan_change(repo: Path, base: str, head: str, overrides: Overrides, around: Surroundings, shards: int = 1) -> Plan:
    """What `compare_revisions` runs, in so many shards. Raises what it raises."""
    git = Git(repo)
    pair = find_pair(git, base, head)
    base_tree, head_tree = GitTree(git, pair.base), GitTree(git, pair.head)
    names = f"base, {pair.base[:12]}", f"head, {pair.head[:12]}"
    both = read_both(base_tree.read, head_tree.read, names, overrides.settings)
    settings = combine(both.base, both.head, overrides)
    layout = detect_layout(head_tree)
    engines = engines_of(settings, layout, base_tree, head_tree)
    check_disabled(settings, around, layout, engines, base_tree, head_tree)
    reports = tuple(read_reports("--record", around.records))
    if overrides.models:
        selection = Selection(affected=resolve_on_both(overrides.models, base_tree, head_tree, layout))
    else:
        asked = concerning(both, overrides.settings)
        selection = select_changes(git, pair, layout, engines, reports, around.files, asked)
    every = plan(selection, settings, engines)
    if layout is Layout.TRANSFORMERS and Engine.REPO in (*engines.base, *engines.head):
        entries = changed_expectations(base_tree, head_tree).values()
        every += plan_entries(every, entries, selection, settings.backends, settings.shapes, engines)
    for report in read_reports("--rest", [around.rest] if around.rest else []):
        every = without_done(every, report, pair.base, pair.head)
    jobs = shards * (around.jobs or available_cpus())
    hooks = settings.base_hooks.workarounds, settings.head_hooks.workarounds
    edited = edited_workarounds(git.changed_files(pair.base, pair.head), base_tree, head_tree, layout, hooks)
    aside = ASIDE if ChangeAudit.of(edited, head_tree).edited.calls_for_audit else 0.0
    taken = take_sample(every, selection, (base_tree, head_tree), settings, reports, jobs, aside)
    late = [
        f"`{key}` in {overrides.settings} takes effect after merge: base's value was used"
        for key in postponed(both.base, both.head)
    ]
    files = [file for module in selection.affected for file in (module.base, module.head) if file is not None]
    return Plan(
        version=own_version(),
        command="run",
        base=Revision(name=base, sha=pair.base),
        head=Revision(name=head, sha=pair.head),
        layout=layout,
        settings=settings,
        cases=taken.planned,
        shards=pack(taken.planned, recorded_seconds(reports), shards),
        not_run=(*selection.not_run, *not_planned(selection, settings.tasks), *taken.not_run),
        notes=(
            *both.notes,
            *selection.notes,
            *late,
            *_idle(settings, every, base_tree, head_tree, layout),
            *_lost_exporters(engines, layout, base_tree, head_tree),
        ),
        sample=taken.sample,
        rerun=rerun_of(_as_given(git, repo), overrides, pair.head),
        modules=tuple(sorted({file.module for file in files})),
        edited=edited,
    )


def _as_given(git: Git, repo: Path) -> str:
    """A repository as whoever named it would name it again; the one that they are in has no other name."""
    if git.top is None or repo.is_absolute():
        return str(git.top or repo)
    return "." if Path.cwd().is_relative_to(git.top) else as_given(git.top, relative=True)


def _idle(settings: Settings, planned: Sequence[PlannedCase], base: Tree, head: Tree, layout: Layout) -> Iterator[str]:
    """A note on each accepted finding of head that is for no class of either side, and so for nothing."""
    ids = [str(case.id) for case in planned]
    globs = [entry.id for entry in settings.head_accepted if not any(fnmatchcase(each, entry.id) for each in ids)]
    for glob, meant in globs_of_no_class(globs, (head, base), layout, ids[0] if ids else "").items():
        yield f"the accepted finding `{glob}` is for no class of either side" + (f": {meant}" if meant else "")


def _lost_exporters(engines: Engines, layout: Layout, base: Tree, head: Tree) -> tuple[str, ...]:
    """A note where base's cases of the checkout's own exporters have nothing to run with on head."""
    if Engine.REPO not in engines.base or has_exporters(head, layout):
        return ()
    return (f"head has lost the checkout's own exporters, `{EXPORTERS[layout]}`: what base exports with them fails",)
