"""Which reports are of a pull request: of its head, compared with what it is to be merged into."""

from __future__ import annotations

import pytest

from hfexport_bot.github.client import Client
from hfexport_bot.github.event import Origin
from hfexport_bot.github.provenance import NotOfThisChange, check_provenance
from hfexport_bot.schema import Report, Revision
from tests.hfexport_bot.github.reports import clean
from tests.hfexport_bot.github.server import REPOSITORY, GitHub

HEAD, MERGE, BASE, OLDER, LATER, OTHER = ("a" * 40, "b" * 40, "c" * 40, "9" * 40, "d" * 40, "e" * 40)
FORK = "fork/zoo"
CHANGE = Origin(HEAD, FORK, "topic")


def of(head: str, base: str | None = BASE) -> Report:
    """A report of two commits, which need not be what the schema takes for one."""
    before = None if base is None else Revision.model_construct(name="main", sha=base)
    return clean().model_copy(update={"head": Revision.model_construct(name="topic", sha=head), "base": before})


@pytest.fixture
def asked(github: GitHub) -> GitHub:
    """A GitHub with a pull request of two commits, its merge, and a base branch that has moved on since."""
    github.history.add(BASE, OLDER)
    github.history.add("1" * 40, BASE)  # the pull request's first commit
    github.history.add(HEAD, "1" * 40)
    github.history.add(MERGE, BASE, HEAD)
    github.history.add(LATER, BASE)
    github.history.add(OTHER, BASE, "2" * 40)
    github.pull(7, HEAD, FORK)
    github.history.branches["main"] = LATER
    return github


@pytest.mark.parametrize(
    ("head", "base"),
    [
        (MERGE, BASE),  # as pull-request.yml runs it
        (HEAD, BASE),  # as comment-command.yml does
        ("f" * 40, BASE),  # GitHub does not have that merge any more
        ("f" * 40, LATER),
    ],
)
def test_what_is_compared_with_the_base_is_right(asked: GitHub, client: Client, head: str, base: str) -> None:
    assert check_provenance(client, REPOSITORY, of(head, base), CHANGE) == ""


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (of(OTHER), "is of eeeeeeeeeeee, not of aaaaaaaaaaaa or a merge of it"),
        (of(""), "is of no commit, not of"),
        (of("../pulls/7"), "is of ../pulls/7, not of"),
        (of(MERGE).model_copy(update={"command": "check"}), "is of check, which compares nothing"),
        (of(MERGE).model_copy(update={"command": "sweep"}), "is of sweep, which compares nothing"),
        (of(MERGE, None), "names no commit that it compares with"),
        (of(MERGE, ""), "names no commit that it compares with"),
        (of(MERGE, MERGE), "compares with bbbbbbbbbbbb, which has the change"),
        (of(MERGE, HEAD), "compares with aaaaaaaaaaaa, which has the change"),
        (of(MERGE, OLDER), "not with the first parent of the merge bbbbbbbbbbbb, cccccccccccc"),
        (of(HEAD, OLDER), "not with the merge base of the pull request and main, cccccccccccc"),
        (of(HEAD, LATER), "not with the merge base of the pull request and main, cccccccccccc"),
        (of(HEAD, "1" * 40), "not with the merge base of the pull request and main, cccccccccccc"),
        (of("f" * 40, "8" * 40), "compares with 888888888888, which is no commit of main"),
        (of("f" * 40, "1" * 40), "compares with 111111111111, which is no commit of main"),
    ],
)
def test_what_says_nothing_of_the_change_is_refused(asked: GitHub, client: Client, report: Report, said: str) -> None:
    with pytest.raises(NotOfThisChange, match=said):
        check_provenance(client, REPOSITORY, report, CHANGE)
    assert not any(".." in each.replace("...", "") for each in asked.requests)


def test_a_merge_of_something_else_that_the_change_brings(asked: GitHub, client: Client) -> None:
    asked.history.commits[MERGE] = ["1" * 40, HEAD]
    with pytest.raises(NotOfThisChange, match="which is no commit of main"):
        check_provenance(client, REPOSITORY, of(MERGE, "1" * 40), CHANGE)


def test_a_base_branch_that_took_a_part_of_the_change_since(asked: GitHub, client: Client) -> None:
    asked.history.add("7" * 40, LATER, "1" * 40)
    asked.history.branches["main"] = "7" * 40
    assert check_provenance(client, REPOSITORY, of(HEAD), CHANGE) == ""


def test_a_branch_with_a_slash(asked: GitHub, client: Client) -> None:
    asked.pulls[0]["base"]["ref"] = "release/1.0"
    asked.history.branches["release/1.0"] = LATER
    assert check_provenance(client, REPOSITORY, of(HEAD), CHANGE) == ""


def test_a_run_that_failed_before_it_knew_its_base(asked: GitHub, client: Client) -> None:
    for base in (None, ""):
        failed = of(HEAD, base).model_copy(update={"cases": (), "failure": "no disk"})
        assert check_provenance(client, REPOSITORY, failed, CHANGE) == ""


def test_where_it_cannot_be_asked_that_is_told_and_nothing_refused(asked: GitHub, client: Client) -> None:
    asked.refused = {"contents"}
    assert "403 Resource not accessible" in check_provenance(client, REPOSITORY, of(HEAD, OLDER), CHANGE)
    asked.refused = set()
    asked.pulls[0]["state"] = "closed"
    assert check_provenance(client, REPOSITORY, of(HEAD, OLDER), CHANGE) == "it belongs to no open pull request"
