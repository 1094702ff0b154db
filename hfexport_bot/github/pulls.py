"""Which pull request a result belongs to: found by its head, refused when in doubt."""

from __future__ import annotations

from dataclasses import dataclass, field

from hfexport_bot.github.answers import Pull
from hfexport_bot.github.client import Client, Parameters
from hfexport_bot.github.event import Origin


class NoPullRequest(Exception):
    """There is no pull request to write to. The message is why, in one line."""


@dataclass(frozen=True)
class PullRequest:
    """An open pull request at one head. ``target`` is the branch that it is to be merged into, ``base`` a commit of it:
    both may move on."""

    number: int
    sha: str
    repository: str
    branch: str
    base: str = field(compare=False)
    target: str = field(compare=False)


def find_pull_request(client: Client, repository: str, change: Origin) -> PullRequest:
    """The open pull request of ``repository`` whose head is ``change``.

    Raises `NoPullRequest` when there is none (any more), when its head has moved on, and when there are several.
    """
    if change.number is None and not change.repository:
        raise NoPullRequest("the repository that it comes from is gone")
    if change.number is not None:
        found = [_open(client.get(f"/repos/{repository}/pulls/{change.number}", Pull))]
    else:
        asked: Parameters = {"state": "open"}
        if change.branch:
            asked = {**asked, "head": f"{change.repository.partition('/')[0]}:{change.branch}"}
        found = [_open(each) for each in client.pages(f"/repos/{repository}/pulls", Pull, asked)]
    theirs = [each for each in found if each is not None and _same_repository(each, change)]
    if not theirs:
        raise NoPullRequest("it belongs to no open pull request")
    current = [each for each in theirs if each.sha == change.sha]
    if not current:
        raise NoPullRequest(f"the pull request has moved on to {theirs[0].sha[:7]}, this is of {change.sha[:7]}")
    if len(current) > 1:
        numbers = " and ".join(f"#{each.number}" for each in current)
        raise NoPullRequest(f"{numbers} have the same head, so it is not clear which one it belongs to")
    return current[0]


def is_current(client: Client, repository: str, pull: PullRequest) -> bool:
    """Whether a pull request is still open and at its head. To be asked right before writing to it."""
    return _open(client.get(f"/repos/{repository}/pulls/{pull.number}", Pull)) == pull


def _same_repository(pull: PullRequest, change: Origin) -> bool:
    if change.number is not None and not change.repository:
        return True
    return pull.repository.lower() == change.repository.lower()


def _open(pull: Pull) -> PullRequest | None:
    """What counts of a pull request; None for one that is closed."""
    if pull.state != "open":
        return None
    home = pull.head.repo.full_name if pull.head.repo else ""
    return PullRequest(pull.number, pull.head.sha, home, pull.head.ref, pull.base.sha, pull.base.ref)
