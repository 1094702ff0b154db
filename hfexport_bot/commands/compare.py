"""``hfexport-bot run``: two revisions against each other, planned first and then run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from hfexport_bot.audit import Trials
from hfexport_bot.changes.expectations import (
    Change,
    Expectation,
    changed_expectations,
    entry_changes,
    expectation_files,
    read_expectations,
)
from hfexport_bot.changes.git import Git
from hfexport_bot.changes.layout import EXPORTERS, MODELS_FOLDER, detect_layout
from hfexport_bot.changes.place import as_given, has_exporters
from hfexport_bot.changes.revisions import find_pair
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import globs_of_no_class, resolve_on_both
from hfexport_bot.changes.tree import GitTree, Tree
from hfexport_bot.commands.auditing import ASIDE, ChangeAudit
from hfexport_bot.commands.detect import select_changes
from hfexport_bot.commands.finished import Finished, ended, failure_of, notes_of, rerun_of
from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.execution.reruns import Reruns
from hfexport_bot.execution.session import SessionResult
from hfexport_bot.execution.sides import SideName, available_cpus
from hfexport_bot.execution.trees import revision_tree
from hfexport_bot.plan import Engines, PlannedCase, engines_of, not_planned, plan_entries
from hfexport_bot.preparation import (
    Prepared,
    Surroundings,
    check_disabled,
    log_dir,
    plan,
    prepare,
    run_planned,
    runner_setup,
)
from hfexport_bot.reporting.reading import read_reports
from hfexport_bot.sample import recorded_seconds, take_sample, without_done
from hfexport_bot.schema import Engine, EngineChoice, Layout, Report, Revision, RunnerSetup, Shard
from hfexport_bot.settings import (
    Hooks,
    Overrides,
    Settings,
    combine,
    concerning,
    in_force,
    postponed,
    read_both,
)
from hfexport_bot.shards import Plan, own_version, pack
from hfexport_bot.verdicts.audits import with_removed
from hfexport_bot.verdicts.blame import blamed
from hfexport_bot.verdicts.compare import make_cases
from hfexport_bot.verdicts.expectations import Expectations, changed_accepted, of_accepted, untried
from hfexport_bot.verdicts.exporter_targets import lost_targets
from hfexport_bot.verdicts.reaching import of_models, reach_more, share_of, without_untold
from hfexport_bot.verdicts.stability import may_be_chance, told
from hfexport_bot.verdicts.unreached import changed_code


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
    base_file, head_file = read_both(base_tree.read, head_tree.read, names, overrides.settings)
    settings = combine(base_file, head_file, overrides)
    layout = detect_layout(head_tree)
    engines = engines_of(settings, layout, base_tree, head_tree)
    check_disabled(settings, around, layout, engines, base_tree, head_tree)
    reports = tuple(read_reports("--record", around.records))
    if overrides.models:
        selection = Selection(affected=resolve_on_both(overrides.models, base_tree, head_tree, layout))
    else:
        asked = concerning(base_file, head_file, overrides.settings)
        selection = select_changes(git, pair, layout, engines, reports, around.files, asked)
    every = plan(selection, settings, engines)
    if layout is Layout.TRANSFORMERS and Engine.REPO in (*engines.base, *engines.head):
        entries = changed_expectations(base_tree, head_tree).values()
        every += plan_entries(every, entries, selection, settings.backends, settings.shapes, engines)
    for report in read_reports("--rest", [around.rest] if around.rest else []):
        every = without_done(every, report, pair.base, pair.head)
    jobs = shards * (around.jobs or available_cpus())
    about = ChangeAudit.of(git, pair.base, pair.head, layout, settings)
    aside = ASIDE if about.edited.calls_for_audit else 0.0
    taken = take_sample(every, selection, (base_tree, head_tree), settings, reports, jobs, aside)
    late = [
        f"`{key}` in {overrides.settings} takes effect after merge: base's value was used"
        for key in postponed(base_file, head_file)
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
            *selection.notes,
            *late,
            *_idle(settings, every, base_tree, head_tree, layout),
            *_lost_exporters(engines, layout, base_tree, head_tree),
        ),
        sample=taken.sample,
        rerun=rerun_of(_as_given(git, repo), overrides, pair.head),
        modules=tuple(sorted({file.module for file in files})),
    )


def run_change(
    plan: Plan, repo: Path, around: Surroundings, shard: Shard | None = None, started: float | None = None
) -> Finished:
    """Run the cases of a plan, or of one of its shards, on both sides. ``started``, by ``time.monotonic``, is when the
    work began, if not now.

    Raises `UsageError` where the repository does not have the plan's commits.
    """
    started = time.monotonic() if started is None else started
    git, settings, layout = Git(repo), plan.settings, plan.layout
    base_sha, head_sha = _commits(git, plan)
    head_tree = GitTree(git, head_sha)
    planned = plan.cases_of(shard) if shard else plan.cases

    until = started + settings.budget_minutes * 60 if settings.budget_minutes else None
    first = shard is None or shard.number == 1
    about = ChangeAudit.of(git, base_sha, head_sha, layout, settings)
    about.until = until
    touched = git.changed_lines(base_sha, head_sha, around_gone=True)
    code = of_models(changed_code(head_tree, touched, plan.not_run, layout), plan.cases, layout)
    result, prepared, lost = SessionResult(), Prepared(), tuple[str, ...]()
    try:
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
                trees: dict[SideName, Tree] = {"base": GitTree(git, base_sha), "head": head_tree}
                prepared = prepare(setups, trees, planned, settings, around)
                setups = prepared.setups
                planned = () if prepared.failure else planned
                about.without_unmet(prepared.unmet)
                reruns = Reruns(settings.reruns, partial(may_be_chance, limits=settings.drift), until)

                head_setup = setups["head"].model_copy(update={"watched": code.watched})
                with around.open_runners() as run_cases:  # the same ones for variants: to get warm takes long

                    def run(cases: Sequence[PlannedCase], survey: bool = False) -> SessionResult:
                        base = None if survey else setups["base"]
                        return run_planned(cases, base, head_setup, run_cases, around, reruns, survey=survey)

                    own = share_of(code, plan.cases, planned, first, layout) if shard else code
                    result = run(planned)
                    planned, result = reach_more(own, planned, result, run, layout)
                    backends = tuple(sorted({case.id.backend for case in planned}))
                    trials = Trials(
                        head_setup.model_copy(update={"backends": backends}), run_cases, around.watch, around.jobs
                    )
                    if not result.interrupted:
                        about.on_cases(planned, result, trials)
                if first and not result.interrupted:
                    lost = _lost_targets(plan, planned, setups["base"], setups["head"], head_tree, around)

        if first and not prepared.failure and not result.interrupted:
            about.on_installed(Overrides(seconds=settings.limits.wall_seconds), around)
    except KeyboardInterrupt:  # what was found until then is kept
        result = replace(result, interrupted=True)

    ran, missed = ended(planned, result)
    telling, untold = without_untold(code, planned, result.head, layout)
    accepted, expired = in_force(settings.accepted, around.today)
    base_tree = GitTree(git, base_sha)
    expected = _expectations(plan, planned, base_tree, head_tree, around)
    changed = _changed_entries(plan, base_tree, head_tree, around) if first else ()
    report = Report(
        command="run",
        base=plan.base,
        head=plan.head,
        cases=tuple(
            with_removed(case, about.edited.removed)
            for case in blamed(
                make_cases(
                    ran,
                    result.base,
                    result.head,
                    accepted,
                    settings.drift,
                    {id_: told(tries) for id_, tries in result.tries.items()},
                    result.eager,
                    expected.of,
                ),
                head_tree,
                git.changed_lines(base_sha, head_sha),
                code.statements,
                settings.head_hooks.workarounds,
            )
        ),
        unreached=telling.unreached(result.head.values()),
        not_run=(*plan.not_run, *missed, *untold),
        notes=(*plan.notes, *prepared.notes, *lost, *notes_of(settings, expired, result)),
        failure=prepared.failure or failure_of(result),
        seconds=time.monotonic() - started,
        versions=result.versions,
        fail_on=settings.fail_on,
        rerun=plan.rerun,
        sample=plan.sample,
        shard=shard,
        unmet=prepared.unmet,
        audit=about.report(plan.head),
        untried=untried(changed, [case.id for case in (*plan.cases, *planned)]),
    )
    return Finished(report, report.failure, result.interrupted)


def _expectations(
    plan: Plan, planned: Sequence[PlannedCase], base: GitTree, head: GitTree, around: Surroundings
) -> Expectations:
    """What either side expects to fail of the planned cases."""
    before, now = _accepted_entries(plan, around)
    if any(case.id.engine is Engine.REPO for case in planned):
        paths = expectation_files({*base.blobs(), *head.blobs()}, {case.id.model for case in planned})
        before, now = (*before, *read_expectations(base, paths)), (*now, *read_expectations(head, paths))
    return Expectations(before, now, _expired(plan, around))


def _accepted_entries(plan: Plan, around: Surroundings) -> tuple[tuple[Expectation, ...], tuple[Expectation, ...]]:
    """Both sides' accepted findings that are in force."""
    base, head = (in_force(each, around.today)[0] for each in (plan.settings.accepted, plan.settings.head_accepted))
    return of_accepted(base), of_accepted(head)


def _changed_entries(
    plan: Plan, base: GitTree, head: GitTree, around: Surroundings
) -> list[tuple[Expectation, Change]]:
    """The entries for expected failures that a change adds or removes."""
    theirs = plan.layout is Layout.TRANSFORMERS and plan.settings.engine is not EngineChoice.OWN
    changed = changed_accepted(*_accepted_entries(plan, around), _expired(plan, around))
    return [*changed, *(entry_changes(base, head) if theirs else ())]


def _expired(plan: Plan, around: Surroundings) -> frozenset[str]:
    """The ids of head's accepted findings whose last day is past."""
    return frozenset(entry.id for entry in in_force(plan.settings.head_accepted, around.today)[1])


def _as_given(git: Git, repo: Path) -> str:
    """A repository as whoever named it would name it again; the one that they are in has no other name."""
    if git.top is None or repo.is_absolute():
        return str(git.top or repo)
    return "." if Path.cwd().is_relative_to(git.top) else as_given(git.top, relative=True)


def _commits(git: Git, plan: Plan) -> tuple[str, str]:
    """The plan's commits, base and head, which this repository has."""
    shas = (plan.base.sha if plan.base else "", plan.head.sha)
    for sha in shas:
        if not git.has_commit(sha):
            raise UsageError(
                f"--plan: it is of {shas[1][:12]} on {shas[0][:12]}, and {sha[:12]} is not in this clone; check out "
                "the commit that was planned, with its base (actions/checkout: fetch-depth)"
            )
    return shas


def _idle(settings: Settings, planned: Sequence[PlannedCase], base: Tree, head: Tree, layout: Layout) -> Iterator[str]:
    """A note on each accepted finding of head that is for no class of either side, and so for nothing."""
    ids = [str(case.id) for case in planned]
    globs = [entry.id for entry in settings.head_accepted if not any(fnmatchcase(each, entry.id) for each in ids)]
    example = f"ids are like {ids[0]}" if ids else ""
    for glob, found in globs_of_no_class(globs, (head, base), layout).items():
        meant = found or example
        yield f"the accepted finding '{glob}' is for no class of either side" + (f": {meant}" if meant else "")


def _lost_exporters(engines: Engines, layout: Layout, base: Tree, head: Tree) -> tuple[str, ...]:
    """A note where base's cases of the checkout's own exporters have nothing to run with on head."""
    if Engine.REPO not in engines.base or has_exporters(head, layout):
        return ()
    return (f"head has lost the checkout's own exporters, `{EXPORTERS[layout]}`: what base exports with them fails",)


def _lost_targets(
    plan: Plan,
    planned: Sequence[PlannedCase],
    base: RunnerSetup,
    head: RunnerSetup,
    head_tree: Tree,
    around: Surroundings,
) -> tuple[str, ...]:
    """Notes on what the checkout's own exporters no longer find on head, or on why that is unknown."""
    theirs = [case for case in planned if case.id.engine is Engine.REPO]
    both = any(case.base_module for case in theirs) and any(case.head_module for case in theirs)
    if around.list_targets is None or not both or not has_exporters(head_tree, plan.layout):
        return ()
    try:
        before, now = around.list_targets(base, plan.modules), around.list_targets(head, plan.modules)
    except RunError as error:
        return (f"what the checkout's own exporters look for is unknown: {error}",)
    folder = MODELS_FOLDER[Layout.TRANSFORMERS]
    return lost_targets(before, now, lambda file: head_tree.read(f"{folder}/{file}") is not None)
