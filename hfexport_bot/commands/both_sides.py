"""``hfexport-bot run``: a planned change on both sides, step by step, and the report of what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from hfexport_bot.audit import Trials
from hfexport_bot.changes.expectations import (
    Change,
    Expectation,
    entry_changes,
    expectation_files,
    read_expectations,
)
from hfexport_bot.changes.git import Git
from hfexport_bot.changes.layout import MODELS_FOLDER
from hfexport_bot.changes.lost_names import takes_names_away
from hfexport_bot.changes.place import has_exporters
from hfexport_bot.changes.tree import GitTree, Tree
from hfexport_bot.commands.auditing import ChangeAudit
from hfexport_bot.commands.finished import Finished, ended, failure_of, notes_of
from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.execution.reruns import Reruns
from hfexport_bot.execution.session import SessionResult
from hfexport_bot.execution.sides import RunCases, SideName
from hfexport_bot.execution.trees import revision_tree
from hfexport_bot.plan import PlannedCase
from hfexport_bot.preparation import Prepared, Surroundings, log_dir, prepare, run_planned, runner_setup
from hfexport_bot.schema import CaseReport, Engine, EngineChoice, Layout, Report, RunnerSetup, Shard
from hfexport_bot.settings import Hooks, Overrides, in_force
from hfexport_bot.shards import Plan
from hfexport_bot.verdicts.audits import with_removed
from hfexport_bot.verdicts.blame import blamed
from hfexport_bot.verdicts.compare import make_cases
from hfexport_bot.verdicts.expectations import Expectations, changed_accepted, of_accepted, untried
from hfexport_bot.verdicts.exporter_targets import lost_targets
from hfexport_bot.verdicts.reaching import of_models, reach_more, share_of, without_untold
from hfexport_bot.verdicts.stability import may_be_chance, told
from hfexport_bot.verdicts.unreached import changed_code


def run_change(
    plan: Plan, repo: Path, around: Surroundings, shard: Shard | None = None, started: float | None = None
) -> Finished:
    """Run the cases of a plan, or of one of its shards, on both sides. ``started``, by ``time.monotonic``, is when the
    work began, if not now.

    Raises `UsageError` where the repository does not have the plan's commits.
    """
    change = _Change(plan, repo, around, shard, time.monotonic() if started is None else started)
    change.run()
    report = change.report()
    return Finished(report, report.failure, change.result.interrupted)


class _Change:
    """A planned change, and what was found of it so far.

    Attributes:
        planned: the cases of this shard, more once variants are among them. result: what they came to. prepared: the
            sides' environments. lost: notes on what the exporters no longer find. about: the audit of workarounds.
    """

    def __init__(self, plan: Plan, repo: Path, around: Surroundings, shard: Shard | None, started: float) -> None:
        self._plan, self._around, self._shard, self._started = plan, around, shard, started
        self._git, self._settings, self._layout = Git(repo), plan.settings, plan.layout
        self._base_sha, self._head_sha = _commits(self._git, plan)
        self._base, self._head = GitTree(self._git, self._base_sha), GitTree(self._git, self._head_sha)
        self._first = shard is None or shard.number == 1  # what is of the whole change is told by the first
        minutes = self._settings.budget_minutes
        self._until = started + minutes * 60 if minutes else None
        touched = self._git.changed_lines(self._base_sha, self._head_sha, around_gone=True)
        code = changed_code(self._head, touched, plan.not_run, self._layout)
        self._code = of_models(code, plan.cases, self._layout)
        self.planned: tuple[PlannedCase, ...] = plan.cases_of(shard) if shard else plan.cases
        self.about = ChangeAudit.of(plan.edited, self._head, self._until)
        self.result, self.prepared, self.lost = SessionResult(), Prepared(), tuple[str, ...]()

    def run(self) -> None:
        """Run everything there is. Once interrupted, what was found until then is kept."""
        try:
            if self.planned:
                with ExitStack() as open_things:
                    setups = self._prepare(open_things)
                    if self.planned:
                        self._run_cases(setups)
                    if not self.result.interrupted:
                        self._find_lost_targets(setups)
            if self._first and not self.prepared.failure and not self.result.interrupted:
                self.about.on_installed(Overrides(seconds=self._settings.limits.wall_seconds), self._around)
        except KeyboardInterrupt:
            self.result = replace(self.result, interrupted=True)

    def _prepare(self, open_things: ExitStack) -> dict[SideName, RunnerSetup]:
        """Write both revisions to folders and make their environments; nothing stays planned where that fails."""
        sides: tuple[tuple[SideName, str, Hooks], ...] = (
            ("base", self._base_sha, self._settings.base_hooks),
            ("head", self._head_sha, self._settings.head_hooks),
        )
        setups: dict[SideName, RunnerSetup] = {}
        for side, sha, hooks in sides:
            tree = open_things.enter_context(revision_tree(self._git, sha))
            setups[side] = runner_setup(self._layout, tree, self._settings, hooks, log_dir(self._around, side))
        trees: dict[SideName, Tree] = {"base": self._base, "head": self._head}
        self.prepared = prepare(setups, trees, self.planned, self._settings, self._around)
        self.planned = () if self.prepared.failure else self.planned
        self.about.without_unmet(self.prepared.unmet)
        return self.prepared.setups

    def _run_cases(self, setups: dict[SideName, RunnerSetup]) -> None:
        """Run the cases, then variants that reach more of the changed lines, then cases with workarounds off."""
        head = setups["head"].model_copy(update={"watched": self._code.watched})
        may_be = partial(may_be_chance, limits=self._settings.drift)
        reruns = Reruns(self._settings.reruns, may_be, self._until)
        with self._around.open_runners() as run_cases:  # the same ones for all of it: to get warm takes long

            def run(cases: Sequence[PlannedCase], survey: bool = False) -> SessionResult:
                base = None if survey else setups["base"]
                return run_planned(cases, base, head, run_cases, self._around, reruns, survey=survey)

            own = self._code
            if self._shard:
                own = share_of(own, self._plan.cases, self.planned, self._first, self._layout)
            self.result = run(self.planned)
            self.planned, self.result = reach_more(own, self.planned, self.result, run, self._layout)
            if not self.result.interrupted:
                self._audit(head, run_cases)

    def _audit(self, head: RunnerSetup, run_cases: RunCases) -> None:
        backends = tuple(sorted({case.id.backend for case in self.planned}))
        setup = head.model_copy(update={"backends": backends})
        trials = Trials(setup, run_cases, self._around.watch, self._around.jobs)
        self.about.on_cases(self.planned, self.result, trials)

    def _find_lost_targets(self, setups: dict[SideName, RunnerSetup]) -> None:
        """Note what the checkout's own exporters no longer find on head, or why that is unknown.

        To import both sides takes many seconds, so it is done only where the change or the environments may matter.
        """
        theirs = [case for case in self.planned if case.id.engine is Engine.REPO]
        both = any(case.base_module for case in theirs) and any(case.head_module for case in theirs)
        list_targets, modules = self._around.list_targets, self._plan.modules
        if list_targets is None or not self._first or not both or not has_exporters(self._head, self._layout):
            return
        base, head = setups["base"], setups["head"]
        changes = self._git.changed_files(self._base_sha, self._head_sha)
        if base.search_path == head.search_path and not takes_names_away(changes, self._base, self._head):
            return
        try:
            before, now = list_targets(base, modules), list_targets(head, modules)
        except RunError as error:
            self.lost = (f"what the checkout's own exporters look for is unknown: {error}",)
            return
        folder = MODELS_FOLDER[Layout.TRANSFORMERS]
        self.lost = lost_targets(before, now, lambda file: self._head.read(f"{folder}/{file}") is not None)

    def report(self) -> Report:
        """What was found, with verdicts."""
        plan, settings, result = self._plan, self._settings, self.result
        ran, missed = ended(self.planned, result)
        telling, untold = without_untold(self._code, self.planned, result.head, self._layout)
        changed = self._changed_entries() if self._first else ()
        expired = in_force(settings.accepted, self._around.today)[1]
        return Report(
            command="run",
            base=plan.base,
            head=plan.head,
            cases=self._cases(ran),
            unreached=telling.unreached(result.head.values()),
            not_run=(*plan.not_run, *missed, *untold),
            notes=(*plan.notes, *self.prepared.notes, *self.lost, *notes_of(settings, expired, result)),
            failure=self.prepared.failure or failure_of(result),
            seconds=time.monotonic() - self._started,
            versions=result.versions,
            fail_on=settings.fail_on,
            rerun=plan.rerun,
            sample=plan.sample,
            shard=self._shard,
            unmet=self.prepared.unmet,
            audit=self.about.report(plan.head),
            untried=untried(changed, [case.id for case in (*plan.cases, *self.planned)]),
        )

    def _cases(self, ran: Sequence[PlannedCase]) -> tuple[CaseReport, ...]:
        """The verdict on each case, with the line to blame."""
        result, settings = self.result, self._settings
        judged = make_cases(
            ran,
            result.base,
            result.head,
            in_force(settings.accepted, self._around.today)[0],
            settings.drift,
            {id_: told(tries) for id_, tries in result.tries.items()},
            result.eager,
            self._expectations().of,
        )
        lines = self._git.changed_lines(self._base_sha, self._head_sha)
        found = blamed(judged, self._head, lines, self._code.statements, settings.head_hooks.workarounds)
        return tuple(with_removed(case, self.about.edited.removed) for case in found)

    def _expectations(self) -> Expectations:
        """What either side expects to fail of the planned cases."""
        before, now = self._accepted_entries()
        if any(case.id.engine is Engine.REPO for case in self.planned):
            models = {case.id.model for case in self.planned}
            paths = expectation_files({*self._base.blobs(), *self._head.blobs()}, models)
            before = (*before, *read_expectations(self._base, paths))
            now = (*now, *read_expectations(self._head, paths))
        return Expectations(before, now, self._expired())

    def _changed_entries(self) -> list[tuple[Expectation, Change]]:
        """The entries for expected failures that a change adds or removes."""
        theirs = self._layout is Layout.TRANSFORMERS and self._settings.engine is not EngineChoice.OWN
        changed = changed_accepted(*self._accepted_entries(), self._expired())
        return [*changed, *(entry_changes(self._base, self._head) if theirs else ())]

    def _accepted_entries(self) -> tuple[tuple[Expectation, ...], tuple[Expectation, ...]]:
        """Both sides' accepted findings that are in force."""
        sides = self._settings.accepted, self._settings.head_accepted
        base, head = (in_force(each, self._around.today)[0] for each in sides)
        return of_accepted(base), of_accepted(head)

    def _expired(self) -> frozenset[str]:
        """The ids of head's accepted findings whose last day is past."""
        return frozenset(entry.id for entry in in_force(self._settings.head_accepted, self._around.today)[1])


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
