"""The commands at the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.cli import main
from tests.hfexport_bot.github.payloads import event
from tests.hfexport_bot.github.reports import red
from tests.hfexport_bot.github.server import REPOSITORY, GitHub
from tests.hfexport_bot.github.test_event import COMMENT, WORKFLOW_RUN

HEAD = "a" * 40
Start = Callable[[str, Any], None]


@pytest.fixture
def start(tmp_path: Path, github: GitHub, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Put this process into a job of that event."""
    github.pull(7, HEAD, "fork/zoo")
    monkeypatch.chdir(tmp_path)

    def put(name: str, payload: Any) -> None:
        Path("event.json").write_text(json.dumps(payload))
        values = {
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": "event.json",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_SHA": HEAD,
            "GITHUB_TOKEN": github.token,
            "GITHUB_API_URL": github.url,
            "GITHUB_OUTPUT": "outputs",
        }
        for variable, value in values.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    return put


def test_publish(start: Start, github: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    start("workflow_run", event("workflow-run-completed", WORKFLOW_RUN))
    Path("report.json").write_text(red().model_dump_json())
    assert main(["publish", "report.json", "--out", "rendered", "--check-name", "Exports", "--comment", "always"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [
        f"check: failure {url}" if n == 0 else f"comment: {url}" for n, url in enumerate(_addresses(github))
    ]
    assert github.checks[0]["name"] == "Exports"
    assert github.bodies(7)[0].startswith("<!-- hfexport-bot:exports ")
    assert sorted(path.name for path in Path("rendered").iterdir()) == ["junit.xml", "report.json", "report.md"]


def _addresses(github: GitHub) -> list[str]:
    return [f"https://github.example/{REPOSITORY}/runs/1", github.comments[0]["html_url"]]


def test_publish_without_anything_to_publish(start: Start, github: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    start("workflow_run", event("workflow-run-completed", WORKFLOW_RUN))
    assert main(["publish", "nowhere"]) == 0
    assert capsys.readouterr().out.startswith("check: failure https://")
    assert github.checks[0]["conclusion"] == "failure"


def test_publish_with_a_wrong_token_fails(start: Start, github: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    start("workflow_run", event("workflow-run-completed", WORKFLOW_RUN))
    github.token = "another"
    assert main(["publish", "nowhere"]) == 3
    assert "the run failed: No check: GET /repos/octo/zoo" in capsys.readouterr().err


def test_publish_is_red_itself_where_no_check_can_be(
    start: Start, github: GitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    start("workflow_run", event("workflow-run-completed", WORKFLOW_RUN))
    github.rights = set()
    assert main(["publish", "nowhere"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("check: failure\nNo check: POST /repos/octo/zoo/check-runs: 403")


def test_publish_outside_a_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("GITHUB_EVENT_NAME", raising=False)
    assert main(["publish"]) == 2
    assert capsys.readouterr().err == (
        "error: GITHUB_EVENT_NAME is not set; this command is for a GitHub Actions job\n"
    )


def test_command(start: Start, github: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    github.permissions = {"ada": "admin"}
    start("issue_comment", event("issue-comment-created", COMMENT))
    assert main(["command"]) == 0
    assert capsys.readouterr().out == f"run at {HEAD} for ada\n"
    assert "command<<end-" in Path("outputs").read_text()


def test_a_command_of_somebody_else(start: Start, github: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    start("issue_comment", event("issue-comment-created", COMMENT))
    assert main(["command"]) == 0  # or anybody could fill the list of runs with failures
    assert capsys.readouterr().out == "not done: ada may not write to octo/zoo\n"
    assert github.comments == []


def test_a_wrong_command_of_a_maintainer(start: Start, github: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    github.permissions = {"ada": "write"}
    body = COMMENT["comment"] | {"body": "/export rum"}
    start("issue_comment", event("issue-comment-created", COMMENT | {"comment": body}))
    assert main(["command"]) == 2
    assert capsys.readouterr().err.startswith("error: not done: there is no command 'rum'; did you mean run?")
    assert len(github.comments) == 1
