"""The trusted stage: one report to a check run, a comment, the job's page and its outputs.

Nothing here runs, checks out or imports the change's code. What cannot be written (a token without rights, a pull
request that has moved on) costs that one thing, and a line says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from hfexport_bot.errors import RunError
from hfexport_bot.github.checks import (
    Check,
    Conclusion,
    annotate,
    check_summary,
    conclude,
    conclude_without,
    worse_of_others,
    write_check,
)
from hfexport_bot.github.client import Client, GitHubError, Locked
from hfexport_bot.github.comment import CommentWhen, keep_one_comment, make_body, make_body_without, whoami
from hfexport_bot.github.event import Event, Origin
from hfexport_bot.github.pulls import NoPullRequest, find_pull_request, is_current
from hfexport_bot.reporting.summary import headline
from hfexport_bot.reporting.text import code
from hfexport_bot.schema import Report
from hfexport_bot.verdicts.compare import cases_to_act_on

ADVISORY = (
    "Judged by the base's settings, from outcomes that were measured by running the change's own code, which could "
    "falsify them: a green is advice, not proof."
)


@dataclass(frozen=True)
class Result:
    """What there is to publish: a report, or why there is none."""

    report: Report | None
    problem: str = ""

    @property
    def title(self) -> str:
        return headline(self.report) if self.report else f"no report: {self.problem}"


@dataclass(frozen=True)
class Wishes:
    """How a result is to appear. ``page`` is the address of the job that publishes it, which has the whole report,
    ``home`` that of the repository."""

    comment: CommentWhen = CommentWhen.ON_FINDING
    check_name: str = "Export check"
    page: str = ""
    home: str = ""


@dataclass
class Published:
    """What appeared where; ``checked``: there is a check run. ``lines`` say what did not, and why; ``failures`` those
    of them that should not have happened, as opposed to a right that a token lacks."""

    conclusion: Conclusion
    checked: bool = False
    check_url: str = ""
    comment_url: str = ""
    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def red_unseen(self) -> bool:
        """Whether this job has to be red itself, since there is no check run that is."""
        return self.conclusion is Conclusion.FAILURE and not self.checked


def publish(client: Client | None, event: Event, result: Result, wishes: Wishes) -> Published:
    """Write the check run and the comment. ``client`` is None where there is no token. Raises nothing of GitHub's."""
    report = result.report
    own = conclude(report, event.ran) if report else conclude_without(event.ran)
    published = Published(own)
    if client is None:
        published.lines.append("No check and no comment: there is no GITHUB_TOKEN.")
        return published
    app = ""
    try:
        check = _held(client, event, published, _check(event, result, wishes, own))
        written = write_check(client, event.repository, check)
        published.checked, published.check_url, app = True, written.url, written.app
    except GitHubError as error:
        _note(published, "No check", error, event)
    cancelled = own is Conclusion.CANCELLED  # by a newer push, or by somebody who knows
    if event.change and wishes.comment is not CommentWhen.NEVER and not cancelled:
        try:
            published.comment_url = _comment(client, event, event.change, result, wishes, app)
        except NoPullRequest as reason:
            published.lines.append(f"No comment: {reason}.")
        except GitHubError as error:
            _note(published, "No comment", error, event)
    return published


def problem_text(result: Result) -> str:
    """What stands where the report would, when there is none."""
    return f"## Export check: no report\n\n{code(result.problem, 400)}\n"


def _check(event: Event, result: Result, wishes: Wishes, conclusion: Conclusion) -> Check:
    report, footer = result.report, _footer(event, result, wishes)
    return Check(
        name=wishes.check_name,
        sha=event.sha,
        id=f"hfexport-bot-{event.run_id}",
        conclusion=conclusion,
        title=result.title,
        summary=check_summary(report, footer) if report else f"{problem_text(result)}\n{footer}",
        details_url=wishes.page,
        annotations=annotate(report) if report else (),
    )


def _held(client: Client, event: Event, published: Published, check: Check) -> Check:
    """The check of a pull request, as bad as that of any other with the same head: there is one for a commit."""
    if event.change is None:
        return check
    run = f"run-{event.run_id.rpartition('-')[0]}"
    try:
        of = str(find_pull_request(client, event.repository, event.change).number)
    except NoPullRequest:  # it cannot be told of which, so it hides nobody's
        of = run
    check = replace(check, of=of, own=check.conclusion)
    for other in worse_of_others(client, event.repository, check.name, check.sha, of, check.conclusion):
        if other.of.isdecimal() and not _has_head(client, event, int(other.of)):
            continue
        whose = f"#{other.of}" if other.of.isdecimal() else "another run of the same head"
        line = (
            f"{whose}, whose head is this commit too, has {other.conclusion.value}, and so has this check: {other.url}"
        )
        published.conclusion = other.conclusion
        published.lines.append(line)
        title = f"{other.conclusion.value} of {whose} with the same head; here: {check.title}"
        return replace(check, conclusion=other.conclusion, title=title)
    return check


def _has_head(client: Client, event: Event, number: int) -> bool:
    """Whether a pull request is still open and its head is what this event is of."""
    try:
        find_pull_request(client, event.repository, Origin(sha=event.sha, repository="", number=number))
    except NoPullRequest:
        return False
    return True


def _comment(client: Client, event: Event, change: Origin, result: Result, wishes: Wishes, app: str) -> str:
    pull = find_pull_request(client, event.repository, change)

    def check() -> None:
        if not is_current(client, event.repository, pull):
            raise NoPullRequest("the pull request has moved on, or was closed, just now")

    key = re.sub(r"[^a-z0-9]+", "-", wishes.check_name.lower()).strip("-") or "check"
    footer = _footer(event, result, wishes)
    if result.report:
        body = make_body(result.report, wishes.comment, footer)
    else:
        body = make_body_without(f"{problem_text(result)}\nThis is of the newest run.\n", wishes.comment, footer)
    author = whoami(client, app)
    return keep_one_comment(client, event.repository, pull.number, key, body, author, check).url


def _footer(event: Event, result: Result, wishes: Wishes) -> str:
    whole = f"[The whole report]({wishes.page}) · " if wishes.page else ""
    return f"---\n{_fetching(event, result.report, wishes)}{whole}{ADVISORY}\n"


def _fetching(event: Event, report: Report | None, wishes: Wishes) -> str:
    """How to get the commit that the commands to reproduce are about: nobody's clone has a pull request's merge."""
    if event.change is None or report is None or not wishes.home or not cases_to_act_on(report):
        return ""
    rev = report.rerun.rev
    fetch = code(f"git fetch {wishes.home} {rev}", 400)
    return f"A clone may need this before it can reproduce: {fetch}\n\n" if rev and rev == report.head.sha else ""


def _note(published: Published, what: str, error: RunError, event: Event) -> None:
    status = error.status if isinstance(error, GitHubError) else 0
    if status == 403 and event.limited and not isinstance(error, Locked):
        published.lines.append(
            f"{what}: {event.limited} gets a token that may only read. A workflow on `workflow_run` can publish it."
        )
        return
    line = f"{what}: {error}."
    published.lines.append(line)
    if status != 403:
        published.failures.append(line)
