"""What each event of GitHub's asks for. The payloads are the smallest that GitHub's own description allows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.errors import UsageError
from hfexport_bot.github.event import Comment, Event, Mode, Origin, Step, read_event
from tests.hfexport_bot.github.payloads import event

REPOSITORY = "octo/zoo"
HEAD, MERGE, BASE = "a" * 40, "b" * 40, "c" * 40
ZEROS = "0" * 40
WORKFLOW_RUN: dict[str, Any] = {
    "action": "completed",
    "workflow_run": {
        "id": 77,
        "run_attempt": 2,
        "event": "pull_request",
        "head_sha": HEAD,
        "head_branch": "topic",
        "head_repository": {"full_name": "fork/zoo"},
        "conclusion": "success",
        "pull_requests": [],
    },
}
COMMENT: dict[str, Any] = {
    "action": "created",
    "issue": {"number": 7, "pull_request": {}},
    "comment": {"id": 5, "body": "/export run", "created_at": "2026-11-30T12:00:00Z", "user": {"login": "ada"}},
}


def pull_request(head: str | None = REPOSITORY, action: str = "synchronize") -> Any:
    repo = {"full_name": head} if head else None
    values = {
        "action": action,
        "number": 7,
        "pull_request": {
            "number": 7,
            "head": {"sha": HEAD, "ref": "topic", "repo": repo},
            "base": {"sha": BASE},
            "user": {"login": "ada"},
        },
    }
    return event("pull-request-synchronize", values)


def read(tmp_path: Path, name: str, payload: Any, **more: str) -> Event:
    file = tmp_path / "event.json"
    file.write_text(payload if isinstance(payload, str) else json.dumps(payload))
    environment = {
        "GITHUB_EVENT_NAME": name,
        "GITHUB_EVENT_PATH": str(file),
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_SHA": MERGE,
        "GITHUB_RUN_ID": "99",
        "GITHUB_RUN_ATTEMPT": "1",
    }
    return read_event(environment | more)


def test_a_pull_request_is_compared_as_it_would_be_merged(tmp_path: Path) -> None:
    found = read(tmp_path, "pull_request", pull_request())
    assert (found.base, found.head, found.sha) == (f"{MERGE}^1", MERGE, HEAD)
    assert found.change == Origin(HEAD, REPOSITORY, "topic", 7)
    assert found.limited == ""
    assert found.run_id == "99-1"


@pytest.mark.parametrize(
    ("head", "actor", "limited"),
    [
        ("fork/zoo", "ada", "a fork's pull request"),
        (None, "ada", "a fork's pull request"),
        ("Octo/Zoo", "ada", ""),
        (REPOSITORY, "dependabot[bot]", "a pull request of Dependabot's"),
    ],
)
def test_who_gets_a_token_that_only_reads(tmp_path: Path, head: str | None, actor: str, limited: str) -> None:
    assert read(tmp_path, "pull_request", pull_request(head), GITHUB_ACTOR=actor).limited == limited


def test_a_push_of_dependabots_gets_a_token_that_only_reads(tmp_path: Path) -> None:
    assert read(tmp_path, "push", push(BASE), GITHUB_ACTOR="ada").limited == ""
    assert read(tmp_path, "push", push(BASE), GITHUB_ACTOR="dependabot[bot]").limited == "a push of Dependabot's"


def test_a_closed_pull_request_is_nothing_to_do(tmp_path: Path) -> None:
    found = read(tmp_path, "pull_request", pull_request(action="closed"))
    assert found.nothing == "the pull request is closed"
    assert found.steps(Mode.AUTO) == ()


def push(before: str, after: str = HEAD, ref: str = "refs/heads/topic", deleted: bool = False) -> Any:
    values = {
        "before": before,
        "after": after,
        "ref": ref,
        "deleted": deleted,
        "repository": {"default_branch": "main"},
    }
    return event("push", values)


@pytest.mark.parametrize(
    ("payload", "base"),
    [
        (push(BASE), BASE),
        (push(ZEROS), "origin/main"),
        (push(ZEROS, ref="refs/heads/main"), ""),
    ],
)
def test_a_push_is_compared_with_what_was_there(tmp_path: Path, payload: Any, base: str) -> None:
    found = read(tmp_path, "push", payload)
    assert (found.base, found.head, found.sha, found.change) == (base, HEAD, HEAD, None)


def test_a_removed_branch_is_nothing_to_do(tmp_path: Path) -> None:
    assert read(tmp_path, "push", push(BASE, ZEROS, deleted=True)).nothing == "the push removed its branch"


def test_a_merge_group(tmp_path: Path) -> None:
    values = {"merge_group": {"head_sha": HEAD, "base_sha": BASE}}
    found = read(tmp_path, "merge_group", event("merge-group-checks-requested", values))
    assert (found.base, found.head, found.sha, found.change) == (BASE, HEAD, HEAD, None)


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("workflow_dispatch", event("workflow-dispatch", {"inputs": None})),
        ("schedule", {"schedule": "0 3 * * *"}),
    ],
)
def test_what_is_started_without_a_change_names_no_base(tmp_path: Path, name: str, payload: Any) -> None:
    found = read(tmp_path, name, payload)
    assert (found.base, found.head, found.sha, found.change) == ("", MERGE, MERGE, None)


def test_a_finished_run_names_the_head_of_its_pull_request_and_no_number(tmp_path: Path) -> None:
    found = read(tmp_path, "workflow_run", event("workflow-run-completed", WORKFLOW_RUN))
    assert found.change == Origin(HEAD, "fork/zoo", "topic", None)
    assert (found.sha, found.run_id, found.ran, found.base) == (HEAD, "77-2", "success", "")


def test_a_finished_run_of_a_fork_that_is_gone(tmp_path: Path) -> None:
    payload = {"workflow_run": WORKFLOW_RUN["workflow_run"] | {"head_repository": None}}
    assert read(tmp_path, "workflow_run", payload).change == Origin(HEAD, "", "topic", None)


def test_a_finished_run_of_a_push_has_no_pull_request(tmp_path: Path) -> None:
    run = WORKFLOW_RUN["workflow_run"] | {"event": "push"}
    found = read(tmp_path, "workflow_run", event("workflow-run-completed", {"workflow_run": run}))
    assert (found.change, found.sha) == (None, HEAD)


def test_a_run_that_is_not_over_is_nothing_to_publish(tmp_path: Path) -> None:
    run = WORKFLOW_RUN["workflow_run"] | {"conclusion": None}
    payload = event("workflow-run-completed", {"action": "completed", "workflow_run": run})
    assert "types: [completed]" in read(tmp_path, "workflow_run", payload).nothing


def test_a_comment_on_a_pull_request(tmp_path: Path) -> None:
    found = read(tmp_path, "issue_comment", event("issue-comment-created", COMMENT))
    assert found.comment == Comment(5, "/export run", "ada", datetime(2026, 11, 30, 12, tzinfo=UTC), 7)
    assert found.change is None


@pytest.mark.parametrize(
    ("change", "nothing"),
    [
        ({"issue": {"number": 7}}, "the comment is on an issue, not on a pull request"),
        ({"action": "edited"}, "only new comments count, not edited or deleted ones"),
    ],
)
def test_other_comments_are_nothing(tmp_path: Path, change: dict[str, Any], nothing: str) -> None:
    found = read(tmp_path, "issue_comment", event("issue-comment-created", COMMENT) | change)
    assert (found.comment, found.nothing) == (None, nothing)


RUN, PUBLISH, COMMAND = (Step.RUN,), (Step.PUBLISH,), (Step.COMMAND,)


@pytest.mark.parametrize(
    ("name", "payload", "auto", "run"),
    [
        ("pull_request", pull_request(), RUN + PUBLISH, RUN),
        ("push", push(BASE), RUN + PUBLISH, RUN),
        ("schedule", {}, RUN + PUBLISH, RUN),
        ("workflow_run", event("workflow-run-completed", WORKFLOW_RUN), PUBLISH, None),
        ("pull_request_target", pull_request(), None, None),
        ("issue_comment", event("issue-comment-created", COMMENT), COMMAND, RUN),
    ],
)
def test_what_an_event_asks_for(
    tmp_path: Path, name: str, payload: Any, auto: tuple[Step, ...] | None, run: tuple[Step, ...] | None
) -> None:
    found = read(tmp_path, name, payload)
    for mode, steps in ((Mode.AUTO, auto), (Mode.RUN, run), (Mode.PUBLISH, PUBLISH)):
        if steps is None:
            with pytest.raises(UsageError, match=f"{name} gives its jobs a token that may write"):
                found.steps(mode)
        else:
            assert found.steps(mode) == steps


@pytest.mark.parametrize(
    ("name", "payload", "more", "said"),
    [
        ("", {}, {}, "GITHUB_EVENT_NAME is not set"),
        ("release", {}, {}, "nothing to do on 'release' events; use one of issue_comment, merge_group"),
        ("push", {}, {}, "the push event has no before; is GITHUB_EVENT_PATH the event of this job"),
        ("push", {"before": "main", "after": HEAD}, {}, "the push event's before is no commit: 'main'"),
        ("push", [1], {}, "the push event has no before"),
        ("push", "{", {}, "event.json is no JSON"),
        ("push", "[" * 100_000, {}, "event.json is no JSON"),
        ("pull_request", {"pull_request": None}, {}, "has no pull_request.head.sha"),
        ("pull_request", pull_request(), {"GITHUB_SHA": ""}, "GITHUB_SHA is no commit"),
        ("workflow_run", {"workflow_run": {"head_sha": "--upload-pack=x"}}, {}, "workflow_run.head_sha is no commit"),
        (
            "issue_comment",
            {"action": "created", "issue": {"pull_request": {}, "number": True}},
            {},
            "has no comment.id",
        ),
        (
            "issue_comment",
            COMMENT | {"comment": {"id": 5, "user": {"login": "ada"}, "created_at": "noon"}},
            {},
            "the issue_comment event's comment.created_at is no time",
        ),
        ("push", push(BASE), {"GITHUB_REPOSITORY": "../x"}, "GITHUB_REPOSITORY must be OWNER/NAME, not '../x'"),
        ("push", push(BASE), {"GITHUB_EVENT_PATH": "/nowhere"}, "/nowhere cannot be read: No such file"),
        ("push", push(BASE), {"GITHUB_EVENT_PATH": ""}, "GITHUB_EVENT_PATH is not set"),
    ],
)
def test_what_is_wrong_with_an_event(tmp_path: Path, name: str, payload: Any, more: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read(tmp_path, name, payload, **more)
    assert "\n" not in str(caught.value)
