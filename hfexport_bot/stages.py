"""The stages of a run as commands, JSON in and out: plan, a shard of it (`run --plan`), merge, report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from hfexport_bot.errors import UsageError
from hfexport_bot.options import comparing, exporting, fail_on, limiting, overrides_of, reporting, running, tree
from hfexport_bot.process import CLEAN, Process, check_writable, surroundings, write_and_judge

if TYPE_CHECKING:
    from hfexport_bot.shards import Plan

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: What may be said of a shard beside its plan, which has settled everything else.
_BESIDE_A_PLAN = frozenset({"repo", "plan_file", "shard", "out", "jobs", "quiet", "as_json"})
#: What has no meaning for a sweep, which compares no revisions.
_OF_A_CHANGE = ("files", "rest", "max_models", "budget_minutes", "reruns")


class ShardNumber(click.ParamType[tuple[int, int]]):
    """``2/8``: the second of eight."""

    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Read the two numbers."""
        if isinstance(value, tuple):
            return value
        number, slash, of = str(value).partition("/")
        if not (slash and number.isdecimal() and of.isdecimal()):
            self.fail(f"{value!r} is no shard; write it as 2/8.", param, ctx)
        return int(number), int(of)


def sharding(command: _Command) -> _Command:
    """The options that make `run` run a part of a plan."""
    for option in (
        click.option("--shard", type=ShardNumber(), metavar="I/N", help="Run this part of the plan, such as 2/8."),
        click.option(
            "--plan",
            "plan_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Run what `plan` wrote there, with its options, and nothing else.",
        ),
    ):
        command = option(command)
    return command


def planned_shard(
    context: click.Context, file: Path | None, shard: tuple[int, int] | None
) -> tuple[Plan, tuple[int, int]]:
    """The plan and the shard of a `run --plan`; without ``--shard`` the only one of the plan."""
    from hfexport_bot.shards import read_plan

    if file is None:
        raise UsageError("--shard is a part of a plan; give --plan too")
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in _BESIDE_A_PLAN and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{parameter.opts[0]} is settled by the plan; give it to `hfexport-bot plan`")
    plan = read_plan(file)
    if shard is None and len(plan.shards) != 1:
        raise UsageError(f"this plan has {len(plan.shards)} shards; give --shard, such as 1/{len(plan.shards)}")
    return plan, shard or (1, 1)


@click.command()
@comparing
@tree
@fail_on
@limiting
@exporting
@running
@click.option("--shards", type=click.IntRange(1, 256), default=1, show_default=True, help="Into how many jobs at most.")
@click.option(
    "--out", type=click.Path(path_type=Path), default="plan.json", show_default=True, help="Where the plan goes."
)
@click.pass_obj
def plan(
    process: Process,
    /,
    repo: Path,
    base: str | None,
    head: str,
    tree: Path | None,
    records: tuple[Path, ...],
    shards: int,
    out: Path,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
    rest: Path | None,
    files: Path | None,
    **options: Any,
) -> int:
    """Decide what is to run, and share it out among jobs; run nothing.

    With --base, what a change affects. Without it, a sweep: the models named by --model, or all of --tree or of the
    installed transformers. In a job of GitHub Actions the outputs are `shards` (a JSON list for a matrix: "1/8" and so
    on) and `cases`, their number.
    """
    from hfexport_bot.commands.check import plan_sweep
    from hfexport_bot.commands.compare import plan_change
    from hfexport_bot.github.outputs import append_outputs
    from hfexport_bot.reporting.summary import plural

    around = replace(surroundings(process, jobs, None, quiet), records=records, rest=rest, files=files)
    overrides = overrides_of(**options)
    if base:
        if tree is not None:
            raise UsageError("--tree is for a sweep; with --base give --repo")
        made = plan_change(repo, base, head, overrides, around, shards)
    else:
        given = {"files": files, "rest": rest, **options}
        wrong = [name for name in _OF_A_CHANGE if given[name] is not None]
        if wrong:
            raise UsageError(f"--{wrong[0].replace('_', '-')} is for a change; give --base too")
        made = plan_sweep(overrides.models, tree, overrides, around, shards)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(made.dump(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out: {out} cannot be written: {error.strerror}") from None
    names = [f"{number}/{len(made.shards)}" for number in range(1, len(made.shards) + 1)]
    append_outputs(os.environ.get("GITHUB_OUTPUT", ""), {"shards": json.dumps(names), "cases": str(len(made.cases))})
    if as_json:
        click.echo(made.dump(), nl=False)
    elif not quiet:
        click.echo(f"{plural(len(made.cases), 'case')} in {plural(len(made.shards), 'shard')}: {out}")
    return CLEAN


@click.command()
@click.argument("reports", nargs=-1, type=click.Path(path_type=Path), metavar="REPORT...")
@click.option("--plan", "plan_file", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The plan.")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The baseline.json (or report.json) of an earlier sweep, to judge this one against.",
)
@reporting
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def merge(reports: tuple[Path, ...], plan_file: Path, baseline: Path | None, out: Path, quiet: bool) -> int:
    """Put the reports of a plan's shards together.

    REPORT is a report.json or the folder that has it. A shard without one fails the run, and what it should have run is
    told; exit codes are those of run. A sweep leaves baseline.json for the next one, with the earlier one's cases of
    models that this one is not about.
    """
    from hfexport_bot.commands.sharded import merge_shards
    from hfexport_bot.shards import read_plan

    finished, following = merge_shards(read_plan(plan_file), reports, baseline, datetime.now(UTC).date())
    check_writable(out)
    (out / "baseline.json").unlink(missing_ok=True)
    if following is not None:
        (out / "baseline.json").write_text(following.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return write_and_judge(finished, out, quiet=quiet)


@click.command()
@click.argument("report", type=click.Path(path_type=Path), metavar="REPORT.JSON")
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "markdown", "junit"]),
    default="terminal",
    show_default=True,
    help="How to render it.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it there instead of printing it.")
def report(report: Path, form: str, out: Path | None) -> None:
    """Render a report again."""
    from rich.console import Console

    from hfexport_bot.github.report_file import read_report
    from hfexport_bot.reporting.junit import render_junit
    from hfexport_bot.reporting.markdown import render
    from hfexport_bot.reporting.terminal import print_report

    found = read_report(report)
    try:
        stream = out.open("w", encoding="utf-8") if out else None
    except OSError as error:
        raise UsageError(f"--out: {out} cannot be written: {error.strerror}") from None
    if form == "terminal":
        print_report(found, Console(file=stream))
    else:
        click.echo(render(found) if form == "markdown" else render_junit(found), file=stream, nl=False)
    if stream:
        stream.close()
