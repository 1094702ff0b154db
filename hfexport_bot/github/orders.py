"""Commands in comments: ``/export run``, ``/export full``, ``/export accept CASE reason``, by maintainers only.

Whether a comment is one is pure; who wrote it and what the pull request's head was then is asked of GitHub.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from hfexport_bot.errors import UsageError
from hfexport_bot.github.answers import Activity, Head, Permission, Pull, Repository
from hfexport_bot.github.client import Client, GitHubError
from hfexport_bot.github.event import Comment
from hfexport_bot.reporting.text import one_line, plain

PREFIX = "/export"
USAGE = f"write `{PREFIX} run`, `{PREFIX} full`, or `{PREFIX} accept CASE reason`"
_PATTERN = re.compile(r"(?=.{1,300}$)[\w.\-*?+@\[\]!]+(/[\w.\-*?+@\[\]!]+)*")
_MAY_ORDER = frozenset({"admin", "write"})  # GitHub tells `maintain` as write here, and `triage` as read


class Action(StrEnum):
    """What a comment can ask for."""

    RUN = "run"  # run the check again
    FULL = "full"  # run every affected class, without a limit on their number or on time
    ACCEPT = "accept"  # accept a regression of this head


@dataclass(frozen=True)
class Command:
    """What a comment asks for. ``case`` is a glob over case ids, ``reason`` why; both of ``accept`` only."""

    action: Action
    case: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Order:
    """A command of somebody who may give it, and the head it is about. ``base`` is the branch to merge into."""

    command: Command
    by: str
    number: int
    sha: str
    repository: str
    base: str


class NotObeyed(Exception):
    """A command that is not carried out. The message is why, in one line; ``tell`` is whether its author may know it in
    a comment, which those who may not give commands don't."""

    def __init__(self, message: str, tell: bool) -> None:
        super().__init__(message)
        self.tell = tell


def parse_command(body: str) -> Command | None:
    """The command that a comment's first line is; None where it is none. Raises `UsageError` for one that begins as a
    command does and is wrong."""
    lines = body.strip().splitlines()
    words = lines[0].split() if lines else []
    if not words or not _begins(words[0]):
        return None
    if any(_begins(first) for line in lines[1:] for first in line.split()[:1]):
        raise UsageError("a comment can give one order only, and this one has more; write each in a comment of its own")
    if len(words) == 1:
        raise UsageError(f"{PREFIX} alone asks for nothing; {USAGE}")
    name, rest = words[1].lower(), words[2:]
    if name not in {each.value for each in Action}:
        close = difflib.get_close_matches(name, [each.value for each in Action], n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"there is no command {plain(name, 40)!r}; {hint}{USAGE}")
    action = Action(name)
    if action is not Action.ACCEPT:
        if rest:
            raise UsageError(f"{PREFIX} {action} takes nothing more; {USAGE}")
        return Command(action)
    if len(rest) < 2:
        raise UsageError(f"{PREFIX} accept needs a case and the reason why it is accepted; {USAGE}")
    case = rest[0].strip("`")  # as a report shows it
    if not _PATTERN.fullmatch(case):
        raise UsageError(f"{plain(rest[0], 80)!r} is no case id, such as bert/BertModel/onnx/dynamic/forward")
    return Command(action, case, one_line(" ".join(rest[1:]), 300))


def _begins(word: str) -> bool:
    return word.lower() == PREFIX


def take_order(client: Client, repository: str, comment: Comment) -> Order | None:
    """The order that a comment gives, or None for an ordinary comment.

    Raises `NotObeyed` where its author may not give any, where it is wrong, and where the pull request may have got
    other commits since it was written: whoever wrote it has not seen those.
    """
    if not comment.body.strip().lower().startswith(PREFIX):
        return None
    problem, command = "", None
    try:
        command = parse_command(comment.body)
    except UsageError as error:
        problem = str(error)
    if command is None and not problem:
        return None
    if not _may_order(client, repository, comment.author):
        raise NotObeyed(f"{plain(comment.author, 60)} may not write to {repository}", tell=False)
    if command is None:
        raise NotObeyed(problem, tell=True)
    pull = client.get(f"/repos/{repository}/pulls/{comment.number}", Pull)
    if pull.state != "open":
        raise NotObeyed("the pull request is closed", tell=True)
    head = pull.head
    if head.repo is None:
        raise NotObeyed("the repository that the pull request comes from is gone", tell=True)
    if not _unchanged_since(client, head, head.repo, comment.written):
        raise NotObeyed(
            f"the pull request may have changed since the comment; look at {head.sha[:7]} and write it again",
            tell=True,
        )
    return Order(command, comment.author, comment.number, head.sha, head.repo.full_name, pull.base.ref)


def _may_order(client: Client, repository: str, login: str) -> bool:
    try:
        answer = client.get(f"/repos/{repository}/collaborators/{login}/permission", Permission)
    except GitHubError as error:
        if error.status == 404:  # nobody, or no user, such as an app
            return False
        raise
    return answer.permission in _MAY_ORDER


def _unchanged_since(client: Client, head: Head, home: Repository, written: datetime) -> bool:
    """Whether a pull request's branch was last pushed before a time. Only GitHub's own times count: those of commits
    are their author's to choose. Where that cannot be told, it counts as changed."""
    if home.pushed_at is not None and home.pushed_at < written:
        return True
    # Something was pushed to that repository since; it may be another branch.
    asked = {"ref": f"refs/heads/{head.ref}", "direction": "desc"}
    try:
        last = next(iter(client.pages(f"/repos/{home.full_name}/activity", Activity, asked)), None)
    except GitHubError:
        return False
    return last is not None and last.after == head.sha and last.timestamp < written
