"""The stages of a sharded run: a part of a plan, and all parts put together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from hfexport_bot.commands.both_sides import run_change
from hfexport_bot.commands.check import run_sweep
from hfexport_bot.commands.finished import Finished
from hfexport_bot.errors import UsageError
from hfexport_bot.github.report_file import read_report
from hfexport_bot.preparation import Surroundings
from hfexport_bot.schema import Report
from hfexport_bot.shards import Plan
from hfexport_bot.verdicts.merging import against, merge_reports, next_baseline


def run_shard(plan: Plan, number: int, of: int, repo: Path, around: Surroundings) -> Finished:
    """Run one shard of a plan. ``repo`` holds the commits of a change; a sweep knows its tree.

    Raises `UsageError` for a shard that there is not, and where commits or tree are not those of the plan.
    """
    shard = plan.shard(number, of)
    return run_change(plan, repo, around, shard) if plan.command == "run" else run_sweep(plan, around, shard)


def merge_shards(
    plan: Plan, paths: Sequence[Path], baseline: Path | None, today: date
) -> tuple[Finished, Report | None]:
    """Put the reports of a plan's shards together. ``baseline`` is the report of an earlier sweep to compare with; the
    second result is that of the next one, None where this one failed.

    A report that cannot be read is told, and its shard is missing. Raises `UsageError` for a report of another plan,
    and for a baseline of what is no sweep.
    """
    reports: list[Report] = []
    problems: list[str] = []
    for path in paths:
        try:
            reports.append(read_report(path))
        except UsageError as error:
            problems.append(f"{path}: {error}")
    report = merge_reports(plan, reports, problems)
    earlier = None
    if baseline is not None:
        if plan.command != "sweep":
            raise UsageError("--baseline is for sweeps; a run over two revisions has its base")
        earlier = read_report(baseline)
        report = against(report, earlier, plan, today)
    whole = plan.command == "sweep" and not report.failure  # what lacks cases would make the next sweep blind to them
    following = next_baseline(report, earlier, plan) if whole else None
    return Finished(report, report.failure), following
