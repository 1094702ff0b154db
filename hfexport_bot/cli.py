"""The command line: click, exit codes, and nothing else.

Exit codes: 0 clean, or nothing affected; 1 findings; 2 usage or input error; 3 the run itself failed; 130
interrupted. Everything heavier than the schema is imported inside the command that needs it.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.github.commands import command, publish
from hfexport_bot.options import comparing, exporting, limiting, overrides_of, overrides_of_case, reproducing, running
from hfexport_bot.schema import Backend, Census, Report, VerdictKind, WorkaroundInfo

if TYPE_CHECKING:
    from rich.console import Console

    from hfexport_bot.changes.requirements import Difference
    from hfexport_bot.commands import Finished
    from hfexport_bot.execution.overlay import Overlay
    from hfexport_bot.execution.sides import OnEvent, RunCases
    from hfexport_bot.plan import PlannedCase
    from hfexport_bot.preparation import ListTargets, Surroundings
    from hfexport_bot.settings import Overrides

CLEAN, FINDINGS, USAGE, FAILED, INTERRUPTED = 0, 1, 2, 3, 130

_ListWorkarounds = Callable[[], Sequence[WorkaroundInfo]]


@dataclass
class _Process:
    """What a whole process shares: whether tracebacks are wanted, and what stands in for the real runner and its lists.

    Where cases are not run for real, targets are listed by a stand-in or not at all.
    """

    debug: bool = False
    run_cases: RunCases | None = None
    list_workarounds: _ListWorkarounds | None = None
    list_targets: ListTargets | None = None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hfexport-bot", prog_name="hfexport-bot")
@click.option("--debug", is_flag=True, envvar="HFEXPORT_DEBUG", help="Print the traceback of a failure.")
@click.pass_obj
def cli(process: _Process, /, debug: bool) -> None:
    """Keep Hugging Face models exportable: run torch.export, ONNX and ExecuTorch, and compare the numbers."""
    process.debug = debug


_tree = click.option(
    "--tree",
    type=click.Path(path_type=Path),
    help="A transformers checkout or a folder of modeling files. Default: the installed transformers.",
)


@cli.command()
@comparing
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([each.value for each in VerdictKind]),
    help="Verdict that fails the run; may be repeated. Default: regression.",
)
@limiting
@exporting
@running
@click.pass_obj
def run(
    process: _Process,
    /,
    repo: Path,
    base: str,
    head: str,
    fail_on: tuple[str, ...],
    **options: Any,
) -> int:
    """Export what changed between two revisions on both sides, and compare."""
    from hfexport_bot.commands import compare_revisions

    def work(overrides: Overrides, around: Surroundings) -> Finished:
        return compare_revisions(repo, base, head, overrides, around)

    return _carry_out(process, work, fail_on=fail_on, **options)


@cli.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@_tree
@exporting
@running
@click.pass_obj
def check(process: _Process, /, models: tuple[str, ...], tree: Path | None, **options: Any) -> int:
    """Export models of one revision; no git needed.

    MODEL is a model such as bert, MODEL/CLASS such as llama/LlamaForCausalLM, the path of a modeling file, or
    PATH:CLASS.
    """
    from hfexport_bot.commands import check_models

    def work(overrides: Overrides, around: Surroundings) -> Finished:
        return check_models(models, tree, overrides, around)

    return _carry_out(process, work, fail_on=(), **options)


@cli.command()
@comparing
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON and no table.")
def detect(repo: Path, base: str, head: str, records: tuple[Path, ...], files: Path | None, as_json: bool) -> None:
    """Tell which model classes a change affects, and why; run nothing."""
    from rich.console import Console

    from hfexport_bot.commands import detect_affected
    from hfexport_bot.reporting.selection import print_selection, selection_json

    selection = detect_affected(repo, base, head, records, files)
    if as_json:
        click.echo(selection_json(selection))
    else:
        print_selection(selection, Console())


@cli.command()
@click.argument("models", nargs=-1, metavar="[MODEL...]")
@_tree
@running
@click.pass_obj
def cases(
    process: _Process,
    /,
    models: tuple[str, ...],
    tree: Path | None,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Tell which model classes can be built, fed and run in eager, from which source, and why the others can't.

    Nothing is exported. MODEL is as for check; without one, every public model class is tried.
    """
    from rich.console import Console

    from hfexport_bot.commands import survey_models
    from hfexport_bot.reporting.census import print_census

    around = _surroundings(process, jobs, None, quiet)
    census = survey_models(models, tree, overrides_of(**options), around)
    if as_json:
        click.echo(census.model_dump_json(indent=2))
    elif not quiet:
        print_census(census, Console())
    if census.failure:
        raise RunError(census.failure)
    return CLEAN


@cli.command()
@click.argument("case_id", metavar="CASE_ID")
@reproducing
@click.pass_obj
def reproduce(
    process: _Process,
    /,
    case_id: str,
    folder: Path | None,
    repo: Path | None,
    rev: str | None,
    keep: Path | None,
    **options: Any,
) -> int:
    """Run one case of a report in the foreground, stage by stage, with its log.

    CASE_ID is as in the report: MODEL/CLASS/BACKEND/SHAPES/TASK, with +VARIANT and @ENGINE behind it.
    """
    from hfexport_bot.reproduction import parse_case, reproduce_case
    from hfexport_bot.verdicts.compare import CLEAN as PASSING

    case = parse_case(case_id)
    if folder is not None and (repo or rev):
        raise UsageError("--tree is a folder as it is, --repo and --rev a commit of a repository; give one of both")
    overrides = overrides_of_case(case, **options)
    revision = (repo or Path(), rev or "HEAD") if repo or rev else None
    around = _surroundings(process, 1, None, quiet=True)
    outcome = reproduce_case(case, folder, revision, overrides, around, keep, click.echo)
    return CLEAN if outcome.kind in PASSING else FINDINGS


@cli.command()
@click.option("--census", is_flag=True, help="The schema of what `cases --json` prints.")
def schema(census: bool) -> None:
    """Print the JSON schema of report.json."""
    import json

    model = Census if census else Report
    click.echo(json.dumps(model.model_json_schema(mode="serialization"), indent=2))


@cli.group()
def workarounds() -> None:
    """What the exporters work around, and why."""


@workarounds.command("list")
@click.option("--backend", type=click.Choice([backend.value for backend in Backend]), help="Only those of one backend.")
@click.option("--json", "as_json", is_flag=True, help="Print them as a JSON list.")
@click.option(
    "--update",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Print no list, but write it by stage between the markers of this Markdown file.",
)
def list_workarounds(backend: str | None, as_json: bool, update: Path | None) -> int:
    """List the registered workarounds by backend and stage.

    Exits with 1 when one of them patches something that the installed versions no longer have.
    """
    import json

    from hfexport_bot.execution.listing import list_workarounds as ask
    from hfexport_bot.reporting.workarounds import render_workarounds

    found = sorted(
        (each for each in ask() if backend in (None, each.backend)), key=lambda each: (each.backend, each.stage)
    )
    if update is not None:
        from hfexport_bot.reporting.reference import with_reference

        if backend is not None:
            raise UsageError("--update writes the workarounds of all backends; leave --backend out")
        try:
            update.write_text(with_reference(update.read_text(), found))
        except ValueError as error:
            raise UsageError(f"{update}: {error}") from error
        click.echo(f"{len(found)} workarounds written to {update}")
    elif as_json:
        click.echo(json.dumps([each.model_dump(mode="json") for each in found], indent=2))
    else:
        click.echo(render_workarounds(found))
    return FINDINGS if any(each.unresolved for each in found) else CLEAN


@cli.group()
def upstream() -> None:
    """The issues elsewhere that a failure may be."""


@upstream.command("stale")
@click.argument("reports", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="REPORT.JSON...")
def list_stale(reports: tuple[Path, ...]) -> None:
    """List the known issues that no case of some reports was an instance of.

    It tells something after a sweep over many models only. An issue whose workaround acted counts as met.
    """
    from hfexport_bot.reporting import read_reports
    from hfexport_bot.reporting.upstream import render_stale
    from hfexport_bot.verdicts.upstream import known_issues, stale

    known = known_issues()
    click.echo(render_stale(stale(read_reports("REPORT.JSON", reports), known), len(known)))


cli.add_command(publish)
cli.add_command(command)


def _carry_out(
    process: _Process,
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
    from rich.console import Console

    from hfexport_bot.reporting import write_reports
    from hfexport_bot.reporting.terminal import print_report
    from hfexport_bot.verdicts.compare import failing

    _check_writable(out)
    around = _surroundings(process, jobs, out.resolve() / "logs", quiet)
    finished = work(overrides_of(**options), replace(around, records=records, rest=rest, files=files))
    written = write_reports(finished.report, out)
    if as_json:
        click.echo(finished.report.model_dump_json(indent=2))
    elif not quiet:
        print_report(finished.report, Console())
        click.echo(f"report: {', '.join(str(path) for path in written.values())}")
    if finished.failure:
        raise RunError(finished.failure)
    return FINDINGS if failing(finished.report) else CLEAN


def _surroundings(process: _Process, jobs: int | None, logs: Path | None, quiet: bool) -> Surroundings:
    from rich.console import Console

    from hfexport_bot.execution.overlay import make_overlay
    from hfexport_bot.preparation import Surroundings

    @contextmanager
    def watch(planned: Sequence[PlannedCase]) -> Iterator[OnEvent | None]:
        with _progress(planned, None if quiet else Console(stderr=True)) as on_event:
            yield on_event

    def overlay(differences: Sequence[Difference], installed: Mapping[str, str]) -> Overlay:
        if not quiet:  # it may take minutes
            click.echo(f"environment: {', '.join(each.requirement for each in differences)}", err=True)
        return make_overlay(differences, installed)

    return Surroundings(
        open_runners=lambda: nullcontext(process.run_cases) if process.run_cases else _real_runners(),
        list_workarounds=process.list_workarounds or _real_list_workarounds(),
        watch=watch,
        today=datetime.now(UTC).date(),
        jobs=jobs,
        logs=logs,
        make_overlay=overlay,
        list_targets=process.list_targets or (None if process.run_cases else _real_list_targets()),
    )


@contextmanager
def _progress(planned: Sequence[PlannedCase], console: Console | None) -> Iterator[OnEvent | None]:
    from hfexport_bot.reporting.progress import Progress

    if console is None:
        yield None
        return
    with Progress(console, planned) as progress:
        yield progress.event


def _real_runners() -> AbstractContextManager[RunCases]:
    from hfexport_bot.execution.client import Runners

    return Runners()


def _real_list_workarounds() -> _ListWorkarounds:
    from hfexport_bot.execution.listing import list_workarounds

    return list_workarounds


def _real_list_targets() -> ListTargets:
    from hfexport_bot.execution.listing import list_exporter_targets

    return list_exporter_targets


def _check_writable(out: Path) -> None:
    """Find out before the work whether its reports can be kept."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror}; give another folder with --out") from None


def main(
    arguments: Sequence[str] | None = None,
    run_cases: RunCases | None = None,
    list_workarounds: _ListWorkarounds | None = None,
    list_targets: ListTargets | None = None,
) -> int:
    """Run the command line and return its exit code; ``run_cases`` and the lists stand in for the real runner's."""
    process = _Process(run_cases=run_cases, list_workarounds=list_workarounds, list_targets=list_targets)
    try:
        code = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name="hfexport-bot",
            obj=process,
            standalone_mode=False,
        )
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return USAGE
    except UsageError as error:
        click.echo(f"error: {error}", err=True)
        return USAGE
    except RunError as error:
        click.echo(f"the run failed: {error}", err=True)
        return FAILED
    except Exception as error:
        _tell(error, process.debug)
        return FAILED
    return code if isinstance(code, int) else CLEAN


def _tell(error: Exception, debug: bool) -> None:
    """One line on an error nobody expected, and its traceback out of the way."""
    text = "".join(traceback.format_exception(error))
    if debug:
        click.echo(text, err=True)
        return
    with tempfile.NamedTemporaryFile(
        "w", prefix="hfexport-traceback-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    summary = (str(error).splitlines() or [""])[0]
    click.echo(f"the run failed: {type(error).__name__}: {summary} (traceback: {file.name})", err=True)


def entry_point() -> None:
    """The console script. A polite kill ends like Ctrl-C, and neither can disturb the clean-up of the first."""

    def interrupt(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    code = main()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
