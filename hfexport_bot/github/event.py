"""What GitHub started this job for: which revisions to compare, and whom to tell.

Everything here comes from GitHub itself, never from what code under test wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from hfexport_bot.errors import UsageError

#: GitHub's own limit for an event is 25 MB.
MAX_EVENT_BYTES = 32 << 20

#: A full commit id.
SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_DEPENDABOT = "dependabot[bot]"
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")


class Mode(StrEnum):
    """What a job is asked to do. ``auto`` is what suits the event."""

    AUTO = "auto"
    RUN = "run"
    PUBLISH = "publish"


class Step(StrEnum):
    """One thing to do, in this order."""

    COMMAND = "command"  # read a comment that may be a command
    RUN = "run"  # untrusted: runs the change's own code
    PUBLISH = "publish"  # trusted: writes to the pull request and its checks


@dataclass(frozen=True)
class Origin:
    """Where a change lives: its head commit, and the branch and repository that has it (empty for a fork that is gone).
    ``number`` is the pull request that GitHub's event itself names; None where it has to be found."""

    sha: str
    repository: str
    branch: str = ""
    number: int | None = None


@dataclass(frozen=True)
class Comment:
    """A new comment on a pull request. ``written`` is its time, as GitHub has it."""

    id: int
    body: str
    author: str
    written: datetime
    number: int


@dataclass(frozen=True)
class Event:
    """An event. ``base`` and ``head`` are revisions for git to compare, empty where the event names none; ``sha`` is
    the commit that a check belongs to; ``change`` is the pull request's head, where there is one.

    ``run_id`` names the run that this event's results are of, ``ran`` is how that one ended (of ``workflow_run`` only,
    otherwise empty), ``limited`` is why the token may have no right to write, ``nothing`` why there is nothing to do.
    ``others`` are revisions to compare with where ``base`` is not to be had.
    """

    name: str
    repository: str
    sha: str
    base: str = ""
    head: str = ""
    change: Origin | None = None
    comment: Comment | None = None
    run_id: str = ""
    ran: str = ""
    limited: str = ""
    nothing: str = ""
    others: tuple[str, ...] = ()

    def steps(self, mode: Mode) -> tuple[Step, ...]:
        """What to do. Raises `UsageError` where this event must not do what is asked for."""
        if self.nothing:
            return ()
        if mode is not Mode.PUBLISH and self.name == "pull_request_target":
            raise UsageError(
                "pull_request_target gives its jobs a token that may write and the repository's secrets, so a change's "
                "own code must not run there; run it on pull_request, and publish on workflow_run"
            )
        if self.name == "workflow_run":
            if mode is Mode.RUN:
                raise UsageError(
                    "workflow_run gives its jobs a token that may write, so a change's own code must not run there; "
                    "use mode publish here, and run on pull_request"
                )
            return (Step.PUBLISH,)
        if mode is Mode.AUTO:
            return (Step.COMMAND,) if self.comment else (Step.RUN, Step.PUBLISH)
        return (Step(mode.value),)


def read_event(environment: Mapping[str, str]) -> Event:
    """Read the event that ``GITHUB_EVENT_NAME`` and ``GITHUB_EVENT_PATH`` name. Raises `UsageError` for one that is
    missing, broken, or that there is no use for."""
    name = environment.get("GITHUB_EVENT_NAME", "")
    if not name:
        raise UsageError("GITHUB_EVENT_NAME is not set; this command is for a GitHub Actions job")
    if name not in _READERS:
        raise UsageError(f"nothing to do on {name!r} events; use one of {', '.join(sorted(_READERS))}")
    repository = environment.get("GITHUB_REPOSITORY", "")
    if not _REPOSITORY.fullmatch(repository):
        raise UsageError(f"GITHUB_REPOSITORY must be OWNER/NAME, not {repository!r}")
    return _READERS[name](_Payload(name, _load(environment.get("GITHUB_EVENT_PATH", ""))), repository, environment)


def _load(path: str) -> Any:
    if not path:
        raise UsageError("GITHUB_EVENT_PATH is not set; it names the file with the event")
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_EVENT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"GITHUB_EVENT_PATH: {path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_EVENT_BYTES:
        raise UsageError(f"GITHUB_EVENT_PATH: {path} is longer than {MAX_EVENT_BYTES >> 20} MiB: no event of GitHub's")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"GITHUB_EVENT_PATH: {path} is no JSON") from None


@dataclass(frozen=True)
class _Payload:
    """An event's content, asked for by path; each wrong answer is one clear error."""

    name: str
    content: Any

    def maybe(self, path: str) -> Any:
        found = self.content
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def text(self, path: str) -> str:
        found = self.maybe(path)
        if not isinstance(found, str) or not found:
            raise UsageError(f"the {self.name} event has no {path}; is GITHUB_EVENT_PATH the event of this job?")
        return found

    def number(self, path: str) -> int:
        found = self.maybe(path)
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise UsageError(f"the {self.name} event has no {path}; is GITHUB_EVENT_PATH the event of this job?")
        return found

    def time(self, path: str) -> datetime:
        try:
            found = datetime.fromisoformat(self.text(path))
        except ValueError:
            raise UsageError(f"the {self.name} event's {path} is no time") from None
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    def sha(self, path: str) -> str:
        return _checked_sha(self.text(path), f"the {self.name} event's {path}")


def _checked_sha(sha: str, what: str) -> str:
    if not SHA.fullmatch(sha):
        raise UsageError(f"{what} is no commit: {sha[:80]!r}")
    return sha


def _job_sha(environment: Mapping[str, str]) -> str:
    return _checked_sha(environment.get("GITHUB_SHA", ""), "GITHUB_SHA")


def _run_id(environment: Mapping[str, str]) -> str:
    return f"{environment.get('GITHUB_RUN_ID', '')}-{environment.get('GITHUB_RUN_ATTEMPT', '1')}"


def _home(payload: _Payload, path: str) -> str:
    """The repository that a change lives in; empty for a fork that is gone."""
    found = payload.maybe(path)
    return found if isinstance(found, str) else ""


def _pull_request(payload: _Payload, repository: str, environment: Mapping[str, str]) -> Event:
    change = Origin(
        sha=payload.sha("pull_request.head.sha"),
        repository=_home(payload, "pull_request.head.repo.full_name"),
        branch=payload.text("pull_request.head.ref"),
        number=payload.number("pull_request.number"),
    )
    limited = ""
    if change.repository.lower() != repository.lower():
        limited = "a fork's pull request"
    elif _DEPENDABOT in (environment.get("GITHUB_ACTOR"), payload.maybe("pull_request.user.login")):
        limited = "a pull request of Dependabot's"
    # The commit under test is GitHub's merge of both: its first parent is the base as it is now.
    merge = _job_sha(environment) if payload.name == "pull_request" else ""
    return Event(
        name=payload.name,
        repository=repository,
        sha=change.sha,
        base=f"{merge}^1" if merge else payload.sha("pull_request.base.sha"),
        head=merge or change.sha,
        change=change,
        run_id=_run_id(environment),
        limited=limited,
        nothing="the pull request is closed" if payload.maybe("action") == "closed" else "",
    )


def _push(payload: _Payload, repository: str, environment: Mapping[str, str]) -> Event:
    before, after = payload.sha("before"), payload.sha("after")
    gone = payload.maybe("deleted") is True or not after.strip("0")
    base = before
    default = payload.text("repository.default_branch")
    others = () if payload.maybe("ref") == f"refs/heads/{default}" else (f"origin/{default}",)
    if not before.strip("0"):  # the branch is new
        base = next(iter(others), "")
    return Event(
        name=payload.name,
        repository=repository,
        sha=after,
        base=base,
        head=after,
        run_id=_run_id(environment),
        limited="a push of Dependabot's" if environment.get("GITHUB_ACTOR") == _DEPENDABOT else "",
        nothing="the push removed its branch" if gone else "",
        others=(*others, f"{after}^1"),
    )


def _merge_group(payload: _Payload, repository: str, environment: Mapping[str, str]) -> Event:
    head = payload.sha("merge_group.head_sha")
    return Event(
        name=payload.name,
        repository=repository,
        sha=head,
        base=payload.sha("merge_group.base_sha"),
        head=head,
        run_id=_run_id(environment),
        nothing="the merge group is gone" if payload.maybe("action") == "destroyed" else "",
    )


def _on_demand(payload: _Payload, repository: str, environment: Mapping[str, str]) -> Event:
    sha = _job_sha(environment)
    return Event(name=payload.name, repository=repository, sha=sha, head=sha, run_id=_run_id(environment))


#: Why a run that is over has nothing to publish, by its conclusion.
_NOT_RUN = {"action_required": "the run waits for a maintainer's approval"}


def _workflow_run(payload: _Payload, repository: str, environment: Mapping[str, str]) -> Event:
    ran = payload.maybe("workflow_run.conclusion")
    sha = payload.sha("workflow_run.head_sha")
    change = None
    if payload.text("workflow_run.event") == "pull_request":
        branch = payload.maybe("workflow_run.head_branch")
        change = Origin(
            sha=sha,
            repository=_home(payload, "workflow_run.head_repository.full_name"),
            branch=branch if isinstance(branch, str) else "",
        )
    attempt = payload.number("workflow_run.run_attempt")
    return Event(
        name=payload.name,
        repository=repository,
        sha=sha,
        change=change,
        run_id=f"{payload.number('workflow_run.id')}-{attempt}",
        ran=ran if isinstance(ran, str) else "",
        nothing=_NOT_RUN.get(ran, "") if ran else "the run is not over; use `types: [completed]`",
    )


def _issue_comment(payload: _Payload, repository: str, environment: Mapping[str, str]) -> Event:
    nothing = ""
    if not isinstance(payload.maybe("issue.pull_request"), dict):
        nothing = "the comment is on an issue, not on a pull request"
    elif payload.text("action") != "created":
        nothing = "only new comments count, not edited or deleted ones"
    comment = None
    if not nothing:
        body = payload.maybe("comment.body")
        comment = Comment(
            id=payload.number("comment.id"),
            body=body if isinstance(body, str) else "",
            author=payload.text("comment.user.login"),
            written=payload.time("comment.created_at"),
            number=payload.number("issue.number"),
        )
    return Event(
        name=payload.name,
        repository=repository,
        sha=_job_sha(environment),
        comment=comment,
        run_id=_run_id(environment),
        nothing=nothing,
    )


_READERS: dict[str, Callable[[_Payload, str, Mapping[str, str]], Event]] = {
    "pull_request": _pull_request,
    "pull_request_target": _pull_request,
    "push": _push,
    "merge_group": _merge_group,
    "workflow_dispatch": _on_demand,
    "schedule": _on_demand,
    "workflow_run": _workflow_run,
    "issue_comment": _issue_comment,
}
