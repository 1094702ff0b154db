"""What a job does from its environment to its outputs: where the parts of this package meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.github.answers import Comment
from hfexport_bot.github.checks import Check, Conclusion, create_check
from hfexport_bot.github.client import Client, GitHubError, connect
from hfexport_bot.github.event import SHA, Event, Mode, Origin, read_event
from hfexport_bot.github.orders import NotObeyed, Order, take_order
from hfexport_bot.github.outputs import append_outputs, append_summary, full_summary, values_of
from hfexport_bot.github.policy import Policy, read_policy
from hfexport_bot.github.provenance import NotOfThisChange, check_provenance
from hfexport_bot.github.publish import Published, Result, Wishes, problem_text, publish
from hfexport_bot.github.report_file import REPORT_NAME, NoReport, read_report
from hfexport_bot.reporting.text import code, one_line, plain
from hfexport_bot.reporting.writing import write_reports
from hfexport_bot.schema import Report, VerdictKind
from hfexport_bot.settings import SETTINGS_PATH, AcceptedEntry
from hfexport_bot.verdicts.compare import accept
from hfexport_bot.verdicts.rejudging import differing, rejudged

#: Cases that a note names.
_NAMED = 5

#: Makes a client from the job's environment; None where it has no token.
MakeClient = Callable[[Mapping[str, str]], Client | None]


def client_of(environment: Mapping[str, str]) -> Client | None:
    """A client with the job's token, of the GitHub that the job belongs to; None without a token. Raises
    `UsageError` for an address that is none."""
    token = environment.get("GITHUB_TOKEN", "")
    if not token:
        return None
    url = environment.get("GITHUB_API_URL") or "https://api.github.com"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"GITHUB_API_URL: {url[:200]!r} is no address such as https://ghe.example/api/v3")
    return Client(connect(token, url))


@dataclass(frozen=True)
class PublishOptions:
    """What the command line asks of `publish_report`. ``head`` is the head that a comment's order was about;
    ``fail_on`` stands for what settings and report name; ``accepted`` are cases and why each is accepted; ``settings``
    is the path of the base's settings file, whose findings have expired or not on the day ``today``."""

    wishes: Wishes = field(default_factory=Wishes)
    head: str = ""
    fail_on: tuple[VerdictKind, ...] = ()
    accepted: tuple[tuple[str, str], ...] = ()
    settings: str = SETTINGS_PATH
    today: date = field(default_factory=lambda: datetime.now(UTC).date())


def publish_report(
    path: Path,
    out: Path,
    options: PublishOptions,
    environment: Mapping[str, str],
    make_client: MakeClient = client_of,
) -> Published:
    """Publish the report at ``path`` and write its renderings to ``out``. The report itself stays as it is.

    Raises `UsageError` for a wrong event or option. A report that cannot be read is published as that. An acceptance
    that a comment orders and that cannot be is answered there, and nothing is published.
    """
    event = _with_head(read_event(environment), options.head)
    if not event.steps(Mode.PUBLISH):
        return Published(Conclusion.SKIPPED, lines=[f"Nothing to publish: {event.nothing}."])
    client = make_client(environment)
    result = _of_this_change(client, event, _result(path, event.ran))
    try:
        if result.report is not None:
            policy = read_policy(client, event, options.settings)
            result = Result(_settled(_judged(result.report, policy, options.today), options))
        elif options.accepted:
            raise UsageError(f"--accept: {result.problem}")
    except UsageError as error:
        if event.comment and client:
            _tell(client, event, code(str(error).removeprefix("--accept: "), 400))
        raise
    source = path / REPORT_NAME if path.is_dir() else path
    wishes = replace(options.wishes, page=_page(environment), home=_home(environment))
    try:
        return _publish(client, event, result, wishes, (source, out), environment)
    except RunError:
        raise
    except Exception as error:  # whatever a report makes of us, its check concludes
        if result.report is None:
            raise
        problem = f"it cannot be shown ({type(error).__name__}: {one_line(str(error))})"
        published = _publish(client, event, Result(None, problem), wishes, (source, out), environment)
        published.failures.append(f"The report: {plain(problem, 400)}.")
        return published


def _publish(
    client: Client | None,
    event: Event,
    result: Result,
    wishes: Wishes,
    files: tuple[Path, Path],
    environment: Mapping[str, str],
) -> Published:
    """``files`` are the report that was read, and the folder for what is made of it."""
    source, out = files
    report, summary = result.report, environment.get("GITHUB_STEP_SUMMARY", "")
    written: dict[str, Path] = {}
    trouble = ""
    try:
        written = write_reports(report, out, keep=source) if report else {}
        append_summary(summary, full_summary(report) if report else problem_text(result))
    except (OSError, RunError) as error:  # GitHub is told all the same
        trouble = f"Not all files were written: {error}."
    published = publish(client, event, result, wishes)
    if published.lines and not trouble:
        append_summary(summary, "\n".join(f"- {code(line, 400)}" for line in published.lines))
    if trouble:
        published.lines.append(trouble)
        published.failures.append(trouble)
    append_outputs(
        environment.get("GITHUB_OUTPUT", ""),
        {
            **(values_of(report) if report else {"counts": "{}", "regressions": "[]"}),
            "conclusion": published.conclusion.value,
            "problem": one_line(report.failure, 400) if report else result.problem,
            "check-url": published.check_url,
            "comment-url": published.comment_url,
            **{name.replace(".", "-"): str(path) for name, path in written.items()},
        },
    )
    return published


def conclude_cancelled(environment: Mapping[str, str], name: str, make_client: MakeClient = client_of) -> None:
    """Conclude the check of a job that is being ended: GitHub gives it some ten seconds, so this is one request."""
    event, client = read_event(environment), make_client(environment)
    if client is None:
        return
    client.patience = 2.0
    said = "the run was cancelled"
    create_check(
        client,
        event.repository,
        Check(
            name, event.sha, f"hfexport-bot-{event.run_id}", Conclusion.CANCELLED, said, f"{said}\n", _page(environment)
        ),
    )


def answer_comment(environment: Mapping[str, str], make_client: MakeClient = client_of) -> Order | None:
    """Read the comment of an ``issue_comment`` event and set the outputs that its order, if any, comes to.

    Raises `UsageError` for another event, `NotObeyed` for a command that is not carried out; a maintainer is told why
    in a comment.
    """
    event = read_event(environment)
    outputs = environment.get("GITHUB_OUTPUT", "")
    if event.comment is None:
        if not event.nothing:
            raise UsageError(f"this is a {event.name} event; comments come with issue_comment")
        append_outputs(outputs, {"command": ""})
        return None
    client = make_client(environment)
    if client is None:
        raise UsageError("there is no GITHUB_TOKEN, so nobody's permissions can be asked for")
    append = {"command": ""}
    try:
        order = take_order(client, event.repository, event.comment)
        if order is not None:
            append = order_outputs(order)
    except NotObeyed as reason:
        if reason.tell:
            _tell(client, event, str(reason))
        raise
    finally:
        append_outputs(outputs, append)
    return order


def order_outputs(order: Order) -> dict[str, str]:
    """An order as outputs of the job, for the jobs that carry it out."""
    command = order.command
    return {
        "command": command.action.value,
        "case": command.case,
        "reason": f"{command.reason} ({order.by})" if command.reason else "",
        "pull-request": str(order.number),
        "head-sha": order.sha,
        "head-repository": order.repository,
        "base-ref": order.base,
    }


#: Why there is no report of a run, by how it ended.
_WHY_NONE = {
    "skipped": "the run was skipped, so nothing was looked at; run it, or push to the pull request",
    "cancelled": "the run was cancelled before it could write one",
    "timed_out": "the run was ended at its time limit (timeout-minutes) before it could write one",
    "startup_failure": "the run could not start; see what GitHub says of its workflow file",
    "success": "the run ended well and left none; it uploads hfexport-out/report.json as hfexport-report",
}


def _result(path: Path, ran: str) -> Result:
    try:
        return Result(read_report(path))
    except NoReport as error:
        return Result(None, f"there is no {REPORT_NAME}: {_WHY_NONE[ran]}" if ran in _WHY_NONE else str(error))
    except UsageError as error:
        return Result(None, str(error))


def _of_this_change(client: Client | None, event: Event, result: Result) -> Result:
    """The result, unless its report is of another change than the event's pull request."""
    report, change = result.report, event.change
    if client is None or report is None or change is None:
        return result
    try:
        unasked = check_provenance(client, event.repository, report, change)
    except NotOfThisChange as reason:
        return Result(None, str(reason))
    if not unasked:
        return result
    note = f"it was not checked that this compares with the pull request's base: {plain(unasked, 300)}"
    return Result(report.model_copy(update={"notes": (*report.notes, note)}))


def _judged(claimed: Report, policy: Policy, today: date) -> Report:
    """The report with verdicts found here, and notes on what that did to it."""
    report = rejudged(claimed, policy.settings, today)
    notes = []
    if policy.problem:
        notes.append(f"judged by default settings, since the base's could not be read: {plain(policy.problem, 300)}")
    if other := differing(claimed, report):
        more = f" and {len(other) - _NAMED} more" if len(other) > _NAMED else ""
        named = ", ".join(map(str, other[:_NAMED]))
        notes.append(f"report.json has other verdicts, which its outcomes do not bear out: {named}{more}")
    return report.model_copy(update={"notes": (*report.notes, *notes)})


def _settled(report: Report, options: PublishOptions) -> Report:
    if options.fail_on:
        report = report.model_copy(update={"fail_on": options.fail_on})
    try:
        return accept(report, [AcceptedEntry(id=case, reason=reason) for case, reason in options.accepted])
    except ValidationError:
        raise UsageError("--accept needs a case and a reason, neither of them empty") from None
    except ValueError as error:
        raise UsageError(f"--accept: {error}") from None


def _with_head(event: Event, head: str) -> Event:
    """The event with the pull request that a comment stands under: its head is the one that the order was about."""
    if not head:
        if event.comment:
            raise UsageError("on issue_comment give --head, the head that the order was about")
        return event
    if event.comment is None:
        raise UsageError(f"--head is for issue_comment events; {event.name} names its own")
    if not SHA.fullmatch(head):
        raise UsageError(f"--head: {head[:80]!r} is no full commit id")
    return replace(event, sha=head, change=Origin(sha=head, repository="", number=event.comment.number))


def _page(environment: Mapping[str, str]) -> str:
    home, run = _home(environment), environment.get("GITHUB_RUN_ID", "")
    return f"{home}/actions/runs/{run}" if home and run else ""


def _home(environment: Mapping[str, str]) -> str:
    server, repository = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_REPOSITORY", "")
    return f"{server}/{repository}" if server and repository else ""


def _tell(client: Client, event: Event, reason: str) -> None:
    """Answer a comment; where even that fails, the job's log is all there is."""
    if event.comment is None:
        return
    marker = f"<!-- hfexport-bot:answer {event.comment.id} -->"
    body = f"{marker}\n@{event.comment.author}: not done, since {reason}"
    path = f"/repos/{event.repository}/issues/{event.comment.number}/comments"

    def find() -> Comment | None:
        return next((each for each in client.pages(path, Comment) if (each.body or "").startswith(marker)), None)

    try:
        client.once("POST", path, {"body": body}, Comment, find)
    except GitHubError:
        return
