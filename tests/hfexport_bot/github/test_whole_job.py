"""The action in two stages, as in the workflows to copy, and in one job: from a pull request to what GitHub shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.cli import main
from hfexport_bot.execution.client import RunResult
from hfexport_bot.schema import CaseRequest, Outcome, OutcomeKind, RunnerSetup
from tests.hfexport_bot.github.payloads import event
from tests.hfexport_bot.github.server import REPOSITORY, GitHub
from tests.hfexport_bot.github.test_event import WORKFLOW_RUN, pull_request
from tests.hfexport_bot.github.test_outputs import read_outputs

#: The head in the payloads.
HEAD = "a" * 40
MODEL = "class AModel(PreTrainedModel):\n    def forward(self): return {0}\n"
Start = Callable[..., int]


def of_head(payload: Any, head: str) -> Any:
    """A payload with the head that there really is."""
    return json.loads(json.dumps(payload).replace(HEAD, head))


def breaks_on_head(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
    kind = OutcomeKind.ERROR if (setup.log_dir or "").endswith("head") else OutcomeKind.PASS
    return RunResult({each.id: Outcome(kind=kind, stage="trace") for each in requests})


@pytest.fixture
def merged(repository: Any, github: GitHub) -> tuple[str, str]:
    """A pull request that changes a model: its head, and GitHub's merge of it, which is checked out."""
    base = repository.commit({"modeling_a.py": MODEL.format(1)})
    repository.git("checkout", "-q", "-b", "topic")
    head = repository.commit({"modeling_a.py": MODEL.format(2)})
    repository.git("checkout", "-q", "-b", "merge", "main")
    repository.git("merge", "-q", "--no-ff", "-m", f"Merge {head} into {base}", "topic")
    merge = repository.git("rev-parse", "HEAD")
    github.history.add(head, base)
    github.history.add(merge, base, head)
    github.history.branches["main"] = base
    return head, merge


@pytest.fixture
def start(repository: Any, github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Run a job of an event, and give its exit code."""

    def job(name: str, payload: Any, sha: str, **inputs: str) -> int:
        (tmp_path / "event.json").write_text(json.dumps(payload))
        values = {
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_SHA": sha,
            "GITHUB_API_URL": github.url,
            "GITHUB_OUTPUT": str(tmp_path / "outputs"),
            **{f"INPUT_{key.upper()}": value for key, value in inputs.items()},
        }
        with monkeypatch.context() as patch:
            patch.chdir(repository.path)
            patch.delenv("GITHUB_STEP_SUMMARY", raising=False)
            for variable, value in values.items():
                patch.setenv(variable, value)
            return main(["action"], run_cases=breaks_on_head, list_workarounds=tuple)

    return job


def test_one_stage_runs_a_forks_code_and_the_other_publishes(
    start: Start, github: GitHub, merged: tuple[str, str], tmp_path: Path
) -> None:
    head, merge = merged
    github.pull(7, head, "fork/zoo")
    assert start("pull_request", of_head(pull_request("fork/zoo"), head), merge, mode="run", backends="onnx") == 0
    assert (github.requests, github.checks) == ([], [])
    payload = of_head(event("workflow-run-completed", WORKFLOW_RUN), head)
    assert start("workflow_run", payload, merge, token=github.token) == 0
    (check,) = github.checks
    assert (check["conclusion"], check["head_sha"]) == ("failure", head)
    assert "1 regression in 1 cause" in github.bodies(7)[0]
    outputs = read_outputs((tmp_path / "outputs").read_text())
    assert outputs["conclusion"] == "failure"
    assert json.loads(outputs["counts"])["regression"] == 1


@pytest.mark.parametrize(("rights", "code"), [({"checks", "pull-requests"}, 0), (set(), 1)])
def test_all_in_one_job_is_red_itself_only_where_no_check_can_be(
    start: Start, github: GitHub, merged: tuple[str, str], rights: set[str], code: int
) -> None:
    head, merge = merged
    github.pull(7, head, REPOSITORY)
    github.rights = rights
    payload = of_head(pull_request(), head)
    assert start("pull_request", payload, merge, backends="onnx", token=github.token) == code
    assert [each["conclusion"] for each in github.checks] == ["failure"] * (not code)


def test_a_run_that_fails_concludes_the_check(start: Start, github: GitHub, merged: tuple[str, str]) -> None:
    head, merge = merged
    github.pull(7, head, REPOSITORY)
    assert start("pull_request", of_head(pull_request(), head), merge, engine="none", token=github.token) == 2
    (check,) = github.checks
    assert check["conclusion"] == "failure"
    assert "input engine: 'none' is not one of 'own', 'repo', 'both', 'auto'" in check["output"]["summary"]


def test_why_a_run_failed_goes_from_the_one_stage_to_the_other(
    start: Start, github: GitHub, merged: tuple[str, str], tmp_path: Path
) -> None:
    head, merge = merged
    github.pull(7, head, "fork/zoo")
    given = {"models": "a nothing nowhere", "mode": "run"}
    assert start("pull_request", of_head(pull_request("fork/zoo"), head), merge, **given) == 2
    assert (
        start("workflow_run", of_head(event("workflow-run-completed", WORKFLOW_RUN), head), merge, token="a-token") == 0
    )
    (check,) = github.checks
    for text in (check["output"]["summary"], read_outputs((tmp_path / "outputs").read_text())["problem"]):
        assert "unknown model 'nothing'" in text
        assert "unknown model 'nowhere'" in text
    assert check["conclusion"] == "failure"


def test_a_job_that_is_ended_concludes_its_check_in_one_request(
    start: Start, github: GitHub, merged: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head, merge = merged

    def end(*_: Any, **__: Any) -> RunResult:
        raise KeyboardInterrupt

    monkeypatch.setitem(globals(), "breaks_on_head", end)
    assert start("pull_request", of_head(pull_request(), head), merge, backends="onnx", token=github.token) == 130
    assert github.requests == [f"POST /repos/{REPOSITORY}/check-runs"]
    assert [(each["conclusion"], each["head_sha"]) for each in github.checks] == [("cancelled", head)]
