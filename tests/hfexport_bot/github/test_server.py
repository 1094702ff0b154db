"""That the small GitHub holds both sides to GitHub's description: what breaks it is found."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hfexport_bot.github.client import Send, connect
from tests.hfexport_bot.github.server import REPOSITORY, GitHub

HOME = f"/repos/{REPOSITORY}"


@pytest.fixture
def loose() -> Iterator[GitHub]:
    """A GitHub whose violations are the point."""
    with GitHub() as server:
        server.pull(7, "a" * 40)
        yield server


@pytest.fixture
def send(loose: GitHub) -> Send:
    return connect(loose.token, loose.url)


def test_a_query_of_ours_that_is_wrong(loose: GitHub, send: Send) -> None:
    send("GET", f"{HOME}/pulls", {"state": "opened"}, None)
    assert "'opened' is not one of" in loose.violations[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "x"}, "'head_sha' is a required property"),
        ({"name": "x", "head_sha": "a", "status": "done"}, "'done' is not one of"),
        ({"name": "x", "head_sha": "a", "output": {"title": "x", "summary": "y" * 65_536}}, "is too long"),
        (
            {"name": "x", "head_sha": "a", "output": {"title": "x", "summary": "y", "annotations": [{}] * 51}},
            "required",
        ),
    ],
)
def test_a_body_of_ours_that_is_wrong(loose: GitHub, send: Send, body: object, said: str) -> None:
    loose.rights = set()
    send("POST", f"{HOME}/check-runs", {}, body)
    assert said in " ".join(loose.violations)


def test_an_answer_that_is_wrong(loose: GitHub, send: Send) -> None:
    loose.pulls[0]["head"]["sha"] = 7
    send("GET", f"{HOME}/pulls/7", {}, None)
    assert "7 is not of type 'string'" in loose.violations[0]


def test_an_endpoint_that_is_not_described(loose: GitHub, send: Send) -> None:
    assert send("GET", f"{HOME}/labels", {}, None).status == 404
    assert "PathNotFound" in loose.violations[0]


@pytest.mark.parametrize("request_", [("PATCH", "check-runs/1"), ("DELETE", "issues/comments/101")])
def test_a_token_without_rights_changes_nothing(github: GitHub, request_: tuple[str, str]) -> None:
    send = connect(github.token, github.url)
    github.comment(7, "kept")
    created = send("POST", f"{HOME}/check-runs", {}, {"name": "x", "head_sha": "a" * 40, "conclusion": "success"})
    github.rights = set()
    method, path = request_
    answer = send(method, f"{HOME}/{path}", {}, {"name": "y"} if method == "PATCH" else None)
    assert (created.status, answer.status) == (201, 403)
    assert (github.checks[0]["name"], github.bodies(7)) == ("x", ["kept"])


def test_runs_of_a_workflow_by_head_branch_and_status(github: GitHub) -> None:
    ended = {"head_branch": "main", "status": "completed", "conclusion": "success"}
    github.runs["sweep.yml"] = [{"id": 2, "head_sha": "b" * 40, **ended}, {"id": 1, "head_sha": "a" * 40, **ended}]
    send = connect(github.token, github.url)

    def ids(**asked: str) -> list[int]:
        answer = send("GET", f"{HOME}/actions/workflows/sweep.yml/runs", {"per_page": 1, **asked}, None)
        return [each["id"] for each in json.loads(answer.text)["workflow_runs"]]

    assert ids(branch="main", status="success") == [2]
    assert ids(head_sha="a" * 40, status="completed") == [1]
    assert ids(branch="topic") == ids(status="failure") == []
