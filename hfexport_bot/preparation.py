"""How cases get to their runners: what a command is handed in, who exports, environments, and runners' setups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from hfexport_bot.changes.exporters import acting_ids
from hfexport_bot.changes.place import Place, exporters_of
from hfexport_bot.changes.registrations import installed_ids, read_registrations
from hfexport_bot.changes.requirements import read_requirements
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import unknown_names
from hfexport_bot.changes.tree import FolderTree, Tree
from hfexport_bot.errors import UsageError
from hfexport_bot.execution.environments import MakeOverlay, prepare_environments
from hfexport_bot.execution.hub import FetchCheckpoint, fetch_checkpoint, fetch_checkpoints
from hfexport_bot.execution.overlay import installed_versions, make_overlay
from hfexport_bot.execution.reruns import Reruns
from hfexport_bot.execution.session import SessionResult, run_session
from hfexport_bot.execution.sides import RunCases, SideName, Watch
from hfexport_bot.execution.trees import copied_tree, manifest, temporary_folder, written
from hfexport_bot.plan import Engines, PlannedCase, plan_cases
from hfexport_bot.schema import (
    REPO_PREFIX,
    Engine,
    ExporterTarget,
    Layout,
    RunnerSetup,
    Source,
    WorkaroundInfo,
)
from hfexport_bot.settings import (
    Hooks,
    Overrides,
    Settings,
    SettingsFile,
    combine,
    read_both,
    require_known,
)

#: The folders of a checkout that its models and their tests need.
_OF_A_CHECKOUT = frozenset({"src", "tests", "utils"})

ListTargets = Callable[[RunnerSetup, Sequence[str]], Sequence[ExporterTarget]]


@dataclass(frozen=True)
class Surroundings:
    """What a command is handed in from outside: runners, their list of workarounds, the day, who watches, how much to
    do at a time, reports of earlier runs and of a sample whose rest to run, GitHub's list of changed files, what makes
    environments and fetches checkpoints, what a side's own exporters reach for in modules, and the ids of the
    workarounds, which are known before a runner lists them."""

    open_runners: Callable[[], AbstractContextManager[RunCases]]
    list_workarounds: Callable[[], Sequence[WorkaroundInfo]]
    watch: Watch
    today: date
    jobs: int | None = None
    logs: Path | None = None
    records: Sequence[Path] = ()
    rest: Path | None = None
    files: Path | None = None
    make_overlay: MakeOverlay = make_overlay
    fetch_checkpoint: FetchCheckpoint = fetch_checkpoint
    list_targets: ListTargets | None = None
    list_ids: Callable[[], Collection[str]] = installed_ids


def one_revision(place: Place, overrides: Overrides, around: Surroundings) -> tuple[Settings, RunnerSetup]:
    """The settings of a folder, or of the installed transformers, and how to set up its runner."""
    installed = place.layout is Layout.INSTALLED
    read, name = FolderTree(place.root).read, str(place.root)
    file = SettingsFile() if installed else read_both(read, read, (name, name), overrides.settings)[0]
    settings = combine(file, file, overrides)
    tree = None if installed else place.root
    return settings, runner_setup(place.layout, tree, settings, settings.head_hooks, log_dir(around, "head"))


def plan(selection: Selection, settings: Settings, engines: Engines) -> tuple[PlannedCase, ...]:
    """The cases of a selection, as the settings ask for them."""
    return plan_cases(selection, settings.backends, settings.shapes, settings.tasks, settings.variants, engines)


@dataclass(frozen=True)
class Prepared:
    """Each side's setup, what the report says of it, why nothing can be run (empty: it can), and what only head asks to
    be installed and is not."""

    setups: dict[SideName, RunnerSetup] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failure: str = ""
    unmet: tuple[str, ...] = ()


def prepare(
    setups: Mapping[SideName, RunnerSetup],
    trees: Mapping[SideName, Tree],
    planned: Sequence[PlannedCase],
    settings: Settings,
    around: Surroundings,
) -> Prepared:
    """Each side's setup with its environment and the checkpoints of its classes."""
    environments = prepare_environments(
        {side: read_requirements(trees[side], setup.layout) for side, setup in setups.items()},
        installed_versions,
        install=settings.install,
        make_overlay=around.make_overlay,
    )
    if environments.failure:
        return Prepared(dict(setups), environments.notes, environments.failure)
    asked = {key for case in planned for key in (case.id.class_name, case.id.model)}
    named = {key: name for key, name in settings.checkpoints.items() if key in asked}
    if settings.sources and Source.CHECKPOINT not in settings.sources:
        named = {}
    fetched = fetch_checkpoints(named, allowed=settings.allow_hub, fetch=around.fetch_checkpoint)
    found = {"checkpoints": fetched.folders, "no_checkpoints": fetched.problems}
    prepared = {
        side: setup.model_copy(update={**found, "search_path": environments.search_path.get(side, ())})
        for side, setup in setups.items()
    }
    others = settings.checkpoints.keys() - asked
    named_by: SideName = "base" if "base" in trees else "head"
    unknown = unknown_names(sorted(others), trees[named_by], setups[named_by].layout) if others else ()
    notes = [f"`checkpoints:` names what is no model class here: {name}" for name in unknown]
    return Prepared(prepared, (*environments.notes, *fetched.notes, *notes), unmet=environments.unmet)


def private_setup(setup: RunnerSetup, open_things: ExitStack) -> RunnerSetup:
    """The setup of a folder's runner; a checkout's tests, which may write to its files, get a copy to work in."""
    if setup.layout is not Layout.TRANSFORMERS or setup.tree is None:
        return setup
    hooks = (Path(hook).parts[0] for hook in (setup.cases_hook, setup.workarounds_file) if hook)
    tree = open_things.enter_context(copied_tree(Path(setup.tree), {*_OF_A_CHECKOUT, *hooks}))
    return setup.model_copy(update={"tree": str(tree)})


def run_planned(
    planned: Sequence[PlannedCase],
    base: RunnerSetup | None,
    head: RunnerSetup,
    run_cases: RunCases,
    around: Surroundings,
    reruns: Reruns | None = None,
    *,
    survey: bool = False,
) -> SessionResult:
    """Run cases, watched, on the sides that have a setup; see `run_session`."""
    setups: dict[SideName, RunnerSetup] = {"head": head} if base is None else {"base": base, "head": head}
    trees = {  # a single folder of the user's own may be worked in meanwhile
        side: Path(each.tree)
        for side, each in setups.items()
        if each.tree and (base is not None or each.layout is Layout.TRANSFORMERS)
    }
    before = {side: manifest(tree) for side, tree in trees.items()}
    with temporary_folder() if base is not None else nullcontext(None) as exchange:
        result = run_session(
            planned,
            base=base,
            head=head,
            run_cases=run_cases,
            jobs=around.jobs,
            watch=around.watch,
            reruns=reruns,
            exchange=exchange,
            survey=survey,
        )
    found = {side: written(before[side], manifest(tree)) for side, tree in trees.items()}
    return replace(result, written={side: files for side, files in found.items() if files})


def runner_setup(layout: Layout, tree: Path | None, settings: Settings, hooks: Hooks, logs: str | None) -> RunnerSetup:
    """How a side's runner is set up, before its environment is made."""
    return RunnerSetup(
        layout=layout,
        tree=str(tree) if tree else None,
        limits=settings.limits,
        seed=settings.seed,
        cases_hook=hooks.cases,
        workarounds_file=hooks.workarounds,
        disabled_workarounds=settings.disabled_workarounds,
        sources=settings.sources,
        log_dir=logs,
    )


def log_dir(around: Surroundings, side: SideName) -> str | None:
    """Where the logs of a side's cases go."""
    return str(around.logs / side) if around.logs else None


def check_disabled(settings: Settings, around: Surroundings, layout: Layout, engines: Engines, *trees: Tree) -> None:
    """Refuse to disable what there is not, also of the exporters of a side's own where these run."""
    theirs = {name for name in settings.disabled_workarounds if name.startswith(REPO_PREFIX)}
    if theirs and Engine.REPO not in (*engines.base, *engines.head):
        raise UsageError(f"--disable-workaround: {min(theirs)} acts in the engine repo; run it with --engine repo")
    if theirs:
        require_known(theirs, {name for tree in trees for name in acting_ids(exporters_of(tree, layout), layout)})
    ours = [name for name in settings.disabled_workarounds if name not in theirs]
    files = {settings.base_hooks.workarounds, settings.head_hooks.workarounds}
    own = [read_registrations(tree, file) for tree in trees for file in files] if ours else []
    if ours and all(each.whole for each in own):
        require_known(ours, frozenset(around.list_ids()).union(*(each.ids for each in own)))
