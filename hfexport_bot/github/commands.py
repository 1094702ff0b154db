"""The commands for GitHub Actions jobs: click, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.schema import VerdictKind


@click.command()
@click.argument("report", type=click.Path(path_type=Path), default="hfexport-out")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="hfexport-out",
    show_default=True,
    help="Folder for what is rendered of it.",
)
@click.option(
    "--comment",
    type=click.Choice(["on-finding", "always", "never"]),
    default="on-finding",
    show_default=True,
    help="When the pull request gets a comment.",
)
@click.option("--check-name", default="Export check", show_default=True, help="What the check run is called.")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([each.value for each in VerdictKind]),
    help="Verdict that makes the check red, instead of those that the base's settings and the report name; may be "
    "repeated.",
)
@click.option("--settings", metavar="PATH", help="The base's settings file. Default: .github/hfexport.yml.")
@click.option("--head", default="", metavar="SHA", help="On issue_comment: the head that the order was about.")
@click.option(
    "--accept",
    nargs=2,
    multiple=True,
    metavar="CASE REASON",
    help="Accept regressions by id; CASE may have wildcards. May be repeated.",
)
def publish(
    report: Path,
    out: Path,
    comment: str,
    check_name: str,
    fail_on: tuple[str, ...],
    head: str,
    accept: tuple[tuple[str, str], ...],
    settings: str | None,
) -> int:
    """Publish a report: check run, comment, summary and outputs. Runs none of the change's code.

    REPORT is a report.json or the folder that has it; its verdicts are found anew, by the base's settings. For a job of
    GitHub Actions with a GITHUB_TOKEN that may write `checks` and `pull-requests`, and read `contents`. Exits with 0
    also when the check is red; with 1 when there is no check to be red.
    """
    from hfexport_bot.github.comment import CommentWhen
    from hfexport_bot.github.job import PublishOptions, publish_report
    from hfexport_bot.github.publish import Wishes
    from hfexport_bot.settings import SETTINGS_PATH

    if not check_name.strip():
        raise UsageError("--check-name must not be empty")
    options = PublishOptions(
        Wishes(CommentWhen(comment), check_name.strip()),
        head,
        tuple(map(VerdictKind, fail_on)),
        accept,
        settings or SETTINGS_PATH,
    )
    published = publish_report(report, out, options, os.environ)
    click.echo(f"check: {published.conclusion.value} {published.check_url}".rstrip())
    if published.comment_url:
        click.echo(f"comment: {published.comment_url}")
    for line in published.lines:
        click.echo(line)
    if published.failures:
        raise RunError("; ".join(published.failures))
    return int(published.red_unseen)


@click.command()
def command() -> None:
    """Read a comment on a pull request: /export run, /export full, /export accept CASE reason.

    For an issue_comment job of GitHub Actions. Only who may write to the repository is obeyed. What to do is in the
    job's outputs, of which `command` is empty where there is nothing.
    """
    from hfexport_bot.github.job import answer_comment
    from hfexport_bot.github.orders import NotObeyed

    try:
        order = answer_comment(os.environ)
    except NotObeyed as reason:
        if reason.tell:
            raise UsageError(f"not done: {reason}") from None
        click.echo(f"not done: {reason}")  # no failure, with which anybody could fill the list of runs
        return
    click.echo("no command" if order is None else f"{order.command.action.value} at {order.sha} for {order.by}")
