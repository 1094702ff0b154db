"""One comment, and no more writes than there is news."""

from __future__ import annotations

import pytest

from hfexport_bot.github.client import Client
from hfexport_bot.github.comment import Body, CommentWhen, Written, keep_one_comment, make_body, whoami
from hfexport_bot.schema import Report, VerdictKind
from tests.hfexport_bot.github.reports import PASS, broken, case, clean, red, report
from tests.hfexport_bot.github.server import BOT, MAX_COMMENT_CHARS, REPOSITORY, GitHub

FOUND = Body("## found", "a" * 16, wanted=True)
OTHER = Body("## found more", "b" * 16, wanted=True)
RESOLVED = Body("## resolved", "c" * 16, wanted=False)


def keep(client: Client, body: Body, author: str = BOT, key: str = "export-check") -> Written:
    return keep_one_comment(client, REPOSITORY, 7, key, body, author)


def test_the_first_finding_makes_a_comment_and_the_next_edits_it(github: GitHub, client: Client) -> None:
    first = keep(client, FOUND)
    assert first.done == "created"
    assert github.bodies(7) == ["<!-- hfexport-bot:export-check aaaaaaaaaaaaaaaa -->\n## found"]
    second = keep(client, OTHER)
    assert (second.done, second.url) == ("edited", first.url)
    assert github.bodies(7) == ["<!-- hfexport-bot:export-check bbbbbbbbbbbbbbbb -->\n## found more"]


def test_nothing_is_written_when_nothing_changed(github: GitHub, client: Client) -> None:
    url = keep(client, FOUND).url
    github.requests.clear()
    assert keep(client, FOUND) == Written("unchanged", url)
    assert github.writes() == []


def test_nothing_is_written_when_there_is_nothing_to_say(github: GitHub, client: Client) -> None:
    github.comment(7, "an ordinary comment", "ada")
    assert keep(client, RESOLVED) == Written("not needed")
    assert github.writes() == []


def test_an_earlier_finding_is_edited_to_be_resolved_and_back(github: GitHub, client: Client) -> None:
    keep(client, FOUND)
    assert keep(client, RESOLVED).done == "edited"
    assert keep(client, RESOLVED).done == "unchanged"
    assert github.bodies(7) == ["<!-- hfexport-bot:export-check cccccccccccccccc -->\n## resolved"]
    assert keep(client, FOUND).done == "edited"
    assert len(github.comments) == 1


@pytest.mark.parametrize(
    "body",
    [
        "quoting <!-- hfexport-bot:export-check aaaaaaaaaaaaaaaa -->",
        "<!-- hfexport-bot:other-check aaaaaaaaaaaaaaaa -->",
        "<!-- hfexport-bot:export-check -->",
        "",
    ],
)
def test_other_comments_of_our_own_are_left_alone(github: GitHub, client: Client, body: str) -> None:
    github.comment(7, body)
    assert keep(client, FOUND).done == "created"
    assert github.bodies(7)[0] == body


def test_somebody_elses_comment_with_our_marker_is_left_alone(github: GitHub, client: Client) -> None:
    forged = "<!-- hfexport-bot:export-check aaaaaaaaaaaaaaaa -->\n## safe to merge: yes"
    github.comment(7, forged, "mallory")
    github.comments[-1]["user"] = {"login": "mallory"}
    github.comment(7, forged, "ghost")
    github.comments[-1]["user"] = None
    assert keep(client, FOUND).done == "created"
    assert github.bodies(7)[:2] == [forged, forged]


def test_it_is_found_behind_many_pages(github: GitHub, client: Client, small_pages: None) -> None:
    keep(client, FOUND)
    first = github.comments[0]
    for number in range(11):
        github.comment(7, f"talk {number}", "ada")
    github.comments.remove(first)
    github.comments.append(first)  # the last on the last page
    assert keep(client, FOUND).done == "unchanged"


def test_older_duplicates_are_deleted(github: GitHub, client: Client) -> None:
    marked = "<!-- hfexport-bot:export-check {} -->\n## found"
    for digest in ("1" * 16, "2" * 16, "a" * 16):
        github.comment(7, marked.format(digest))
    assert keep(client, FOUND).done == "unchanged"
    assert github.bodies(7) == [marked.format("a" * 16)]


def test_a_create_that_answered_502_is_not_doubled(github: GitHub, client: Client) -> None:
    github.fail("after", "POST", "/comments")
    assert keep(client, FOUND).done == "created"
    assert len(github.comments) == 1


def test_one_that_is_deleted_while_it_is_edited_is_made_anew(github: GitHub, client: Client) -> None:
    keep(client, FOUND)
    github.fail("status", "PATCH", status=404, message="Not Found")
    assert keep(client, OTHER).done == "created"
    assert keep(client, OTHER).done == "unchanged"


def test_an_app_that_took_itself_for_another_does_not_double(github: GitHub, client: Client) -> None:
    github.app = "our-app"
    for body in (FOUND, OTHER):
        assert keep(client, body, author=BOT).done == "created"
    assert [each["user"]["login"] for each in github.comments] == ["our-app[bot]"]
    assert github.bodies(7)[0].endswith("## found more")


def test_who_we_are(github: GitHub, client: Client) -> None:
    assert whoami(client, "our-app") == "our-app[bot]"
    assert whoami(client, "") == BOT
    github.login = "ada"
    assert whoami(client, "") == "ada"


def test_the_body_is_about_the_report_or_says_that_all_is_resolved() -> None:
    body = make_body(red(), CommentWhen.ON_FINDING, "the footer")
    assert body.wanted
    assert body.text.startswith("## Export check: 1 regression in 1 cause")
    assert body.text.endswith("\n\nthe footer")
    body = make_body(clean(), CommentWhen.ON_FINDING, "the footer")
    assert not body.wanted
    assert body.text == (
        "## Export check: resolved\n\nNothing to act on any more: 0 regressions · safe to merge: yes\n\nthe footer"
    )
    assert make_body(clean(), CommentWhen.ALWAYS, "").wanted


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (report(), False),
        (report(case("A", VerdictKind.FIXED, PASS, broken())), False),
        (report(case("A", VerdictKind.KNOWN, broken(), broken())), False),
        (report(case("A", VerdictKind.INTERFACE, PASS)), True),
        (report(case("A", VerdictKind.NEW, PASS, None)), False),
        (report(case("A", VerdictKind.NEW, broken(), None)), True),
        (report(case("A", VerdictKind.KNOWN, broken(), broken())).model_copy(update={"fail_on": ("known",)}), True),
        (report(failure="no runner worked"), True),
    ],
)
def test_what_is_worth_a_comment(content: Report, wanted: bool) -> None:
    assert make_body(content, CommentWhen.ON_FINDING, "").wanted is wanted


def test_only_news_changes_the_digest() -> None:
    def digest(content: Report) -> str:
        return make_body(content, CommentWhen.ON_FINDING, "").digest

    slow = red().model_copy(update={"seconds": 99.0})
    slow = slow.model_copy(update={"cases": tuple(each.model_copy(update={"seconds": 9.0}) for each in slow.cases)})
    assert digest(slow) == digest(red())
    assert digest(red(2)) != digest(red())
    moved = red().model_copy(update={"head": red().head.model_copy(update={"sha": "e" * 40})})
    assert digest(moved) != digest(red())
    assert digest(clean()) != digest(red())


def test_a_long_report_makes_a_comment_that_github_takes(github: GitHub, client: Client) -> None:
    long = report(
        *(case(f"Broken{n}", VerdictKind.REGRESSION, broken(message=f"{n} " + "🙂" * 1400)) for n in range(300))
    )
    body = make_body(long, CommentWhen.ON_FINDING, "f" * 5_000)
    assert MAX_COMMENT_CHARS * 0.9 < len(body.text) < MAX_COMMENT_CHARS - 60
    assert keep(client, body).done == "created"
