"""Run cases with a workaround switched off, to find out whether it is still needed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hfexport_bot.changes.exporters import SAMPLE, acting_ids
from hfexport_bot.changes.place import Place, exporters_of, find_place
from hfexport_bot.changes.registrations import read_registrations
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import every_model, resolve_targets
from hfexport_bot.changes.tree import FolderTree, Tree
from hfexport_bot.changes.workarounds import EditedWorkarounds
from hfexport_bot.errors import UsageError
from hfexport_bot.execution.sides import RunCases, Sides, Watch, available_cpus
from hfexport_bot.plan import Engines, PlannedCase, plan_cases
from hfexport_bot.preparation import Surroundings, one_revision, prepare, private_setup
from hfexport_bot.reporting.reading import read_reports
from hfexport_bot.sample import CASE_SECONDS, case_seconds
from hfexport_bot.schema import (
    REPO_PREFIX,
    Audit,
    AuditedCase,
    Backend,
    CaseId,
    CaseRequest,
    Engine,
    Layout,
    Outcome,
    OutcomeKind,
    RunnerSetup,
    Shapes,
    Task,
    WorkaroundAudit,
    WorkaroundInfo,
)
from hfexport_bot.settings import Overrides, require_known
from hfexport_bot.verdicts.audits import (
    MOST_CASES,
    Trial,
    choose_trials,
    concerned,
    hit_ids,
    judge_trial,
    judge_workaround,
    rounds,
)

_MODELS = "transformers.models."
#: The kinds of workaround whose targets are names of models.
_OF_MODELS = ("skip", "no_optimize")


@dataclass
class Trials:
    """Runs cases as they are, or each with one workaround off, in one runner that stays warm.

    Attributes:
        versions: of what exported. fatal: why the runner could not work at all.
    """

    setup: RunnerSetup
    run_cases: RunCases
    watch: Watch
    jobs: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    fatal: str = ""

    def run(self, cases: Iterable[PlannedCase], off: Mapping[CaseId, str] | None = None) -> dict[CaseId, Outcome]:
        """The outcome of each case. ``off``: the workaround to switch off in it."""
        planned = [case for case in cases if case.head_module]
        disabled = {case: (name,) for case, name in (off or {}).items()}
        requests = [
            CaseRequest(id=case.id, module=case.head_module or "", disabled=disabled.get(case.id, ()))
            for case in planned
        ]
        if not requests or self.fatal:
            return {}
        with self.watch(len(requests), "with a workaround off" if off else "") as on_event:
            sides = Sides({"head": self.setup}, self.run_cases, self.jobs)
            found = sides.run({"head": requests}, on_event=on_event).get("head", {})
        if sides.interrupted:
            raise KeyboardInterrupt
        self.versions |= sides.versions.get("head", {})
        self.fatal = sides.fatal.get("head", "")
        return found


def audit(
    workarounds: Sequence[str],
    controls: Mapping[CaseId, Outcome],
    planned: Mapping[CaseId, PlannedCase],
    trials: Trials,
    affordable: Callable[[Sequence[Trial]], Sequence[Trial]] = tuple,
) -> tuple[WorkaroundAudit, ...]:
    """Audit workarounds on the cases that hit them.

    Args:
        controls: what the cases came to with every workaround on, in the same versions.
        affordable: which of the trials, in their order, there is time for.
    """
    chosen = choose_trials(workarounds, {case: each for case, each in controls.items() if case in planned})
    kept = tuple(affordable(chosen))
    audited: dict[str, list[AuditedCase]] = {name: [] for name in workarounds}
    for group in rounds(kept):
        off = {trial.case: trial.workaround for trial in group}
        outcomes = trials.run([planned[case] for case in off], off)
        for trial in group:
            if trial.case in outcomes and not trials.fatal:
                audited[trial.workaround].append(judge_trial(trial, controls[trial.case], outcomes[trial.case]))
    return tuple(
        judge_workaround(name, cases, _why_none(name, controls, chosen, kept)) for name, cases in audited.items()
    )


def _why_none(name: str, controls: Mapping[CaseId, Outcome], chosen: Sequence[Trial], kept: Sequence[Trial]) -> str:
    """Why no case was run without a workaround."""
    if any(trial.workaround == name for trial in kept):
        return "its cases could not be run"
    if any(trial.workaround == name for trial in chosen):
        return "there was no time left for it"
    if not controls:
        engine = f" (its engine is repo: the id ends with @{Engine.REPO})" * name.startswith(REPO_PREFIX)
        return f"no case is known that may hit it; name one with --case{engine}"
    failing = next((case for case, outcome in controls.items() if name in outcome.workarounds), None)
    return "no case hits it" if failing is None else f"{failing} hits it, but does not pass with it either"


def audit_change(
    edited: EditedWorkarounds,
    planned: Sequence[PlannedCase],
    controls: Mapping[CaseId, Outcome],
    trials: Trials,
    until: float | None = None,
) -> tuple[WorkaroundAudit, ...]:
    """Audit the workarounds that a change is about on its own cases, until a time of ``time.monotonic``; ``controls``
    is what head came to."""
    affordable = partial(_in_time, controls=controls, until=until, jobs=trials.jobs)
    return audit(concerned(edited, controls), controls, {case.id: case for case in planned}, trials, affordable)


def _in_time(
    trials: Sequence[Trial], controls: Mapping[CaseId, Outcome], until: float | None, jobs: int | None
) -> tuple[Trial, ...]:
    """The trials that will be done by then, the first of every workaround before the second of any."""
    ends, kept = time.monotonic(), list[Trial]()
    seen: Counter[str] = Counter()
    numbered: list[tuple[int, Trial]] = []
    for trial in trials:
        seen[trial.workaround] += 1
        numbered.append((seen[trial.workaround], trial))
    for _, trial in sorted(numbered, key=lambda each: each[0]):
        control = controls[trial.case]
        usual = CASE_SECONDS[trial.case.backend, trial.case.task]
        ends += (usual if control.kind is OutcomeKind.SKIPPED else control.seconds) / (jobs or available_cpus())
        if until is None or ends <= until:
            kept.append(trial)
    return tuple(kept)


def audit_workarounds(
    workarounds: Sequence[str],
    cases: Sequence[str],
    folder: Path | None,
    overrides: Overrides,
    around: Surroundings,
    until: float | None = None,
) -> Audit:
    """Audit workarounds (all that there is a case for, by default) of one revision, as `check_models` takes it.

    The cases are those of ``around.records`` that hit one, or else ``cases``, or else those that the workarounds'
    targets lead to and one of each kind of model. They are run as they are first. Nothing begins that would not be done
    at ``until``, by ``time.monotonic``.

    Raises `UsageError` for an unknown workaround or case, and for wrong settings.
    """
    started = time.monotonic()
    asked = _parsed(cases)
    place = find_place((), folder)
    tree = FolderTree(place.root)
    settings, setup = one_revision(place, overrides, around)
    own = read_registrations(tree, settings.head_hooks.workarounds)
    if own.whole:
        theirs = acting_ids(exporters_of(tree, place.layout), place.layout)
        require_known(workarounds, {*around.list_ids(), *own.ids, *theirs}, "workarounds audit")
    recorded = {
        case.id: case.head or case.base or Outcome(kind=case.outcome)
        for report in read_reports("--record", around.records)
        for case in report.cases
    }
    if recorded:
        names = workarounds or hit_ids(recorded.values())
        chosen = {trial.case: None for trial in choose_trials(names, recorded)}
        planned = _located([*chosen], place, strict=False)
    elif asked:
        names, planned = workarounds, _located(asked, place, strict=True)
    else:
        known = (*around.list_workarounds(), *own.found)
        names = workarounds or [each.id for each in known]
        planned = _found([each for each in known if each.id in names], tree, place.layout, overrides)
    planned, late = _affordable_cases(planned, until, around.jobs)
    prepared = prepare({"head": setup}, {"head": tree}, [*planned.values()], settings, around)
    found: tuple[WorkaroundAudit, ...] = ()
    failure, versions = prepared.failure, dict[str, str]()
    if not failure:
        with ExitStack() as open_things:
            backends = tuple(sorted({case.backend for case in planned}))
            head = private_setup(prepared.setups["head"], open_things).model_copy(update={"backends": backends})
            runners = open_things.enter_context(around.open_runners())
            trials = Trials(head, runners, around.watch, around.jobs)
            controls = trials.run(planned.values())
            names = names or hit_ids(controls.values())
            affordable = partial(_in_time, controls=controls, until=until, jobs=around.jobs)
            found = audit(names, controls, planned, trials, affordable)
            failure, versions = trials.fatal, trials.versions
    return Audit(
        revision=place.revision,
        workarounds=found,
        notes=(*prepared.notes, *late),
        failure=failure,
        seconds=time.monotonic() - started,
        versions=versions,
    )


def _affordable_cases(
    planned: dict[CaseId, PlannedCase], until: float | None, jobs: int | None
) -> tuple[dict[CaseId, PlannedCase], tuple[str, ...]]:
    """The cases that take no more than half of the time left, since each is run again, and what is said of the rest."""
    if until is None:
        return planned, ()
    left = max(0.0, until - time.monotonic()) * (jobs or available_cpus()) / 2
    kept: dict[CaseId, PlannedCase] = {}
    for case in planned.values():
        seconds = case_seconds(case, {})
        if seconds <= left:
            left -= seconds
            kept[case.id] = case
    missed = len(planned) - len(kept)
    return kept, (f"no time was left for {missed} of {len(planned)} cases that may hit workarounds",) * bool(missed)


def _parsed(cases: Sequence[str]) -> list[CaseId]:
    try:
        return [CaseId.parse(case) for case in cases]
    except ValueError as error:
        raise UsageError(f"--case: {error}") from None


def _located(cases: Sequence[CaseId], place: Place, *, strict: bool) -> dict[CaseId, PlannedCase]:
    """The cases with the modules that their classes are in. Raises `UsageError` for one that is not there, or passes
    it over."""
    tree = FolderTree(place.root)
    modules: dict[str, str | None] = {}
    for case in cases:
        name = f"{case.model}/{case.class_name}"
        if name not in modules:
            try:
                (found, *_) = resolve_targets([name], tree, place.layout)
                modules[name] = found.head.module if found.head else None
            except UsageError:
                if strict:
                    raise
                modules[name] = None
    located = {case: modules[f"{case.model}/{case.class_name}"] for case in cases}
    return {case: PlannedCase(case, None, module, "audit") for case, module in located.items() if module}


def _found(
    workarounds: Sequence[WorkaroundInfo], tree: Tree, layout: Layout, overrides: Overrides
) -> dict[CaseId, PlannedCase]:
    """Cases that may hit workarounds: of the models that their targets are in, or else of one of each kind."""
    every, _ = every_model(tree, layout)
    by_model: dict[str, list[str]] = {}
    for each in every:
        if each.head is not None:
            by_model.setdefault(each.head.model, []).extend(each.head_classes)
    homes = {name: (model, name) for model, names in by_model.items() for name in names}
    kinds = [next((key for key in keys if homes.get(key[1]) == key), None) for keys in SAMPLE.values()]
    sample = [key for key in kinds if key] or [*homes.values()][: len(SAMPLE)]
    planned: dict[CaseId, PlannedCase] = {}
    for info in workarounds:
        keys = _aimed_at(info, homes, by_model) or sample
        shapes, tasks = overrides.shapes or (Shapes.DYNAMIC,), overrides.tasks or (Task.FORWARD,)
        if info.kind in _OF_MODELS:  # which may be for some of them only
            shapes = tuple(each for each in Shapes if each in info.targets) or shapes
            tasks = tuple(each for each in Task if each in info.targets) or tasks
        targets = resolve_targets([f"{model}/{name}" for model, name in keys], tree, layout)
        cases = plan_cases(Selection(affected=targets), (Backend(info.backend),), shapes, tasks, (), Engines())
        planned |= {case.id: case for case in cases}
    return planned


def _aimed_at(
    info: WorkaroundInfo, homes: Mapping[str, tuple[str, str]], by_model: Mapping[str, Sequence[str]]
) -> list[tuple[str, str]]:
    """Classes that a workaround's targets name, or a class of each of the first models that they lie in."""
    found: dict[tuple[str, str], None] = {}
    for target in info.targets:
        name = target.rpartition(".")[2]
        if info.kind in _OF_MODELS and name in homes:
            found[homes[name]] = None
        elif (model := _home(info, target, by_model)) is not None:
            named = [each for each in by_model[model] if f".{each}." in f"{target}."]
            base = named or sorted(by_model[model], key=lambda each: (not each.endswith("Model"), len(each)))
            found[model, base[0]] = None
    return [*found][:MOST_CASES]


def _home(info: WorkaroundInfo, target: str, models: Iterable[str]) -> str | None:
    """The model that a target names, or in whose modules it lies: by the dotted name that its file is imported as,
    which may begin below the tree's root."""
    if info.kind in _OF_MODELS and target in models:
        return target
    inside = target.removeprefix(_MODELS).split(".")
    if target.startswith(_MODELS):
        return inside[0] if inside[0] in models else None
    paths = {model: model.split("/") for model in models if "modeling_" in model}
    ends = range(1, len(inside))
    return next((model for model, path in paths.items() if any(path[-end:] == inside[:end] for end in ends)), None)
