"""Commands in comments: what is one, who may give it, and of which head it is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hfexport_bot.errors import UsageError
from hfexport_bot.github.client import Client
from hfexport_bot.github.event import Comment
from hfexport_bot.github.orders import Action, Command, NotObeyed, Order, parse_command, take_order
from tests.hfexport_bot.github.server import REPOSITORY, GitHub

SHA = "a" * 40
FORK = "fork/zoo"


@pytest.mark.parametrize(
    ("body", "command"),
    [
        ("/export run", Command(Action.RUN)),
        ("/Export RUN", Command(Action.RUN)),
        ("/export accept `bert/*` because", Command(Action.ACCEPT, "bert/*", "because")),
        ("/export accept * because", Command(Action.ACCEPT, "*", "because")),
        ("  \r\n/export full\r\nthanks!", Command(Action.FULL)),
        (
            "/export accept bert/*/onnx/dynamic/forward not  shipped yet",
            Command(Action.ACCEPT, "bert/*/onnx/dynamic/forward", "not shipped yet"),
        ),
        (
            "/export accept t5/T5Model/dynamo/static/generate+cache@repo because",
            Command(Action.ACCEPT, "t5/T5Model/dynamo/static/generate+cache@repo", "because"),
        ),
        ("", None),
        ("please /export run", None),
        ("> /export run", None),
        ("    thanks\n/export run", None),
        ("/exports run", None),
        ("`/export run`", None),
    ],
)
def test_what_is_a_command(body: str, command: Command | None) -> None:
    assert parse_command(body) == command


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("/export", "/export alone asks for nothing; write `/export run`"),
        ("/export rum", "there is no command 'rum'; did you mean run"),
        ("/export run\n\n/Export full", "one order only, and this one has more"),
        ("/export accept */ because", "is no case id"),
        ("/export accept bert//x because", "is no case id"),
        ("/export run bert", "/export run takes nothing more"),
        ("/export accept", "needs a case and the reason"),
        ("/export accept bert/BertModel/onnx/dynamic/forward", "needs a case and the reason"),
        ("/export accept $(id) because", r"'\$\(id\)' is no case id"),
        ("/export accept bert;x because", "is no case id"),
    ],
)
def test_what_is_a_wrong_command(body: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_command(body)


def test_a_reason_is_one_short_line() -> None:
    command = parse_command("/export accept x " + "why\u202e " * 400)
    assert command is not None
    assert len(command.reason) == 300
    assert "\u202e" not in command.reason


def comment(body: str = "/export run", author: str = "ada") -> Comment:
    return Comment(5, body, author, datetime(2026, 11, 30, 12, tzinfo=UTC), 7)


@pytest.fixture
def pulls(github: GitHub) -> GitHub:
    github.pull(7, SHA, FORK)
    github.permissions = {"ada": "write", "root": "admin", "reader": "read", "stranger": "none"}
    return github


@pytest.mark.parametrize("author", ["ada", "root"])
def test_who_may_write_is_obeyed(pulls: GitHub, client: Client, author: str) -> None:
    order = take_order(client, REPOSITORY, comment(author=author))
    assert order == Order(Command(Action.RUN), author, 7, SHA, FORK, "main")


@pytest.mark.parametrize("author", ["reader", "stranger", "nobody", "dependabot[bot]"])
@pytest.mark.parametrize("body", ["/export run", "/export rum"])
def test_others_are_not_and_get_no_answer(pulls: GitHub, client: Client, author: str, body: str) -> None:
    with pytest.raises(NotObeyed, match="may not write to octo/zoo") as caught:
        take_order(client, REPOSITORY, comment(body, author))
    assert not caught.value.tell
    assert pulls.writes() == []


def test_an_ordinary_comment_asks_nobody(pulls: GitHub, client: Client) -> None:
    assert take_order(client, REPOSITORY, comment("looks good")) is None
    assert take_order(client, REPOSITORY, comment("/exports are fine")) is None
    assert pulls.requests == []


def test_a_maintainer_is_told_what_is_wrong(pulls: GitHub, client: Client) -> None:
    with pytest.raises(NotObeyed, match="did you mean run") as caught:
        take_order(client, REPOSITORY, comment("/export rum"))
    assert caught.value.tell


def push(github: GitHub, timestamp: str, after: str = SHA, branch: str = "topic") -> None:
    github.pulls[0]["head"]["repo"]["pushed_at"] = timestamp
    entry = {"ref": f"refs/heads/{branch}", "timestamp": timestamp, "after": after, "activity_type": "push"}
    github.activity.setdefault(FORK, []).append(entry)


def test_a_push_since_the_comment_makes_it_void(pulls: GitHub, client: Client) -> None:
    push(pulls, "2026-11-30T11:00:00Z")
    push(pulls, "2026-11-30T12:00:00Z")
    with pytest.raises(NotObeyed, match="may have changed since the comment; look at aaaaaaa"):
        take_order(client, REPOSITORY, comment())


def test_a_push_to_another_branch_does_not(pulls: GitHub, client: Client) -> None:
    push(pulls, "2026-11-30T11:00:00Z")
    push(pulls, "2026-11-30T13:00:00Z", after="b" * 40, branch="else")
    assert take_order(client, REPOSITORY, comment()) is not None


def test_a_push_whose_branch_cannot_be_told_makes_it_void(pulls: GitHub, client: Client) -> None:
    pulls.pulls[0]["head"]["repo"]["pushed_at"] = "2026-11-30T13:00:00Z"
    with pytest.raises(NotObeyed, match="may have changed"):
        take_order(client, REPOSITORY, comment())


def test_a_closed_pull_request(pulls: GitHub, client: Client) -> None:
    pulls.pulls[0]["state"] = "closed"
    with pytest.raises(NotObeyed, match="is closed"):
        take_order(client, REPOSITORY, comment())
