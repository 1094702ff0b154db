"""Which pull request a result is of."""

from __future__ import annotations

import json

import pytest

from hfexport_bot.github.client import Answer, Client
from hfexport_bot.github.event import Origin
from hfexport_bot.github.pulls import NoPullRequest, PullRequest, find_pull_request, is_current
from tests.hfexport_bot.github.server import REPOSITORY, GitHub

SHA, OTHER = "a" * 40, "b" * 40
FORK = "fork/zoo"


def test_it_is_found_by_head_and_repository(github: GitHub, client: Client) -> None:
    github.pull(6, SHA, "another/zoo")
    github.pull(7, SHA, FORK)
    github.pull(8, OTHER, FORK, branch="else")
    found = find_pull_request(client, REPOSITORY, Origin(SHA, FORK, "topic"))
    assert found == PullRequest(7, SHA, FORK, "topic", "c" * 40, "main")
    assert found.base == "c" * 40


def test_without_a_branch_all_are_looked_at(github: GitHub, client: Client, small_pages: None) -> None:
    for number in range(1, 9):
        github.pull(number, OTHER, FORK, branch=f"b{number}")
    github.pull(9, SHA, FORK)
    assert find_pull_request(client, REPOSITORY, Origin(SHA, FORK)).number == 9


def test_the_same_head_in_another_repository_is_not_it(github: GitHub, client: Client) -> None:
    github.pull(7, SHA, "mallory/zoo")
    with pytest.raises(NoPullRequest, match="belongs to no open pull request"):
        find_pull_request(client, REPOSITORY, Origin(SHA, FORK, "topic"))


def test_an_owner_with_two_forks(github: GitHub, client: Client) -> None:
    github.pull(7, SHA, "fork/zoo")
    github.pull(8, SHA, "fork/zoo-2")
    assert find_pull_request(client, REPOSITORY, Origin(SHA, "fork/zoo-2", "topic")).number == 8


def test_one_that_has_moved_on(github: GitHub, client: Client) -> None:
    github.pull(7, OTHER, FORK)
    with pytest.raises(NoPullRequest, match="moved on to bbbbbbb, this is of aaaaaaa"):
        find_pull_request(client, REPOSITORY, Origin(SHA, FORK, "topic"))


def test_two_of_one_head_are_refused(github: GitHub, client: Client) -> None:
    github.pull(7, SHA, FORK)
    github.pull(9, SHA, FORK)
    with pytest.raises(NoPullRequest, match="#7 and #9 have the same head"):
        find_pull_request(client, REPOSITORY, Origin(SHA, FORK, "topic"))


def test_one_that_is_closed(github: GitHub, client: Client) -> None:
    github.pull(7, SHA, FORK, state="closed")
    for number in (None, 7):
        with pytest.raises(NoPullRequest, match="no open pull request"):
            find_pull_request(client, REPOSITORY, Origin(SHA, FORK, "topic", number))


def test_a_number_of_githubs_own_still_needs_the_head(github: GitHub, client: Client) -> None:
    github.pull(7, OTHER, FORK)
    with pytest.raises(NoPullRequest, match="moved on"):
        find_pull_request(client, REPOSITORY, Origin(SHA, FORK, "topic", 7))
    assert find_pull_request(client, REPOSITORY, Origin(OTHER, "", number=7)).number == 7


def test_a_fork_that_is_gone() -> None:
    # GitHub answers so, though its description does not allow it.
    head, base = {"sha": SHA, "ref": "topic", "repo": None}, {"sha": OTHER, "ref": "main"}
    gone = {"number": 7, "state": "open", "head": head, "base": base}
    client = Client(lambda *_: Answer(200, {}, json.dumps([gone])))
    with pytest.raises(NoPullRequest, match="no open pull request"):
        find_pull_request(client, REPOSITORY, Origin(SHA, FORK, "topic"))


def test_nothing_is_found_by_the_head_alone(github: GitHub, client: Client) -> None:
    github.pull(7, SHA, FORK)
    with pytest.raises(NoPullRequest, match="the repository that it comes from is gone"):
        find_pull_request(client, REPOSITORY, Origin(SHA, "", "topic"))
    assert github.requests == []


def test_whether_it_is_still_so(github: GitHub, client: Client) -> None:
    github.pull(7, SHA, FORK)
    pull = find_pull_request(client, REPOSITORY, Origin(SHA, FORK, "topic"))
    assert is_current(client, REPOSITORY, pull)
    github.pulls[0]["head"]["sha"] = OTHER
    assert not is_current(client, REPOSITORY, pull)
    github.pulls[0].update(state="closed")
    assert not is_current(client, REPOSITORY, pull)
