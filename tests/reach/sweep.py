"""Run many cases in one warm runner, as ``hfexport-bot check`` does, and keep a log that survives whatever happens."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from hfexport_bot.changes.place import find_place
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import resolve_targets
from hfexport_bot.changes.tree import FolderTree
from hfexport_bot.execution.client import run_cases
from hfexport_bot.execution.session import run_session
from hfexport_bot.execution.sides import SideName
from hfexport_bot.plan import PlannedCase, plan_cases
from hfexport_bot.reporting.summary import BACKENDS, cell, duration
from hfexport_bot.reporting.writing import write_reports
from hfexport_bot.schema import (
    Backend,
    CaseFinished,
    CaseId,
    CaseReport,
    Limits,
    Report,
    Revision,
    RunnerEvent,
    RunnerSetup,
    Shapes,
    Task,
)
from hfexport_bot.verdicts.compare import describe, make_cases

#: What one case may use: generous, since a sweep is to tell what fails, not what is slow on a busy machine.
LIMITS = Limits(wall_seconds=1_200, cpu_seconds=2_400)


def plan_of(wanted: Collection[CaseId]) -> tuple[RunnerSetup, tuple[PlannedCase, ...]]:
    """How to run exactly these cases of the installed transformers. Raises `UsageError` for a class there is not."""
    names = list(dict.fromkeys(f"{case.model}/{case.class_name}" for case in wanted))
    place = find_place(names, None)
    targets = resolve_targets(place.names, FolderTree(place.root), place.layout)
    planned = plan_cases(Selection(affected=targets), tuple(Backend), tuple(Shapes), tuple(Task))
    return RunnerSetup(layout=place.layout, limits=LIMITS), tuple(case for case in planned if case.id in wanted)


def sweep(wanted: Collection[CaseId], out: Path, jobs: int) -> dict[CaseId, CaseReport]:
    """Run the cases, ``jobs`` at a time, and return what each came to.

    Into ``out`` go ``progress.log``, a line for each case as it ends, the logs of the cases, and at the end
    ``summary.txt``, ``report.md`` and ``report.json``. Raises what stops the run as a whole.
    """
    setup, planned = plan_of(wanted)
    out.mkdir(parents=True, exist_ok=True)
    started = datetime.now(UTC)
    finished = 0
    with (out / "progress.log").open("a", buffering=1) as log:
        log.write(f"{started:%F %T} {len(planned)} cases begin\n")

        def note(side: SideName, event: RunnerEvent) -> None:
            nonlocal finished
            if isinstance(event, CaseFinished):
                finished += 1
                said = event.outcome.kind.value if event.outcome.kind == "pass" else describe(event.outcome)
                place = f"[{finished}/{len(planned)}] {event.id}"
                log.write(f"{datetime.now(UTC):%F %T} {place}: {said}, {duration(event.outcome.seconds)}\n")

        setup = setup.model_copy(update={"log_dir": str(out.resolve() / "logs")})
        result = run_session(
            planned, base=None, head=setup, run_cases=run_cases, jobs=jobs, watch=lambda total, what: nullcontext(note)
        )
    report = Report(
        command="check",
        head=Revision(name="installed transformers"),
        cases=make_cases(planned, None, result.head),
        failure=result.fatal.get("head", ""),
        seconds=(datetime.now(UTC) - started).total_seconds(),
        versions=result.versions,
    )
    write_reports(report, out)
    (out / "summary.txt").write_text("\n".join([*summary(report.cases), ""]), encoding="utf-8")
    return {case.id: case for case in report.cases}


def summary(cases: Iterable[CaseReport]) -> list[str]:
    """A line for each class with one kind of shapes and one task, its result on each backend, and the counts."""
    rows: dict[tuple[str, ...], dict[Backend, str]] = {}
    outcomes: dict[str, int] = {}
    for case in cases:
        key = (case.id.model, case.id.class_name, case.id.shapes.value, case.id.task.value)
        rows.setdefault(key, {})[case.id.backend] = cell(case)
        outcomes[case.outcome.value] = outcomes.get(case.outcome.value, 0) + 1
    head = ("type", "class", "shapes", "task", *BACKENDS.values())
    table = [head, *((*key, *(cells.get(backend, "") for backend in BACKENDS)) for key, cells in rows.items())]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return [*lines, ", ".join(f"{count} {kind}" for kind, count in outcomes.items())]
