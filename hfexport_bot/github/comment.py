"""The one comment on a pull request: whether there is something to say, what, and keeping it the only one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hfexport_bot.github.answers import Comment, User
from hfexport_bot.github.client import Client, GitHubError, NotFound
from hfexport_bot.reporting.expectations import to_heed
from hfexport_bot.reporting.markdown import MAX_CHARS, render
from hfexport_bot.reporting.summary import headline
from hfexport_bot.schema import Report
from hfexport_bot.verdicts.compare import cases_to_act_on, is_accepted_change

_MARKER = re.compile(r"<!-- hfexport-bot:(?P<key>[a-z0-9-]+) (?P<digest>[0-9a-f]{16}) -->")
_FOOTER_ROOM = 1_000


class CommentWhen(StrEnum):
    """When a pull request gets a comment."""

    ON_FINDING = "on-finding"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True)
class Body:
    """A comment to be: its text without the marker, what tells it from another, and whether it is worth a comment of
    its own, or only an edit of one that is there."""

    text: str
    digest: str
    wanted: bool


@dataclass(frozen=True)
class Written:
    """What became of a comment: ``done`` is ``created``, ``edited``, ``unchanged`` or ``not needed``."""

    done: str
    url: str = ""


def make_body(report: Report, when: CommentWhen, footer: str) -> Body:
    """The comment on a report; with nothing to act on, one that says that earlier findings are resolved, or which of
    them are accepted."""
    wanted = when is CommentWhen.ALWAYS or bool(report.failure or cases_to_act_on(report) or to_heed(report))
    say = _found if wanted or any(map(is_accepted_change, report.cases)) else _resolved
    # How long it took is no news: two runs of one commit never take the same time.
    news = say(report.model_copy(update={"seconds": 0.0}))
    return Body(f"{say(report)}\n{footer[:_FOOTER_ROOM]}", _digest_of(news), wanted)


def make_body_without(text: str, when: CommentWhen, footer: str) -> Body:
    """The comment where there is no report: an earlier one says what may be true no longer, so it is edited."""
    return Body(f"{text}\n{footer[:_FOOTER_ROOM]}", _digest_of(text), when is CommentWhen.ALWAYS)


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _found(report: Report) -> str:
    return render(report, MAX_CHARS - _FOOTER_ROOM)


def _resolved(report: Report) -> str:
    return f"## Export check: resolved\n\nNothing to act on any more: {headline(report)}\n"


def keep_one_comment(
    client: Client,
    repository: str,
    number: int,
    key: str,
    body: Body,
    author: str,
    check: Callable[[], None] = lambda: None,
) -> Written:
    """Write ``body`` to the comment of ``author``'s that has the marker ``key``, or to a new one where it is wanted.

    Nothing is written where it says the same already. Older ones of the same author and key are deleted. ``check`` is
    called right before something is written, to raise where that is no longer right.
    """
    comments = f"/repos/{repository}/issues/comments"
    text = f"<!-- hfexport-bot:{key} {body.digest} -->\n{body.text}"
    older = _marked(client, repository, number, key, author)
    written: Written | None = None
    while older and written is None:
        newest = older.pop()
        if _digest(newest, key) == body.digest:
            written = Written("unchanged", newest.html_url)
            continue
        check()
        try:
            edited = client.patch(f"{comments}/{newest.id}", {"body": text}, Comment)
            written = Written("edited", edited.html_url)
        except NotFound:  # somebody deleted it just now
            continue
    if written is None and body.wanted:
        check()
        created = _create(client, repository, number, key, text, author)
        written = Written("created", created.html_url)
        if created.author not in ("", author):  # we took ourselves for another
            every = _marked(client, repository, number, key, created.author)
            older = [each for each in every if each.id != created.id]
    for each in older:
        client.delete(f"{comments}/{each.id}")
    return written or Written("not needed")


def _create(client: Client, repository: str, number: int, key: str, text: str, author: str) -> Comment:
    def find() -> Comment | None:
        # There was none before, so one that is there now is this one.
        return next(iter(_marked(client, repository, number, key, author)), None)

    return client.once("POST", f"/repos/{repository}/issues/{number}/comments", {"body": text}, Comment, find)


def whoami(client: Client, app: str) -> str:
    """The login that comments of this token have. ``app`` is the short name of the token's app, where it is known."""
    if app:
        return f"{app}[bot]"
    try:
        login = client.get("/user", User).login
    except GitHubError as error:
        if error.status not in (403, 404):
            raise
        return "github-actions[bot]"  # an app's token may not ask, and a job's own token is that app's
    return login


def _marked(client: Client, repository: str, number: int, key: str, author: str) -> list[Comment]:
    """The author's comments with our marker, the oldest first."""
    every = client.pages(f"/repos/{repository}/issues/{number}/comments", Comment)
    mine = [each for each in every if each.author == author and _digest(each, key)]
    return sorted(mine, key=lambda each: each.id)


def _digest(comment: Comment, key: str) -> str:
    """The digest in a comment's marker; empty for one without."""
    found = _MARKER.match(comment.body or "")
    return found["digest"] if found and found["key"] == key else ""
