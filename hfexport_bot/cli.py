"""The command line: click, exit codes, and nothing else.

Exit codes: 0 clean, or nothing affected; 1 findings; 2 usage or input error; 3 the run itself failed; 130
interrupted. Everything heavier than the schema is imported inside the command that needs it.
"""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hfexport_bot.action import action
from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.github.commands import command, publish
from hfexport_bot.list_commands import upstream, workarounds
from hfexport_bot.options import (
    comparing,
    exporting,
    fail_on,
    limiting,
    overrides_of,
    overrides_of_case,
    reporting,
    reproducing,
    required,
    running,
    settings_file,
)
from hfexport_bot.options import tree as tree_option
from hfexport_bot.process import (
    CLEAN,
    FAILED,
    FINDINGS,
    INTERRUPTED,
    USAGE,
    ListWorkarounds,
    Process,
    carry_out,
    surroundings,
)
from hfexport_bot.schema import Census, Record, Report
from hfexport_bot.stages import merge, plan, planned_shard, report, sharding

if TYPE_CHECKING:
    from hfexport_bot.commands.finished import Finished
    from hfexport_bot.execution.sides import RunCases
    from hfexport_bot.preparation import ListTargets, Surroundings
    from hfexport_bot.settings import Overrides


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hfexport-bot", prog_name="hfexport-bot")
@click.option("--debug", is_flag=True, envvar="HFEXPORT_DEBUG", help="Print the traceback of a failure.")
@click.pass_obj
def cli(process: Process, /, debug: bool) -> None:
    """Keep Hugging Face models exportable: run torch.export, ONNX and ExecuTorch, and compare the numbers."""
    process.debug = debug


@cli.command()
@comparing
@fail_on
@limiting
@exporting
@running
@reporting
@sharding
@click.pass_context
def run(
    context: click.Context,
    /,
    repo: Path,
    base: str | None,
    head: str,
    fail_on: tuple[str, ...],
    plan_file: Path | None,
    shard: tuple[int, int] | None,
    **options: Any,
) -> int:
    """Export what changed between two revisions on both sides, and compare; or run one shard of a plan."""
    from hfexport_bot.commands.compare import compare_revisions
    from hfexport_bot.commands.sharded import run_shard

    if plan_file is not None or shard is not None:
        planned, (number, of) = planned_shard(context, plan_file, shard)

    def work(overrides: Overrides, around: Surroundings) -> Finished:
        if plan_file is not None:
            return run_shard(planned, number, of, repo, around)
        return compare_revisions(repo, required(base), head, overrides, around)

    return carry_out(context.obj, work, fail_on=fail_on, **options)


@cli.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@tree_option
@exporting
@running
@reporting
@click.pass_obj
def check(process: Process, /, models: tuple[str, ...], tree: Path | None, **options: Any) -> int:
    """Export models of one revision; no git needed.

    MODEL is a model such as bert, MODEL/CLASS such as llama/LlamaForCausalLM, the path of a modeling file, or
    PATH:CLASS.
    """
    from hfexport_bot.commands.check import check_models

    def work(overrides: Overrides, around: Surroundings) -> Finished:
        return check_models(models, tree, overrides, around)

    return carry_out(process, work, fail_on=(), **options)


@cli.command()
@comparing
@settings_file
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON and no table.")
def detect(
    repo: Path,
    base: str | None,
    head: str,
    records: tuple[Path, ...],
    files: Path | None,
    settings: str | None,
    as_json: bool,
) -> None:
    """Tell which model classes a change affects, and why; run nothing."""
    from hfexport_bot.commands.detect import detect_affected
    from hfexport_bot.reporting.selection import print_selection, selection_json
    from hfexport_bot.settings import SETTINGS_PATH

    selection = detect_affected(repo, required(base), head, records, files, settings or SETTINGS_PATH)
    if as_json:
        click.echo(selection_json(selection))
        return
    from rich.console import Console

    print_selection(selection, Console())


@cli.command()
@click.argument("models", nargs=-1, metavar="[MODEL...]")
@tree_option
@running
@click.pass_obj
def cases(
    process: Process,
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

    from hfexport_bot.commands.census import survey_models
    from hfexport_bot.reporting.census import print_census

    around = surroundings(process, jobs, None, quiet)
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
    process: Process,
    /,
    case_id: str,
    tree: Path | None,
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
    if tree is not None and (repo or rev):
        raise UsageError("--tree is a folder as it is, --repo and --rev a commit of a repository; give one of both")
    overrides = overrides_of_case(case, **options)
    revision = (repo or Path(), rev or "HEAD") if repo or rev else None
    around = surroundings(process, 1, None, quiet=True)
    outcome = reproduce_case(case, tree, revision, overrides, around, keep, click.echo)
    return CLEAN if outcome.kind in PASSING else FINDINGS


@cli.command()
@click.option("--census", "of", flag_value="census", help="The schema of what `cases --json` prints.")
@click.option("--plan", "of", flag_value="plan", help="The schema of what `plan` writes.")
def schema(of: str | None) -> None:
    """Print the JSON schema of report.json."""
    import json

    from hfexport_bot.shards import Plan

    models: dict[str | None, type[Record]] = {None: Report, "census": Census, "plan": Plan}
    model = models[of]
    click.echo(json.dumps(model.model_json_schema(mode="serialization"), indent=2))


for each in (workarounds, upstream, plan, merge, report, publish, command, action):
    cli.add_command(each)


def main(
    arguments: Sequence[str] | None = None,
    run_cases: RunCases | None = None,
    list_workarounds: ListWorkarounds | None = None,
    list_targets: ListTargets | None = None,
    reasons: list[str] | None = None,
) -> int:
    """Run the command line and return its exit code; ``run_cases`` and the lists stand in for the real runner's. Why it
    failed is added to ``reasons``."""
    told = [] if reasons is None else reasons

    def call(line: Sequence[str]) -> int:
        click.echo(f"$ hfexport-bot {shlex.join(line)}", err=True)
        return main(line, run_cases, list_workarounds, list_targets, process.reasons)

    process = Process(call, run_cases=run_cases, list_workarounds=list_workarounds, list_targets=list_targets)
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
        told.append(error.format_message())
        return USAGE
    except UsageError as error:
        click.echo(f"error: {error}", err=True)
        told.append(str(error))
        return USAGE
    except RunError as error:
        click.echo(f"the run failed: {error}", err=True)
        told.append(str(error))
        return FAILED
    except Exception as error:
        _tell(error, process.debug)
        told.append(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
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
    gc.freeze()  # what is left ends with the process: nobody need look for garbage in it
    sys.exit(code)
