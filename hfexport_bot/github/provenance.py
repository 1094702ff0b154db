"""Whether a report is of the pull request that it is published for: of its head, compared with its base.

It finds mix-ups, and a base that was chosen to look good. What was measured on either side cannot be checked here.
"""

from __future__ import annotations

from urllib.parse import quote

from hfexport_bot.github.answers import Commit, Comparison
from hfexport_bot.github.client import Client, GitHubError
from hfexport_bot.github.event import SHA, Origin
from hfexport_bot.github.pulls import NoPullRequest, find_pull_request
from hfexport_bot.reporting.text import plain
from hfexport_bot.schema import Report

#: How GitHub answers where it does not have a commit (any more).
_UNKNOWN = (404, 409, 422)


class NotOfThisChange(Exception):
    """A report that says nothing of the pull request. The message is why, in one line."""


def check_provenance(client: Client, repository: str, report: Report, change: Origin) -> str:
    """Raise `NotOfThisChange` unless a report compares the pull request's head, or a merge of it, with what it is to be
    merged into. Returns why GitHub could not be asked, empty where it could.

    A report of a run that failed before it knew its base has none, and no verdicts either.
    """
    base, head = report.base.sha if report.base else "", report.head.sha
    if report.command != "run":
        raise NotOfThisChange(
            f"report.json is of {report.command}, which compares nothing with a pull request's base; publish one of run"
        )
    if not base and not report.failure:
        raise NotOfThisChange("report.json names no commit that it compares with, so it says nothing of the change")
    if base and base in (head, change.sha):
        raise NotOfThisChange(f"report.json compares with {base[:12]}, which has the change, so it says nothing of it")
    try:
        parents = _parents(client, repository, head, change)
        if base:
            _check_base(client, repository, base, head, parents, change)
    except (GitHubError, NoPullRequest) as error:
        return str(error)
    return ""


def _parents(client: Client, repository: str, sha: str, change: Origin) -> tuple[str, ...]:
    """The parents of a report's head where that is a merge of ``change`` into another; empty for the head itself, and
    where GitHub does not have the commit any more."""
    if sha == change.sha:
        return ()
    named = plain(sha[:12]) or "no commit"
    refusal = NotOfThisChange(f"report.json is of {named}, not of {change.sha[:12]} or a merge of it")
    if not SHA.fullmatch(sha):  # it came from the untrusted side, and becomes part of an address
        raise refusal
    try:
        commit = client.get(f"/repos/{repository}/commits/{sha}", Commit)
    except GitHubError as error:
        if error.status in _UNKNOWN:
            return ()
        raise
    parents = tuple(parent.sha for parent in commit.parents)
    if change.sha not in parents:
        raise refusal
    return parents


def _check_base(
    client: Client, repository: str, base: str, head: str, parents: tuple[str, ...], change: Origin
) -> None:
    if parents and base != parents[0]:
        raise NotOfThisChange(
            f"report.json compares with {base[:12]}, not with the first parent of the merge {head[:12]}, "
            f"{parents[0][:12]}"
        )
    pull = find_pull_request(client, repository, change)
    # The branch may have moved on since the run; GitHub also has a commit of it for the pull request.
    common = _merge_base(client, repository, pull.target, change.sha)
    if base == common or base == _merge_base(client, repository, pull.base, change.sha):
        return
    if head == change.sha:
        raise NotOfThisChange(
            f"report.json compares with {base[:12]}, not with the merge base of the pull request and "
            f"{plain(pull.target)}, {common[:12]}"
        )
    if not any(_is_ancestor(client, repository, base, commit) for commit in (pull.target, pull.base)):
        raise NotOfThisChange(
            f"report.json compares with {base[:12]}, which is no commit of {plain(pull.target)}, what the pull request "
            "is to be merged into"
        )


def _is_ancestor(client: Client, repository: str, sha: str, of: str) -> bool:
    try:
        return _merge_base(client, repository, sha, of) == sha
    except GitHubError as error:
        if error.status in _UNKNOWN:  # there is no such commit, or nothing in common
            return False
        raise


def _merge_base(client: Client, repository: str, base: str, head: str) -> str:
    path = f"/repos/{repository}/compare/{quote(base, safe='')}...{quote(head, safe='')}"
    return client.get(path, Comparison, {"per_page": 1}).merge_base_commit.sha
