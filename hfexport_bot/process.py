"""What commands share around their work: real runners or stand-ins, progress, reports and exit codes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.options import overrides_of
from hfexport_bot.schema import WorkaroundInfo, unfit

if TYPE_CHECKING:
    from rich.console import Console

    from hfexport_bot.changes.requirements import Difference
    from hfexport_bot.commands.finished import Finished
    from hfexport_bot.execution.overlay import Overlay
    from hfexport_bot.execution.sides import OnEvent, RunCases
    from hfexport_bot.preparation import ListTargets, Surroundings
    from hfexport_bot.settings import Overrides

#: Exit codes: clean, or nothing affected; findings; wrong usage or input; the run itself failed; interrupted.
CLEAN, FINDINGS, USAGE, FAILED, INTERRUPTED = 0, 1, 2, 3, 130

ListWorkarounds = Callable[[], Sequence[WorkaroundInfo]]


@dataclass
class Process:
    """What a whole process shares: whether tracebacks are wanted, and what stands in for the real runner and its lists.

    Where cases are not run for real, targets are listed by a stand-in or not at all. ``call`` runs another command line
    in this process and returns its exit code; why one failed is added to ``reasons``.
    """

    call: Callable[[Sequence[str]], int]
    debug: bool = False
    reasons: list[str] = field(default_factory=list)
    run_cases: RunCases | None = None
    list_workarounds: ListWorkarounds | None = None
    list_targets: ListTargets | None = None


def carry_out(
    process: Process,
    work: Callable[[Overrides, Surroundings], Finished],
    *,
    out: Path,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
    records: Sequence[Path] = (),
    rest: Path | None = None,
    files: Path | None = None,
    **options: Any,
) -> int:
    """Run a command's work between its options and its reports."""
    check_writable(out)
    around = surroundings(process, jobs, out.resolve() / "logs", quiet)
    finished = work(overrides_of(**options), replace(around, records=records, rest=rest, files=files))
    return write_and_judge(finished, out, quiet=quiet, as_json=as_json)


def write_and_judge(finished: Finished, out: Path, *, quiet: bool = False, as_json: bool = False) -> int:
    """Write and print a report; the exit code is what it comes to. Raises `RunError` where the run failed, and
    ``KeyboardInterrupt`` where it was interrupted, both after that."""
    from rich.console import Console

    from hfexport_bot.reporting.terminal import print_report
    from hfexport_bot.reporting.writing import write_reports
    from hfexport_bot.verdicts.compare import failing

    check_writable(out)
    rerun = finished.report.rerun.model_copy(update={"out": str(out)})
    report = finished.report.model_copy(update={"rerun": rerun})
    written = write_reports(report, out)
    if as_json:
        click.echo(report.model_dump_json(indent=2))
    elif not quiet:
        print_report(report, Console())
        click.echo(f"report: {', '.join(str(path) for path in written.values())}")
    if finished.interrupted:
        raise KeyboardInterrupt
    if finished.failure:
        raise RunError(finished.failure)
    return FINDINGS if failing(report) else CLEAN


def surroundings(process: Process, jobs: int | None, logs: Path | None, quiet: bool) -> Surroundings:
    """What commands are handed in from outside: the real thing, where nothing stands in for it."""
    from rich.console import Console

    from hfexport_bot.changes.registrations import installed_ids
    from hfexport_bot.execution.overlay import make_overlay
    from hfexport_bot.preparation import Surroundings

    @contextmanager
    def watch(total: int, what: str) -> Iterator[OnEvent | None]:
        with _progress(total, what, None if quiet else Console(stderr=True)) as on_event:
            yield on_event

    def overlay(differences: Sequence[Difference], installed: Mapping[str, str]) -> Overlay:
        if not quiet:  # it may take minutes
            click.echo(f"environment: {', '.join(each.requirement for each in differences)}", err=True)
        return make_overlay(differences, installed)

    listed = process.list_workarounds
    return Surroundings(
        open_runners=lambda: nullcontext(process.run_cases) if process.run_cases else _real_runners(),
        list_workarounds=listed or _real_list_workarounds(),
        list_ids=(lambda: {each.id for each in listed()}) if listed else installed_ids,
        watch=watch,
        today=datetime.now(UTC).date(),
        jobs=jobs,
        logs=logs,
        make_overlay=overlay,
        list_targets=process.list_targets or (None if process.run_cases else _real_list_targets()),
    )


@contextmanager
def _progress(total: int, what: str, console: Console | None) -> Iterator[OnEvent | None]:
    from hfexport_bot.reporting.progress import Progress

    if console is None:
        yield None
        return
    with Progress(console, total, what) as progress:
        yield progress.event


def _real_runners() -> AbstractContextManager[RunCases]:
    from hfexport_bot.execution.client import Runners

    return Runners()


def _real_list_workarounds() -> ListWorkarounds:
    from hfexport_bot.execution.listing import list_workarounds

    return list_workarounds


def _real_list_targets() -> ListTargets:
    from hfexport_bot.execution.listing import list_exporter_targets

    return list_exporter_targets


def check_writable(out: Path) -> None:
    """Find out before the work whether its reports can be kept, and named in what they tell to do."""
    if problem := unfit(str(out)):
        raise UsageError(f"--out: {str(out)!r} cannot be named in a report: {problem}; give another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror}; give another folder with --out") from None
