"""The check run: how it concludes, what it points at, and that nothing in it appears twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hfexport_bot.github.checks import (
    MAX_ANNOTATIONS,
    MAX_SUMMARY_CHARS,
    Check,
    Conclusion,
    annotate,
    check_summary,
    conclude,
    conclude_without,
    write_check,
)
from hfexport_bot.github.client import Client, GitHubError
from hfexport_bot.schema import NotRun, Outcome, OutcomeKind, Report, VerdictKind
from tests.hfexport_bot.github.reports import broken, case, clean, red, report
from tests.hfexport_bot.github.server import REPOSITORY, GitHub

SHA = "a" * 40
MISSING = Outcome(kind=OutcomeKind.UNAVAILABLE, message="no inputs")
UNJUDGED = NotRun(kind="file", name="odd.py", reason="not understood")


def check(count: int = 0, **more: Any) -> Check:
    made = Check(
        name="Export check",
        sha=SHA,
        id="hfexport-bot-77-1",
        conclusion=Conclusion.FAILURE,
        title="2 regressions",
        summary="the report",
        details_url="https://github.example/octo/zoo/actions/runs/1",
        annotations=annotate(red(count)),
    )
    return replace(made, **more)


@pytest.mark.parametrize(
    ("content", "conclusion"),
    [
        (clean(), "success"),
        (report(), "success"),
        (red(), "failure"),
        (report(failure="no runner worked"), "failure"),
        (report(case("A", VerdictKind.KNOWN, broken(), broken())), "neutral"),
        (report(case("A", VerdictKind.KNOWN, MISSING, MISSING)), "neutral"),
        (report().model_copy(update={"not_run": (UNJUDGED,)}), "neutral"),
        (clean().model_copy(update={"command": "check"}), "success"),
        (red().model_copy(update={"command": "check"}), "failure"),
    ],
)
def test_how_a_report_concludes(content: Report, conclusion: str) -> None:
    assert conclude(content) == conclusion


@pytest.mark.parametrize(
    ("ran", "conclusion"),
    [
        ("success", "failure"),
        ("failure", "failure"),
        ("timed_out", "failure"),
        ("", "failure"),
        ("cancelled", "cancelled"),
        ("skipped", "action_required"),  # which a required check does not pass on
    ],
)
def test_how_a_run_without_a_report_concludes(ran: str, conclusion: str) -> None:
    assert conclude_without(ran) == conclusion


def test_a_check_is_created_as_it_ended(github: GitHub, client: Client) -> None:
    written = write_check(client, REPOSITORY, check())
    (made,) = github.checks
    assert (made["name"], made["head_sha"], made["status"], made["conclusion"]) == (
        "Export check",
        SHA,
        "completed",
        "failure",
    )
    assert made["output"] == {"title": "2 regressions", "summary": "the report"}
    assert (written.url, written.app) == ("https://github.example/octo/zoo/runs/1", "github-actions")


@pytest.mark.parametrize("count", [0, 1, 50, 51, 120])
def test_annotations_go_in_batches_each_once(github: GitHub, client: Client, count: int) -> None:
    write_check(client, REPOSITORY, check(count))
    assert [each["start_line"] for each in github.checks[0]["annotations"]] == list(range(1, count + 1))
    assert len(github.writes()) == max(1, -(-count // 50))


@pytest.mark.parametrize("how", ["after", "half", "no json", "status"])
def test_an_answer_that_was_lost_doubles_nothing(github: GitHub, client: Client, how: str) -> None:
    github.fail(how, "POST", "/check-runs")
    github.fail(how, "PATCH", "/check-runs", times=2)
    write_check(client, REPOSITORY, check(120))
    assert len(github.checks) == 1
    assert [each["start_line"] for each in github.checks[0]["annotations"]] == list(range(1, 121))


def test_publishing_again_updates_the_same_check(github: GitHub, client: Client) -> None:
    write_check(client, REPOSITORY, check(60))
    write_check(client, REPOSITORY, check(60, conclusion=Conclusion.SUCCESS, title="none"))
    (made,) = github.checks
    assert (made["conclusion"], made["output"]["title"]) == ("success", "none")
    assert len(made["annotations"]) == 60


def test_a_publishing_that_broke_off_is_taken_up(github: GitHub, client: Client) -> None:
    client.patience = 0.0
    github.fail("status", "PATCH", "/check-runs", status=500)
    with pytest.raises(GitHubError, match="500"):
        write_check(client, REPOSITORY, check(120))
    assert github.checks[0]["conclusion"] == "failure"  # it has concluded all the same
    write_check(client, REPOSITORY, check(120))
    assert [each["start_line"] for each in github.checks[0]["annotations"]] == list(range(1, 121))


def test_another_run_gets_a_check_of_its_own(github: GitHub, client: Client) -> None:
    for number in ("1", "2"):
        write_check(client, REPOSITORY, check(id=number))
    assert [each["external_id"] for each in github.checks] == ["1", "2"]


def test_one_annotation_for_each_cause_at_its_line() -> None:
    shared = [case(name, VerdictKind.REGRESSION, broken(), signature="one") for name in ("A", "B")]
    (made,) = annotate(report(*shared))
    assert made == {
        "path": "models/modeling_tiny.py",
        "start_line": 31,
        "end_line": 31,
        "annotation_level": "failure",
        "title": "ONNX · trace · GuardError",
        "message": "Could not guard on Eq(u0, 1)\n\nClasses: A, B\n\n"
        "hfexport-bot reproduce tiny/A/onnx/dynamic/forward",
    }


def test_a_cause_in_two_places_is_annotated_at_both() -> None:
    shared = [
        case(name, VerdictKind.REGRESSION, broken(line), signature="one")
        for name, line in (("A", 3), ("B", 5), ("C", 3))
    ]
    made = annotate(report(*shared))
    assert [each["start_line"] for each in made] == [3, 5]
    assert ["Classes: A, C" in made[0]["message"], "Classes: B" in made[1]["message"]] == [True, True]


def test_what_is_not_red_is_a_warning_and_what_is_known_nothing() -> None:
    made = annotate(
        report(
            case("New", VerdictKind.NEW, broken(2), None),
            case("Known", VerdictKind.KNOWN, broken(3), broken(3)),
            case("Red", VerdictKind.REGRESSION, broken(4)),
        )
    )
    assert [(each["annotation_level"], each["start_line"]) for each in made] == [("failure", 4), ("warning", 2)]


@pytest.mark.parametrize(
    ("line", "file"),
    [
        (0, "a.py"),
        (-1, "a.py"),
        (1 << 40, "a.py"),
        (1, ""),
        (1, "/etc/passwd"),
        (1, "../a.py"),
        (1, "a/../../b.py"),
        (1, "a\n.py"),
        (1, "."),
    ],
)
def test_places_that_are_none_are_left_out(line: int, file: str) -> None:
    assert annotate(report(case("A", VerdictKind.REGRESSION, broken(line, file)))) == ()


def test_there_is_an_end_to_annotations() -> None:
    assert len(annotate(red(MAX_ANNOTATIONS + 20))) == MAX_ANNOTATIONS


def test_a_long_report_makes_a_summary_that_github_takes(github: GitHub, client: Client) -> None:
    long = report(
        *(case(f"Broken{n}", VerdictKind.REGRESSION, broken(message=f"{n} " + "🙂\x1b" * 1400)) for n in range(300))
    )
    text = check_summary(long, "the footer")
    assert MAX_SUMMARY_CHARS * 0.9 < len(text) <= MAX_SUMMARY_CHARS
    assert text.endswith("\nthe footer")
    write_check(client, REPOSITORY, check(summary=text, annotations=annotate(long)))
    assert len(github.checks[0]["annotations"]) == 300
