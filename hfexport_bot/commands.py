"""What the commands do, from inputs to a report: the only place where all parts meet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.exporters import recorded_hits
from hfexport_bot.changes.git import Git
from hfexport_bot.changes.layout import MODELS_FOLDER, detect_layout
from hfexport_bot.changes.named import Asked
from hfexport_bot.changes.place import as_given, find_place
from hfexport_bot.changes.recorded import recorded_builds
from hfexport_bot.changes.revisions import Pair, find_pair, listed_changes
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import every_model, resolve_on_both, resolve_targets
from hfexport_bot.changes.tree import FolderTree, GitTree, Tree
from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.execution.reruns import Reruns
from hfexport_bot.execution.session import SessionResult
from hfexport_bot.execution.sides import SideName, available_cpus
from hfexport_bot.execution.trees import revision_tree
from hfexport_bot.plan import Engines, PlannedCase, not_planned, plan_cases
from hfexport_bot.preparation import (
    Prepared,
    Surroundings,
    check_disabled,
    engines_of,
    log_dir,
    one_revision,
    plan,
    prepare,
    run_planned,
    runner_setup,
)
from hfexport_bot.reporting import read_reports
from hfexport_bot.sample import take_sample, without_done
from hfexport_bot.schema import (
    Backend,
    Census,
    CensusEntry,
    Engine,
    Layout,
    Outcome,
    OutcomeKind,
    Report,
    Rerun,
    Revision,
    RunnerSetup,
    Shapes,
)
from hfexport_bot.settings import (
    SETTINGS_PATH,
    AcceptedEntry,
    Hooks,
    Overrides,
    Settings,
    combine,
    concerning,
    in_force,
    postponed,
    read_settings,
)
from hfexport_bot.verdicts.blame import blamed
from hfexport_bot.verdicts.compare import make_cases
from hfexport_bot.verdicts.exporter_targets import lost_targets
from hfexport_bot.verdicts.reaching import reach_more
from hfexport_bot.verdicts.stability import may_be_chance
from hfexport_bot.verdicts.unreached import changed_code


@dataclass(frozen=True)
class Finished:
    """A complete report, and why the run failed as a whole (empty: it did not)."""

    report: Report
    failure: str = ""


def compare_revisions(repo: Path, base: str, head: str, overrides: Overrides, around: Surroundings) -> Finished:
    """Run what changed between the merge base of two revisions and ``head`` on both sides.

    Raises `UsageError` for a folder that is no repository, an unknown revision or workaround, and wrong settings.
    """
    started = time.monotonic()
    git = Git(repo)
    pair = find_pair(git, base, head)
    base_sha, head_sha = pair.base, pair.head
    base_tree, head_tree = GitTree(git, base_sha), GitTree(git, head_sha)
    base_file = read_settings(base_tree.read, f"base, {base_sha[:12]}")
    head_file = read_settings(head_tree.read, f"head, {head_sha[:12]}")
    settings = combine(base_file, head_file, overrides)
    layout = detect_layout(head_tree)
    engines = engines_of(settings, layout, base_tree, head_tree)
    check_disabled(settings, around, layout, engines, base_tree, head_tree)
    reports = tuple(read_reports("--record", around.records))
    if overrides.models:
        selection = Selection(affected=resolve_on_both(overrides.models, base_tree, head_tree, layout))
    else:
        selection = _select(git, pair, layout, engines, reports, around.files, concerning(base_file, head_file))
    every = plan(selection, settings, engines)
    for report in read_reports("--rest", [around.rest] if around.rest else []):
        every = without_done(every, report, base_sha, head_sha)
    taken = take_sample(every, selection, (base_tree, head_tree), settings, reports, around.jobs or available_cpus())
    planned = taken.planned

    code = changed_code(head_tree, git.changed_lines(base_sha, head_sha), selection.not_run, layout)
    result, prepared, lost = SessionResult(), Prepared(), tuple[str, ...]()
    if planned:
        with ExitStack() as open_things:
            setups: dict[SideName, RunnerSetup] = {}
            sides: tuple[tuple[SideName, str, Hooks], ...] = (
                ("base", base_sha, settings.base_hooks),
                ("head", head_sha, settings.head_hooks),
            )
            for side, sha, hooks in sides:
                tree = open_things.enter_context(revision_tree(git, sha))
                setups[side] = runner_setup(layout, tree, settings, hooks, log_dir(around, side))
            trees: dict[SideName, Tree] = {"base": base_tree, "head": head_tree}
            prepared = prepare(setups, trees, planned, settings, around)
            setups = prepared.setups
            planned = () if prepared.failure else planned
            until = started + settings.budget_minutes * 60 if settings.budget_minutes else None
            reruns = Reruns(settings.reruns, may_be_chance, until)

            def run(cases: Sequence[PlannedCase], survey: bool = False) -> SessionResult:
                head = setups["head"].model_copy(update={"watched": code.watched, "survey": survey})
                with ExitStack() as while_running:
                    base = None if survey else setups.get("base")
                    return run_planned(cases, base, head, around, while_running, reruns)

            planned, result = reach_more(code, planned, run(planned), run, layout)
            if planned and Engine.REPO in engines.base and Engine.REPO in engines.head:
                lost = _lost_targets(selection, setups["base"], setups["head"], head_tree, around)

    accepted, expired = in_force(settings.accepted, around.today)
    notes = [*selection.notes]
    notes += [
        f"`{key}` in {SETTINGS_PATH} takes effect after merge: base's value was used"
        for key in postponed(base_file, head_file)
    ]
    report = Report(
        command="run",
        base=Revision(name=base, sha=base_sha),
        head=Revision(name=head, sha=head_sha),
        cases=blamed(
            make_cases(planned, result.base, result.head, accepted=accepted, drift=settings.drift, tries=result.tries),
            head_tree,
            code.lines,
        ),
        unreached=code.unreached(result.head.values()),
        not_run=(*selection.not_run, *not_planned(selection, settings.tasks), *taken.not_run),
        notes=(*notes, *prepared.notes, *lost, *_notes(settings, expired, result)),
        failure=prepared.failure or _failure(result),
        seconds=time.monotonic() - started,
        versions=result.versions,
        fail_on=settings.fail_on,
        rerun=_rerun(as_given(git.top, not repo.is_absolute()) if git.top else ".", overrides),
        sample=taken.sample,
    )
    return Finished(report, report.failure)


def _rerun(tree: str, overrides: Overrides) -> Rerun:
    asked = overrides.model_dump(include={"sources", "disabled_workarounds", "install", "seconds", "memory_gb"})
    return Rerun(tree=tree, **asked)


def _lost_targets(
    selection: Selection, base: RunnerSetup, head: RunnerSetup, head_tree: Tree, around: Surroundings
) -> tuple[str, ...]:
    """Notes on what the checkout's own exporters no longer find on head, or on why that is unknown."""
    if around.list_targets is None:
        return ()
    files = [file for module in selection.affected for file in (module.base, module.head) if file is not None]
    modules = sorted({file.module for file in files})
    try:
        before, now = around.list_targets(base, modules), around.list_targets(head, modules)
    except RunError as error:
        return (f"what the checkout's own exporters look for is unknown: {error}",)
    folder = MODELS_FOLDER[Layout.TRANSFORMERS]
    return lost_targets(before, now, lambda file: head_tree.read(f"{folder}/{file}") is not None)


def detect_affected(
    repo: Path, base: str, head: str, records: Sequence[Path] = (), files: Path | None = None
) -> Selection:
    """What a change between the merge base of two revisions and ``head`` affects; nothing is run.

    Raises `UsageError` for a folder that is no repository, an unknown revision and wrong settings.
    """
    git = Git(repo)
    pair = find_pair(git, base, head)
    base_tree, head_tree = GitTree(git, pair.base), GitTree(git, pair.head)
    base_file = read_settings(base_tree.read, f"base, {pair.base[:12]}")
    head_file = read_settings(head_tree.read, f"head, {pair.head[:12]}")
    settings = combine(base_file, head_file, Overrides())
    layout = detect_layout(head_tree)
    engines = engines_of(settings, layout, base_tree, head_tree)
    reports = tuple(read_reports("--record", records))
    return _select(git, pair, layout, engines, reports, files, concerning(base_file, head_file))


def _select(
    git: Git, pair: Pair, layout: Layout, engines: Engines, reports: Sequence[Report], files: Path | None, asked: Asked
) -> Selection:
    runs_theirs = Engine.REPO in (*engines.base, *engines.head)
    recorded = recorded_hits(reports)
    changes, notes = listed_changes(git, pair, files)
    trees = GitTree(git, pair.base), GitTree(git, pair.head)
    found = select(changes, *trees, layout, recorded if runs_theirs else None, asked, recorded_builds(reports))
    return replace(found, notes=(*pair.notes, *notes))


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
    _require_cases(planned, names)
    prepared = prepare({"head": setup}, {"head": tree}, planned, settings, around)
    planned = () if prepared.failure else planned
    with ExitStack() as open_things:
        result = run_planned(planned, None, prepared.setups["head"], around, open_things)
    accepted, expired = in_force(settings.accepted, around.today)
    report = Report(
        command="check",
        head=place.revision,
        cases=blamed(make_cases(planned, None, result.head, accepted=accepted), tree, {}),
        not_run=tuple(not_planned(selection, settings.tasks)),
        notes=(*prepared.notes, *_notes(settings, expired, result)),
        failure=prepared.failure or _failure(result),
        seconds=time.monotonic() - started,
        versions=result.versions,
        fail_on=settings.fail_on,
        rerun=_rerun(place.tree, overrides),
    )
    return Finished(report, report.failure)


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
    _require_cases(planned, names)
    prepared = prepare({"head": setup}, {"head": tree}, planned, settings, around)
    planned = () if prepared.failure else planned
    with ExitStack() as open_things:
        setup = prepared.setups["head"].model_copy(update={"survey": True})
        result = run_planned(planned, None, setup, around, open_things)
    return Census(
        revision=place.revision,
        entries=tuple(_entry(case, result.head[case.id]) for case in planned if case.id in result.head),
        notes=(*left_out, *prepared.notes),
        failure=prepared.failure or _failure(result),
        seconds=time.monotonic() - started,
        versions=result.versions,
    )


def _require_cases(planned: Sequence[PlannedCase], names: Sequence[str]) -> None:
    """Refuse models without a case in the tasks asked for: that forward is missing there is told before."""
    if not planned:
        whose = f" of {', '.join(names)}" if names else ""
        raise UsageError(f"none of the classes{whose} generates; leave out --task to run their forward")


def _entry(case: PlannedCase, outcome: Outcome) -> CensusEntry:
    return CensusEntry(
        model=case.id.model,
        class_name=case.id.class_name,
        task=case.id.task,
        variant=case.id.variant,
        outcome=outcome.kind,
        source=outcome.source,
        tried=outcome.tried,
        cause=outcome.cause,
        message=outcome.message,
        parameters=outcome.parameters,
        fed=outcome.fed,
        seconds=outcome.seconds,
    )


def _notes(settings: Settings, expired: Sequence[AcceptedEntry], result: SessionResult) -> tuple[str, ...]:
    return (
        *(f"the workaround `{name}` was disabled" for name in settings.disabled_workarounds),
        *(f"the accepted finding `{entry.id}` expired on {entry.expires}" for entry in expired),
        *(f"{side}'s runner could not work: {message}" for side, message in result.fatal.items()),
    )


def _failure(result: SessionResult) -> str:
    """A run in which no runner worked, or no case came past the repository's case function, says nothing of the
    change, whatever its verdicts add up to."""
    if result.ran and len(result.fatal) == len(result.ran):
        return next(iter(result.fatal.values()))
    outcomes = [*result.base.values(), *result.head.values()]
    if outcomes and all(each.kind is OutcomeKind.ERROR and each.error_type == "HookError" for each in outcomes):
        return outcomes[0].message
    return ""
