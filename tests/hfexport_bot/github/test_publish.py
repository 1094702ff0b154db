"""The trusted stage as a job runs it: from the event and the report to what GitHub then shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.changes.selection import NOT_READ, ONLY_TEXT
from hfexport_bot.errors import UsageError
from hfexport_bot.github import checks
from hfexport_bot.github.answers import User
from hfexport_bot.github.client import Client
from hfexport_bot.github.comment import CommentWhen
from hfexport_bot.github.job import PublishOptions, answer_comment, client_of, publish_report
from hfexport_bot.github.orders import NotObeyed
from hfexport_bot.github.publish import Published, Wishes
from hfexport_bot.reporting.summary import merge_safety
from hfexport_bot.schema import Component, Expected, NotRun, OutcomeKind, Report, Rerun, Revision, Tried, VerdictKind
from hfexport_bot.verdicts.likeness import told_of
from tests.hfexport_bot.github import reports
from tests.hfexport_bot.github.payloads import event
from tests.hfexport_bot.github.reports import PASS, clean, red, report
from tests.hfexport_bot.github.server import REPOSITORY, GitHub
from tests.hfexport_bot.github.test_event import COMMENT, WORKFLOW_RUN, pull_request
from tests.hfexport_bot.github.test_outputs import read_outputs

HEAD, MERGE = "a" * 40, "b" * 40
FORK = "fork/zoo"
ALWAYS = PublishOptions(Wishes(CommentWhen.ALWAYS))


class Job:
    """A job on a machine of GitHub's, with its files, and the report of the stage before it."""

    def __init__(self, folder: Path, client: Client | None) -> None:
        self.folder = folder
        self.client = client
        self.environment: dict[str, str] = {}

    def on(self, name: str, payload: Any) -> Job:
        file = self.folder / "event.json"
        file.write_text(json.dumps(payload))
        self.environment = {
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_SHA": MERGE,
            "GITHUB_RUN_ID": "99",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_OUTPUT": str(self.folder / "outputs"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
        }
        return self

    def publish(self, report: Report | str | None, options: PublishOptions | None = None) -> Published:
        for name in ("outputs", "summary.md"):
            (self.folder / name).unlink(missing_ok=True)
        artifact = self.folder / "artifact"
        artifact.mkdir(exist_ok=True)
        if report is not None:
            text = report.model_dump_json() if isinstance(report, Report) else report
            (artifact / "report.json").write_text(text)
        make: Callable[[Mapping[str, str]], Client | None] = lambda _: self.client  # noqa: E731
        return publish_report(artifact, self.folder / "out", options or PublishOptions(), self.environment, make)

    @property
    def outputs(self) -> dict[str, str]:
        return read_outputs((self.folder / "outputs").read_text())

    @property
    def summary(self) -> str:
        return (self.folder / "summary.md").read_text()


@pytest.fixture
def job(tmp_path: Path, github: GitHub, client: Client) -> Job:
    """The publishing job after a run on a fork's pull request."""
    github.pull(7, HEAD, FORK)
    return Job(tmp_path, client).on("workflow_run", event("workflow-run-completed", WORKFLOW_RUN))


def test_a_regression_appears_everywhere(job: Job, github: GitHub) -> None:
    published = job.publish(red(2))
    (check,) = github.checks
    assert (check["head_sha"], check["conclusion"], len(check["annotations"])) == (HEAD, "failure", 2)
    assert check["details_url"] == "https://github.example/octo/zoo/actions/runs/99"
    (body,) = github.bodies(7)
    assert "## Export check: 2 regressions in 2 causes" in body
    assert "[The whole report](https://github.example/octo/zoo/actions/runs/99)" in body
    assert "a green is advice, not proof" in body
    assert published.lines == published.failures == []
    assert not published.red_unseen
    outputs = job.outputs
    assert json.loads(outputs["counts"])["regression"] == 2
    assert outputs["conclusion"] == "failure"
    assert outputs["comment-url"] == github.comments[0]["html_url"]
    assert outputs["check-url"].endswith("/runs/1")
    for name in ("report-json", "report-md", "junit-xml"):
        assert Path(outputs[name]).is_file()
    assert job.summary.startswith("## Export check: 2 regressions")


def test_with_nothing_to_act_on_only_the_check_appears(job: Job, github: GitHub) -> None:
    published = job.publish(clean())
    assert [check["conclusion"] for check in github.checks] == ["success"]
    assert github.comments == []
    assert (published.comment_url, published.lines) == ("", [])


@pytest.mark.parametrize(
    ("reason", "conclusion", "title"),
    [
        (NOT_READ, "success", "nothing affected · safe to merge: yes"),
        (ONLY_TEXT, "success", "nothing affected · safe to merge: yes"),
        ("Python cannot read it", "neutral", "nothing was run · 1 changed file was not judged, see what was not run"),
    ],
)
def test_what_was_not_run_is_no_reason_for_a_comment_and_decides_the_check_where_it_may_do_harm(
    job: Job, github: GitHub, reason: str, conclusion: str, title: str
) -> None:
    left = NotRun(kind="file", name="docs/index.md", reason=reason)
    job.publish(report().model_copy(update={"not_run": (left,)}))
    (check,) = github.checks
    assert (check["conclusion"], check["output"]["title"]) == (conclusion, title)
    assert github.comments == []


def test_the_life_of_a_pull_request(job: Job, github: GitHub) -> None:
    job.publish(red())
    job.publish(red())
    job.publish(clean())
    (body,) = github.bodies(7)
    assert "## Export check: resolved" in body
    assert len(github.checks) == 1
    assert github.checks[0]["conclusion"] == "success"
    assert [each for each in github.writes() if "comments" in each] == [
        f"POST /repos/{REPOSITORY}/issues/7/comments",
        f"PATCH /repos/{REPOSITORY}/issues/comments/101",
    ]


def test_always_and_never(job: Job, github: GitHub) -> None:
    job.publish(red(), PublishOptions(Wishes(CommentWhen.NEVER)))
    assert github.comments == []
    job.publish(clean(), ALWAYS)
    assert "safe to merge: yes" in github.bodies(7)[0]


@pytest.mark.parametrize(
    ("ran", "conclusion", "said"),
    [
        ("success", "failure", "the run ended well and left none"),
        ("failure", "failure", "the run ended before it could write one"),
        ("cancelled", "cancelled", "the run was cancelled before it could write one"),
        ("timed_out", "failure", "the run was ended at its time limit"),
        ("skipped", "action_required", "the run was skipped, so nothing was looked at"),
    ],
)
def test_the_check_concludes_without_a_report_too(
    job: Job, github: GitHub, ran: str, conclusion: str, said: str
) -> None:
    run = WORKFLOW_RUN["workflow_run"] | {"conclusion": ran}
    job.on("workflow_run", event("workflow-run-completed", {"action": "completed", "workflow_run": run}))
    job.publish(None)
    (check,) = github.checks
    assert check["conclusion"] == conclusion
    assert said in check["output"]["title"]
    assert github.comments == []
    assert said in job.outputs["problem"]
    assert said in job.summary


def test_a_comment_does_not_contradict_a_check_without_a_report(job: Job, github: GitHub) -> None:
    job.publish(red())
    (job.folder / "artifact" / "report.json").unlink()
    job.publish(None)
    (body,) = github.bodies(7)
    assert "## Export check: no report" in body
    assert "This is of the newest run." in body
    job.publish(red())
    assert "1 regression in 1 cause" in github.bodies(7)[0]


def of_run(job: Job, identity: int, branch: str) -> Job:
    run = WORKFLOW_RUN["workflow_run"] | {"id": identity, "head_branch": branch}
    return job.on("workflow_run", event("workflow-run-completed", WORKFLOW_RUN | {"workflow_run": run}))


def test_a_second_pull_request_with_the_same_head_does_not_hide_that_the_first_is_red(job: Job, github: GitHub) -> None:
    github.history.add("d" * 40, BASE)
    github.pull(8, HEAD, FORK, branch="other", base={"ref": "release", "sha": "d" * 40})
    of_run(job, 1, "topic").publish(red())
    published = of_run(job, 2, "other").publish(clean())
    first, second = github.checks
    assert (first["conclusion"], second["conclusion"], published.conclusion) == ("failure", "failure", "failure")
    assert "failure of #7 with the same head" in second["output"]["title"]
    assert "#7, whose head is this commit too, has failure" in job.summary
    of_run(job, 3, "topic").publish(clean())
    of_run(job, 2, "other").publish(clean())
    assert [each["conclusion"] for each in github.checks] == ["failure", "success", "success"]


def test_the_red_of_a_pull_request_that_was_closed_is_gone(job: Job, github: GitHub) -> None:
    github.pull(8, HEAD, FORK, branch="other")
    of_run(job, 1, "topic").publish(red())
    github.pulls[0]["state"] = "closed"
    of_run(job, 2, "other").publish(clean())
    assert [each["conclusion"] for each in github.checks] == ["failure", "success"]


def test_where_it_is_not_clear_whose_a_result_is_it_hides_none(job: Job, github: GitHub) -> None:
    github.pull(8, HEAD, FORK, base={"ref": "release", "sha": "d" * 40})  # of the same branch
    of_run(job, 1, "topic").publish(red())
    published = of_run(job, 2, "topic").publish(clean())
    assert [each["conclusion"] for each in github.checks] == ["failure", "failure"]
    assert "another run of the same head" in published.lines[0]


def test_a_report_of_a_cancelled_run_is_no_failure_unless_it_is_red(job: Job, github: GitHub) -> None:
    run = WORKFLOW_RUN["workflow_run"] | {"conclusion": "cancelled"}
    job.on("workflow_run", event("workflow-run-completed", {"action": "completed", "workflow_run": run}))
    job.publish(clean().model_copy(update={"failure": "the run was interrupted"}))
    (check,) = github.checks
    assert (check["conclusion"], github.comments) == ("cancelled", [])
    job.publish(red().model_copy(update={"failure": "the run was interrupted"}))
    assert (github.checks[0]["conclusion"], len(github.comments)) == ("failure", 1)


@pytest.mark.parametrize("text", ["{}", "<html>", '{"command": "run", "head": {"name": "x"}, "cases": [{}]}'])
def test_a_report_that_is_none_is_published_as_that(job: Job, github: GitHub, text: str) -> None:
    job.publish(text)
    assert github.checks[0]["conclusion"] == "failure"
    assert "is no report.json of this version" in github.checks[0]["output"]["summary"]
    assert github.comments == []


def test_a_report_of_another_commit_is_published_as_that(job: Job, github: GitHub) -> None:
    github.history.commits[MERGE] = ["c" * 40, "d" * 40]
    job.publish(red())
    assert github.checks[0]["conclusion"] == "failure"
    assert "report.json is of bbbbbbbbbbbb, not of aaaaaaaaaaaa or a merge of it" in github.checks[0]["output"]["title"]
    assert github.comments == []
    github.history.commits[MERGE] = ["c" * 40, HEAD]
    job.publish(red())
    assert github.checks[0]["output"]["title"].startswith("1 regression")
    assert len(github.comments) == 1


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (None, "report.json names no commit that it compares with"),
        (Revision(name="main", sha="8" * 40), "report.json compares with 888888888888, which is no commit of main"),
        (Revision(name="main", sha=MERGE), "report.json compares with bbbbbbbbbbbb, which has the change"),
    ],
)
def test_a_green_report_against_another_base_is_published_as_no_report(
    job: Job, github: GitHub, base: Revision | None, said: str
) -> None:
    for content in (clean(), report()):
        job.publish(content.model_copy(update={"base": base}))
        (check,) = github.checks
        assert check["conclusion"] == "failure"
        assert said in check["output"]["title"]
        assert said in job.outputs["problem"]
    assert github.comments == []


def test_a_report_without_a_base_is_refused_of_pull_requests_only(job: Job, github: GitHub) -> None:
    sweep = report().model_copy(update={"command": "sweep", "base": None})
    job.publish(sweep)
    values = {"before": "0" * 40, "after": HEAD, "ref": "refs/heads/main", "deleted": False}
    job.on("push", event("push", values)).publish(sweep)
    assert [each["conclusion"] for each in github.checks] == ["failure", "success"]
    group = event("merge-group-checks-requested", {"merge_group": {"head_sha": HEAD, "base_sha": BASE}})
    job.on("merge_group", group).publish(report().model_copy(update={"base": None}))
    assert github.checks[-1]["conclusion"] == "success"
    assert not any("/compare/" in each for each in github.requests)


def test_a_base_that_could_not_be_asked_for_is_told_and_no_refusal(job: Job, github: GitHub) -> None:
    github.refused = {"contents"}
    job.publish(clean())
    (check,) = github.checks
    assert check["conclusion"] == "success"
    assert "it was not checked that this compares with the pull request's base: GET" in check["output"]["summary"]


def test_what_fetches_the_commit_to_reproduce_is_told_where_there_is_one(job: Job, github: GitHub) -> None:
    line = f"`git fetch https://github.example/octo/zoo {MERGE}`"
    for again, told in (({"rev": MERGE}, True), ({"rev": "8" * 40}, False), ({"tree": "."}, False)):
        job.publish(red().model_copy(update={"rerun": Rerun.model_validate(again)}))
        for text in (github.bodies(7)[0], github.checks[0]["output"]["summary"]):
            assert (line in text) is told
            assert ("git fetch" in text) is told
    job.publish(clean().model_copy(update={"rerun": Rerun(rev=MERGE)}))
    assert "git fetch" not in github.bodies(7)[0]


def test_a_number_in_the_artifact_is_of_no_use(job: Job, github: GitHub) -> None:
    github.pull(8, "e" * 40)
    (job.folder / "artifact").mkdir()
    (job.folder / "artifact" / "pr_number").write_text("8")
    job.publish(red())
    assert github.bodies(8) == []
    assert len(github.bodies(7)) == 1


def test_no_comment_where_the_head_has_moved_on(job: Job, github: GitHub) -> None:
    github.pulls[0]["head"]["sha"] = "e" * 40
    published = job.publish(red())
    assert published.lines == ["No comment: the pull request has moved on to eeeeeee, this is of aaaaaaa."]
    assert published.failures == []
    assert "No comment: the pull request has moved on" in job.summary
    assert github.checks[0]["conclusion"] == "failure"


def test_no_comment_where_the_head_moves_on_at_the_last_moment(job: Job, github: GitHub) -> None:
    def move(method: str, path: str) -> None:
        if path.endswith("/comments"):  # our comments are being listed
            github.pulls[0]["head"]["sha"] = "e" * 40

    github.before = move
    published = job.publish(red())
    assert published.lines == ["No comment: the pull request has moved on, or was closed, just now."]
    assert github.comments == []


def test_a_token_that_may_only_read(job: Job, github: GitHub) -> None:
    github.rights = set()
    published = job.publish(red())
    assert [line.partition(":")[0] for line in published.lines] == ["No check", "No comment"]
    assert "the token lacks the right to do this" in published.lines[0]
    assert published.failures == []
    assert published.red_unseen
    assert job.summary.count("- `No c") == 2
    assert json.loads(job.outputs["counts"])["regression"] == 1


@pytest.mark.parametrize(
    ("head", "actor", "who"),
    [(FORK, "ada", "a fork's pull request"), (REPOSITORY, "dependabot[bot]", "a pull request of Dependabot's")],
)
def test_who_gets_no_comment_is_told_why(job: Job, github: GitHub, head: str, actor: str, who: str) -> None:
    github.pulls.clear()
    github.pull(7, HEAD, head)
    github.rights = set()
    job.on("pull_request", pull_request(head))
    job.environment["GITHUB_ACTOR"] = actor
    published = job.publish(red())
    reason = f"{who} gets a token that may only read. A workflow on `workflow_run` can publish it."
    assert published.lines == [f"No check: {reason}", f"No comment: {reason}"]
    assert published.failures == []


def test_a_locked_conversation_is_told_as_that(job: Job, github: GitHub) -> None:
    job.on("pull_request", pull_request(FORK))
    locked = "Unable to create comment because issue is locked."
    github.fail("status", "POST", "/comments", status=403, message=locked)
    (line,) = job.publish(red()).lines
    assert line.endswith(
        "403 Unable to create comment because issue is locked; unlock the conversation to have it there."
    )


def test_a_wrong_token_is_a_failure_that_keeps_summary_and_outputs(job: Job, github: GitHub) -> None:
    github.token = "another"
    published = job.publish(red())
    assert len(published.failures) == 2
    assert "401 Bad credentials" in published.failures[0]
    assert job.summary.startswith("## Export check: 1 regression")
    assert job.outputs["conclusion"] == "failure"


def test_without_a_token_there_is_a_summary(job: Job, github: GitHub) -> None:
    job.client = None
    published = job.publish(red())
    assert published.lines == ["No check and no comment: there is no GITHUB_TOKEN."]
    assert github.requests == []
    assert "there is no GITHUB_TOKEN" in job.summary


def test_a_server_that_is_down_costs_no_summary(job: Job, github: GitHub, client: Client) -> None:
    client.patience = 3
    github.fail("status", "GET", status=503, times=99)
    published = job.publish(red())
    assert len(published.failures) == 2
    assert "503; run this again later" in published.failures[0]
    assert job.summary.startswith("## Export check: 1 regression")


def test_a_folder_that_cannot_be_written_costs_no_check(job: Job, github: GitHub) -> None:
    (job.folder / "out").write_text("a file is in the way")
    published = job.publish(red())
    assert [line.partition(":")[0] for line in published.failures] == ["Not all files were written"]
    assert github.checks[0]["conclusion"] == "failure"
    assert len(github.comments) == 1
    assert "report-json" not in job.outputs


def test_a_report_that_we_cannot_show_costs_no_check(job: Job, github: GitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object) -> None:
        raise ValueError("a case like no other\n::error::")

    monkeypatch.setattr(checks, "render", stumble)
    published = job.publish(red())
    assert published.failures == ["The report: it cannot be shown (ValueError: a case like no other : :error::)."]
    assert github.checks[0]["conclusion"] == "failure"
    assert "it cannot be shown (ValueError" in github.checks[0]["output"]["summary"]
    assert github.comments == []


def test_a_push_gets_a_check_and_no_comment(job: Job, github: GitHub) -> None:
    values = {"before": "c" * 40, "after": HEAD, "ref": "refs/heads/main", "deleted": False}
    job.on("push", event("push", values)).publish(red())
    assert github.checks[0]["head_sha"] == HEAD
    assert github.comments == []


def test_a_removed_branch_is_nothing_to_publish(job: Job, github: GitHub) -> None:
    values = {"before": "c" * 40, "after": "0" * 40, "ref": "refs/heads/x", "deleted": True}
    published = job.on("push", event("push", values)).publish(red())
    assert published.lines == ["Nothing to publish: the push removed its branch."]
    assert github.requests == []


def test_a_users_token_cannot_check_but_comment(job: Job, github: GitHub) -> None:
    github.login = "ada"
    for content in (red(), red(2)):
        published = job.publish(content)
    assert [line.partition(":")[0] for line in published.lines] == ["No check"]
    assert [each["user"]["login"] for each in github.comments] == ["ada"]


def test_what_is_red_may_be_said_where_it_is_published(job: Job, github: GitHub) -> None:
    hidden = red().model_copy(update={"fail_on": ()})
    job.publish(hidden)
    job.publish(hidden, PublishOptions(fail_on=(VerdictKind.REGRESSION,)))
    assert github.checks[0]["conclusion"] == "failure"


def test_an_accepted_regression_turns_the_check_green(job: Job, github: GitHub) -> None:
    job.publish(red())
    job.publish(red(), PublishOptions(accepted=(("tiny/*", "not shipped (ada)"),)))
    assert github.checks[0]["conclusion"] == "success"
    for text in (github.checks[0]["output"]["summary"], github.bodies(7)[0]):
        assert "## Export check: 0 regressions · 1 accepted · safe to merge: yes" in text
        assert "### Accepted\n" in text
        assert "accepted: not shipped (ada)" in text
        assert "not from this change" not in text
    with pytest.raises(UsageError, match="no regression of this report has an id like bert"):
        job.publish(red(), PublishOptions(accepted=(("bert/*", "why"),)))
    with pytest.raises(UsageError, match="--accept needs a case and a reason"):
        job.publish(red(), PublishOptions(accepted=(("bert/*", " "),)))


@pytest.mark.parametrize("there", [True, False])
def test_an_acceptance_that_cannot_be_is_answered(job: Job, github: GitHub, there: bool) -> None:
    job.on("issue_comment", event("issue-comment-created", COMMENT))
    with pytest.raises(UsageError):
        job.publish(red() if there else None, PublishOptions(head=HEAD, accepted=(("bert/*", "why"),)))
    (answer,) = github.bodies(7)
    why = "no regression of this report has an id like bert/*" if there else "there is no report.json: the run ended"
    assert f"\n@ada: not done, since `{why}" in answer
    assert github.checks == []


def test_publishing_again_what_was_published_says_nothing_new(job: Job, github: GitHub) -> None:
    folder = job.folder / "artifact"
    folder.mkdir()
    (folder / "report.json").write_text(red().model_dump_json())
    options = PublishOptions(accepted=(("tiny/*", "not shipped (ada)"),))
    publish_report(folder, folder, options, job.environment, lambda _: job.client)
    publish_report(folder, folder, PublishOptions(), job.environment, lambda _: job.client)
    assert Report.model_validate_json((folder / "report.json").read_text()) == red()
    assert "1 regression" in (folder / "report.md").read_text()
    assert "### Notes" not in github.bodies(7)[0]


def test_other_settings_than_the_reports_are_no_accusation(job: Job, github: GitHub) -> None:
    moved = PASS.model_copy(update={"components": (Component(name="model", max_abs=1e-2),)})
    (broken,) = red().cases
    accepted = broken.model_copy(update={"verdict": VerdictKind.KNOWN})
    job.publish(report(accepted, reports.case("Moved", VerdictKind.OK, moved)))
    github.files[BASE, SETTINGS] = b"accepted: [{id: 'tiny/*', reason: not shipped}]\ndrift: {error-factor: 1000000}"
    job.publish(report(broken, reports.case("Moved", VerdictKind.DRIFT, moved)))
    assert "has other verdicts" not in "".join(each["output"]["summary"] for each in github.checks)


def test_a_run_that_waits_for_approval_is_not_published(job: Job, github: GitHub) -> None:
    run = WORKFLOW_RUN["workflow_run"] | {"conclusion": "action_required"}
    job.on("workflow_run", event("workflow-run-completed", {"action": "completed", "workflow_run": run}))
    published = job.publish(None)
    assert published.lines == ["Nothing to publish: the run waits for a maintainer's approval."]
    assert github.requests == []


def test_a_comments_order_names_the_head(job: Job, github: GitHub) -> None:
    job.on("issue_comment", event("issue-comment-created", COMMENT))
    job.publish(red(), PublishOptions(head=HEAD))
    assert github.checks[0]["head_sha"] == HEAD
    assert len(github.bodies(7)) == 1
    published = job.publish(red(2), PublishOptions(head="e" * 40))
    assert published.lines == ["No comment: the pull request has moved on to aaaaaaa, this is of eeeeeee."]


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("main", "'main' is no full commit id"),
        (HEAD, "is for issue_comment events"),
        ("", "give --head, the head that the order was about"),
    ],
)
def test_a_head_that_does_not_belong_there(job: Job, head: str, said: str) -> None:
    if head != HEAD:
        job.on("issue_comment", event("issue-comment-created", COMMENT))
    with pytest.raises(UsageError, match=said):
        job.publish(red(), PublishOptions(head=head))


def test_the_outputs_of_an_order(job: Job, github: GitHub) -> None:
    github.permissions = {"ada": "write"}
    body = COMMENT["comment"] | {"body": "/export accept bert/* not yet\nthanks"}
    job.on("issue_comment", event("issue-comment-created", COMMENT | {"comment": body}))
    answer_comment(job.environment, lambda _: job.client)
    assert job.outputs == {
        "command": "accept",
        "case": "bert/*",
        "reason": "not yet (ada)",
        "pull-request": "7",
        "head-sha": HEAD,
        "head-repository": FORK,
        "base-ref": "main",
    }


def test_a_wrong_command_of_a_maintainer_is_answered_once(job: Job, github: GitHub) -> None:
    github.permissions = {"ada": "write"}
    github.fail("after", "POST", "/comments")
    body = COMMENT["comment"] | {"body": "/export rum"}
    job.on("issue_comment", event("issue-comment-created", COMMENT | {"comment": body}))
    with pytest.raises(NotObeyed, match="did you mean run"):
        answer_comment(job.environment, lambda _: job.client)
    (answer,) = github.bodies(7)
    assert answer.endswith(
        "\n@ada: not done, since there is no command 'rum'; did you mean run? write `/export run`, "
        "`/export full`, or `/export accept CASE reason`"
    )
    assert job.outputs == {"command": ""}


def test_an_ordinary_comment_sets_an_empty_output(job: Job, github: GitHub) -> None:
    body = COMMENT["comment"] | {"body": "nice"}
    for values in (COMMENT | {"comment": body}, COMMENT | {"issue": {"number": 7}}):
        job.on("issue_comment", event("issue-comment-created", values))
        assert answer_comment(job.environment, lambda _: job.client) is None
    assert (job.folder / "outputs").read_text().count("command<<") == 2
    assert github.requests == []


def test_another_event_has_no_comment_to_read(job: Job) -> None:
    with pytest.raises(UsageError, match="this is a workflow_run event; comments come with issue_comment"):
        answer_comment(job.environment, lambda _: job.client)


def test_the_client_is_the_jobs(github: GitHub) -> None:
    assert client_of({}) is None
    for address in ("ghe.invalid", "ftp://x", "https://"):
        with pytest.raises(UsageError, match=r"GITHUB_API_URL: '.*' is no address such as https"):
            client_of({"GITHUB_TOKEN": github.token, "GITHUB_API_URL": address})
    client = client_of({"GITHUB_TOKEN": github.token, "GITHUB_API_URL": github.url})
    assert client is not None
    github.login = "ada"
    assert client.get("/user", User).login == "ada"


SETTINGS = ".github/hfexport.yml"
BASE, OLDER = "c" * 40, "9" * 40


def forged() -> Report:
    """A report that claims the best of outcomes that are none of it."""
    (case,) = red().cases
    lies = {"verdict": VerdictKind.OK, "outcome": OutcomeKind.PASS, "message": "", "stage": "", "signature": ""}
    return red().model_copy(update={"cases": (case.model_copy(update=lies),), "fail_on": ()})


def test_a_forged_verdict_is_not_published(job: Job, github: GitHub) -> None:
    assert merge_safety(forged()) == "yes"
    job.publish(forged())
    (check,) = github.checks
    assert check["conclusion"] == "failure"
    assert check["output"]["title"] == "1 regression in 1 cause · safe to merge: no"
    (body,) = github.bodies(7)
    said = "report.json has other verdicts, which its outcomes do not bear out: tiny/Broken0/onnx/dynamic/forward"
    assert said in body
    assert "which could falsify them: a green is advice, not proof" in body
    assert json.loads(job.outputs["counts"])["regression"] == 1
    written = Report.model_validate_json(Path(job.outputs["report-json"]).read_text())
    assert written.cases[0].verdict is VerdictKind.REGRESSION


def test_findings_are_accepted_by_the_bases_settings_and_by_no_others(job: Job, github: GitHub) -> None:
    entry = b"accepted:\n  - {id: 'tiny/*', reason: not shipped, expires: 2026-12-31}\n"
    github.history.commits[BASE] = [OLDER]
    github.files = {(HEAD, SETTINGS): entry, (OLDER, SETTINGS): entry, ("", SETTINGS): entry}
    (case,) = red().cases
    excuse = Expected(entry="accepted (tiny/*)", reason="mine", change="in force")
    excused = red().model_copy(
        update={
            "cases": (case.model_copy(update={"verdict": VerdictKind.KNOWN, "expected": excuse}),),
            "base": Revision(name="main", sha=OLDER),  # of the change's own choice
        }
    )
    job.publish(excused)
    assert github.checks[0]["conclusion"] == "failure"
    github.files[BASE, SETTINGS] = entry
    job.publish(red(), PublishOptions(today=date(2026, 12, 31)))
    assert github.checks[0]["conclusion"] == "success"
    assert "accepted until 2026-12-31: not shipped" in github.checks[0]["output"]["summary"]
    job.publish(red(), PublishOptions(today=date(2027, 1, 1)))
    assert github.checks[0]["conclusion"] == "failure"
    job.publish(red(), PublishOptions(today=date(2026, 12, 31), settings="other.yml"))
    assert github.checks[0]["conclusion"] == "failure"


def test_what_is_red_is_for_the_base_to_say_and_a_report_can_only_add(job: Job, github: GitHub) -> None:
    moved = PASS.model_copy(update={"components": (Component(name="model", max_abs=1e-2),)})
    drift = report(reports.case("Moved", VerdictKind.OK, moved))
    job.publish(drift)
    assert github.checks[0]["conclusion"] == "success"
    github.files[BASE, SETTINGS] = b"fail-on: [drift]\n"
    job.publish(drift)
    assert github.checks[0]["conclusion"] == "failure"
    github.files[BASE, SETTINGS] = b"fail-on: [drift]\ndrift: {error-factor: 1000000}\n"
    job.publish(drift)
    assert github.checks[0]["conclusion"] == "success"
    job.publish(drift.model_copy(update={"fail_on": (VerdictKind.OK,)}))
    assert github.checks[0]["conclusion"] == "failure"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"fail-on: [nothing]", ".github/hfexport.yml (the base): fail-on"),
        (b"cases: gone.py:build", ""),  # a file that has no part here
        (None, "403 Resource not accessible by integration; the token lacks the right to do this"),
    ],
)
def test_settings_that_cannot_be_read_excuse_nothing(
    job: Job, github: GitHub, content: bytes | None, said: str
) -> None:
    github.refused = set() if content else {"contents"}
    github.files[BASE, SETTINGS] = content or b""
    job.publish(red())
    summary = github.checks[0]["output"]["summary"]
    assert ("judged by default settings, since the base's could not be read:" in summary) == bool(said)
    assert said in summary
    assert github.checks[0]["conclusion"] == "failure"


def test_a_pushs_base_is_what_was_there_before(job: Job, github: GitHub) -> None:
    values = {"before": BASE, "after": HEAD, "ref": "refs/heads/main", "deleted": False}
    github.files = {(BASE, SETTINGS): b"accepted: [{id: 'tiny/*', reason: not shipped}]\n"}
    job.on("push", event("push", values)).publish(red())
    assert github.checks[0]["conclusion"] == "success"


def test_flaky_is_what_the_runs_of_a_case_bear_out(job: Job, github: GitHub) -> None:
    (case,) = red().cases
    assert case.head is not None
    passed, failed = told_of(PASS), told_of(case.head)
    claims = [
        ((failed, passed, passed), "success"),
        ((failed, failed, failed), "failure"),
        ((passed, failed, failed), "failure"),  # not this case's runs
    ]
    for head, conclusion in claims:
        again = Tried(base=(passed,) * 3, head=head)
        told = case.model_copy(update={"verdict": VerdictKind.FLAKY, "tried": again})
        job.publish(red().model_copy(update={"cases": (told,)}))
        assert github.checks[0]["conclusion"] == conclusion, head
