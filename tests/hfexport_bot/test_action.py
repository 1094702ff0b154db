"""The action as a whole: inputs and events to command lines, and the files around it that have to agree."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hfexport_bot.action import act
from hfexport_bot.cli import cli, main
from hfexport_bot.errors import UsageError
from hfexport_bot.execution.client import RunResult
from hfexport_bot.github.checks import conclude
from hfexport_bot.inputs import INPUTS, OPTIONS, PUBLISH_OPTIONS, RUN_OPTIONS
from hfexport_bot.schema import CaseRequest, Outcome, OutcomeKind, Report, RunnerSetup
from hfexport_bot.settings import SettingsFile

ROOT = Path(__file__).parents[2]
SHA, OTHER = "a" * 40, "b" * 40


class Job:
    """A job of GitHub's in a folder, whose command lines are kept and come to the given codes."""

    def __init__(self, folder: Path, event: str, payload: dict[str, Any], **inputs: str) -> None:
        file = folder / "event.json"
        file.write_text(json.dumps(payload))
        self.environment = {
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_REPOSITORY": "owner/name",
            "GITHUB_SHA": SHA,
            "GITHUB_OUTPUT": str(folder / "outputs"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            **{f"INPUT_{name.upper().replace('_', '-')}": value for name, value in inputs.items()},
        }
        self.lines: list[list[str]] = []
        self.tokens: list[str | None] = []
        self.codes: dict[str, int] = {}
        self.reasons: list[str] = []
        self.published: Report | None = None

    def call(self, line: Sequence[str]) -> int:
        self.lines.append([*line])
        self.tokens.append(self.environment.get("GITHUB_TOKEN"))
        if line[0] == "publish" and (report := Path(line[-1]) / "report.json").exists():
            self.published = Report.model_validate_json(report.read_text())
        self.reasons += [f"--base and {line[0]} are no good"] if line[0] in self.codes else []
        return self.codes.get(line[0], 0)

    def act(self) -> int:
        return act(self.environment, self.call, cli.commands, self.reasons)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    monkeypatch.chdir(tmp_path)
    return lambda event, payload, **inputs: Job(tmp_path, event, payload, **inputs)


PULL = {
    "action": "opened",
    "pull_request": {
        "number": 7,
        "head": {"sha": OTHER, "ref": "topic", "repo": {"full_name": "fork/name"}},
        "base": {"sha": "c" * 40},
        "user": {"login": "somebody"},
    },
}
COMMENT = {
    "action": "created",
    "issue": {"number": 7, "pull_request": {}},
    "comment": {"id": 1, "body": "/export run", "user": {"login": "m"}, "created_at": "2026-11-30T00:00:00Z"},
}


def test_a_pull_request_runs_and_is_published(job: Callable[..., Job]) -> None:
    it = job("pull_request", PULL, token="secret")
    assert it.act() == 0
    assert it.lines == [
        ["run", "--repo", ".", "--base", f"{SHA}^1", "--head", SHA, "--out", "hfexport-out"],
        ["publish", "--out", "hfexport-out", "--", "hfexport-out"],
    ]
    assert it.tokens == [None, "secret"]
    assert "INPUT_TOKEN" not in it.environment


def test_inputs_become_options(job: Callable[..., Job]) -> None:
    given = {"backends": "onnx, dynamo", "shapes": "static\ndynamic", "fail_on": "regression fixed", "install": "true"}
    it = job("pull_request", PULL, mode="run", models="bert llama", seconds="9", out="there", cache="kept", **given)
    assert it.act() == 0
    (line,) = it.lines
    assert line[:9] == ["run", "--repo", ".", "--base", f"{SHA}^1", "--head", SHA, "--out", "there"]
    lists = "--model=bert --model=llama --backend=onnx --backend=dynamo --shapes=static --shapes=dynamic"
    assert sorted(line[9:]) == sorted(f"{lists} --install --seconds=9 --fail-on=regression --fail-on=fixed".split())
    assert it.environment["XDG_CACHE_HOME"] == str(Path.cwd() / "kept")


def test_a_shells_names_do_as_well(job: Callable[..., Job]) -> None:
    it = job("pull_request", PULL, mode="publish")
    it.environment |= {"INPUT_CHECK_NAME": "Nightly", "INPUT_FAIL_ON": "flaky"}
    it.act()
    assert it.lines == [
        ["publish", "--out", "hfexport-out", "--fail-on=flaky", "--check-name=Nightly", "--", "hfexport-out"]
    ]


@pytest.mark.parametrize(
    ("codes", "mode", "code", "commands"),
    [
        ({"run": 1}, "run", 0, ["run"]),  # the check of the other stage is red
        ({"run": 1, "publish": 0}, "auto", 0, ["run", "publish"]),
        ({"run": 1, "publish": 1}, "auto", 1, ["run", "publish"]),  # no check could be made
        ({"run": 3}, "auto", 3, ["run", "publish"]),  # the check concludes all the same
        ({"run": 2}, "run", 2, ["run"]),
        ({"run": 130}, "auto", 130, ["run"]),
    ],
)
def test_exit_codes(job: Callable[..., Job], codes: dict[str, int], mode: str, code: int, commands: list[str]) -> None:
    it = job("pull_request", PULL, mode=mode)
    it.codes = codes
    assert it.act() == code
    assert [line[0] for line in it.lines] == commands


def test_a_comment_is_read_with_the_token(job: Callable[..., Job]) -> None:
    it = job("issue_comment", COMMENT)
    it.environment["GITHUB_TOKEN"] = "secret"
    assert it.act() == 0
    assert (it.lines, it.tokens) == ([["command"]], ["secret"])
    it = job("issue_comment", COMMENT, mode="publish", head=OTHER, accept="bert/* it's not shipped yet (m)")
    it.act()
    accept = ["--accept", "bert/*", "it's not shipped yet (m)"]
    assert it.lines == [["publish", "--out", "hfexport-out", f"--head={OTHER}", *accept, "--", "hfexport-out"]]


def test_without_a_base_only_what_is_named_is_checked(job: Callable[..., Job]) -> None:
    it = job("schedule", {}, mode="run", models="bert", tasks="generate")
    it.act()
    assert it.lines == [["check", "--tree", ".", "--out", "hfexport-out", "--task=generate", "--", "bert"]]
    it = job("schedule", {}, mode="run")
    assert (it.act(), it.lines) == (2, [])
    it = job("schedule", {}, mode="run", base="v1.0")
    it.act()
    assert it.lines[0][3:7] == ["--base", "v1.0", "--head", SHA]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"install": "maybe"}, "input install: 'maybe' is neither true nor false"),
        ({"accept": "bert/*", "mode": "publish"}, "input accept: give a case and then the reason"),
        ({"comment": "sometimes"}, "input comment: 'sometimes' is not one of 'on-finding', 'always', 'never'"),
        ({"backends": "onnx tensorrt", "seconds": "x"}, "input backends: 'tensorrt' is not one of 'dynamo'"),
        ({"backends": "x", "seconds": "nan"}, "; input seconds: nan is no number"),
        (
            {"settings": "../../etc/passwd"},
            "input settings: '../../etc/passwd' leads out of the repository; give a path",
        ),
        ({"settings": "/etc/passwd"}, "input settings: '/etc/passwd' leads out of the repository"),
        ({"max_models": "-1", "mode": "run"}, "input max-models: -1 is not in the range"),
        ({"out": "link"}, "input out: link leads through a link to"),
    ],
)
def test_wrong_inputs_are_one_clear_error_of_the_check_and_nothing_runs(
    job: Callable[..., Job], tmp_path: Path, capsys: Any, inputs: dict[str, str], message: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    it = job("pull_request", PULL, **inputs)
    assert it.act() == 2
    assert message in capsys.readouterr().err
    assert [line[0] for line in it.lines] == ([] if inputs.get("mode") == "run" else ["publish"])
    left = it.published or Report.model_validate_json((tmp_path / "hfexport-out" / "report.json").read_text())
    assert message in left.failure
    assert left.head.sha == OTHER
    if inputs.get("mode") == "run":  # what no other job publishes is told by this one
        assert message in (tmp_path / "outputs").read_text().partition("problem<<")[2]
        assert message.replace("'", "") in (tmp_path / "summary").read_text().replace("'", "")
    else:
        assert it.lines[0][-1] == "hfexport-out"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("pull_request", {"mode": "both"}, "input mode: 'both' is none of auto, run, publish"),
        ("pull_request_target", {}, "pull_request_target gives its jobs a token that may write"),
        ("pull_request_target", {"mode": "run"}, "pull_request_target gives its jobs a token that may write"),
        ("workflow_run", {"mode": "run"}, "workflow_run gives its jobs a token that may write"),
    ],
)
def test_what_may_not_be_done_is_told_by_the_check_and_runs_nothing(
    job: Callable[..., Job], name: str, inputs: dict[str, str], message: str
) -> None:
    run = {"id": 1, "run_attempt": 1, "head_sha": OTHER, "event": "pull_request", "conclusion": "success"}
    it = job(name, {**PULL, "workflow_run": run}, token="secret", **inputs)
    assert it.act() == 2
    assert [line[0] for line in it.lines] == ["publish"]
    assert it.published is not None
    assert message in it.published.failure


@pytest.mark.parametrize(
    ("name", "inputs", "said"),
    [("release", {}, "nothing to do on 'release' events"), ("issue_comment", {"mode": "x"}, "input mode: 'x'")],
)
def test_what_cannot_even_begin_is_told_by_summary_and_outputs(
    job: Callable[..., Job], tmp_path: Path, name: str, inputs: dict[str, str], said: str
) -> None:
    it = job(name, COMMENT, **inputs)
    with contextlib.suppress(UsageError):
        assert it.act() == 2
    assert it.lines == []
    assert said in (tmp_path / "outputs").read_text()
    assert said in (tmp_path / "summary").read_text()


def test_a_command_that_refuses_its_environment_is_told_too(job: Callable[..., Job], tmp_path: Path) -> None:
    it = job("issue_comment", COMMENT)
    it.codes = {"command": 2}  # such as for an address that is none
    assert it.act() == 2
    assert "command are no good" in (tmp_path / "outputs").read_text()


@pytest.mark.parametrize("mode", ["run", "auto", "publish"])
def test_what_is_told_of_a_failure_lies_where_reports_do(job: Callable[..., Job], tmp_path: Path, mode: str) -> None:
    (tmp_path / "hfexport-out").mkdir()
    (tmp_path / "hfexport-out" / "report.json").write_text("{}")
    it = job("pull_request", PULL, mode=mode, seconds="-5")
    assert it.act() == 2
    folder = tmp_path / "hfexport-out" / ("failed" if mode == "publish" else "")
    assert "input seconds" in Report.model_validate_json((folder / "report.json").read_text()).failure
    assert mode != "publish" or (tmp_path / "hfexport-out" / "report.json").read_text() == "{}"


@pytest.mark.parametrize("mode", ["auto", "run"])
def test_why_a_run_failed_reaches_the_stage_that_publishes(job: Callable[..., Job], tmp_path: Path, mode: str) -> None:
    it = job("pull_request", PULL, mode=mode)
    it.codes = {"run": 2}
    assert it.act() == 2
    left = Report.model_validate_json((tmp_path / "hfexport-out" / "report.json").read_text())
    assert left.failure == "input base and run are no good"
    assert (it.published == left) == (mode == "auto")


def test_a_push_is_compared_with_the_first_revision_that_is_there(
    job: Callable[..., Job], repository: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = repository.commit({"a": "1"})
    second = repository.commit({"a": "2"})
    monkeypatch.chdir(repository.path)

    def base_of(before: str, after: str, branch: str) -> str:
        payload = {"before": before, "after": after, "ref": f"refs/heads/{branch}"}
        it = job("push", payload | {"repository": {"default_branch": "main"}}, mode="run", out="there")
        it.act()
        return it.lines[0][4] if it.lines else ""

    assert base_of(first, second, "main") == first
    assert base_of(OTHER, second, "main") == base_of("0" * 40, second, "main") == f"{second}^1"
    assert base_of(OTHER, second, "topic") == f"{second}^1"
    repository.git("update-ref", "refs/remotes/origin/main", first)
    assert base_of(OTHER, second, "topic") == base_of("0" * 40, second, "topic") == "origin/main"
    assert base_of("0" * 40, first, "main") == ""
    left = Report.model_validate_json((repository.path / "there" / "report.json").read_text())
    assert conclude(left).value == "neutral"
    assert "no commit before it" in left.not_run[0].reason


def test_a_changes_own_code_never_runs_with_a_token_that_writes(job: Callable[..., Job]) -> None:
    it = job("pull_request_target", PULL)
    assert (it.act(), [line[0] for line in it.lines]) == (2, ["publish"])


def test_a_report_that_the_change_brought_is_none(job: Callable[..., Job], tmp_path: Path) -> None:
    brought = tmp_path / "hfexport-out" / "report.json"
    brought.parent.mkdir()
    brought.write_text("{}")
    job("pull_request", PULL, mode="run").act()
    assert not brought.exists()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for out in ("link", "link/below"):
        assert job("pull_request", PULL, mode="run", out=out).act() == 2


def test_a_run_on_a_real_event_leaves_outputs_and_a_summary(
    repository: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    model = "class AModel(PreTrainedModel):\n    def forward(self): return {0}\n"
    base = repository.commit({"modeling_a.py": model.format(1)})
    head = repository.commit({"modeling_a.py": model.format(2)})

    def run_cases(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        bad = (setup.log_dir or "").endswith("head")
        outcome = (
            Outcome(kind=OutcomeKind.ERROR, stage="trace", message="no") if bad else Outcome(kind=OutcomeKind.PASS)
        )
        return RunResult({each.id: outcome for each in requests})

    it = Job(tmp_path, "merge_group", {"merge_group": {"base_sha": base, "head_sha": head}})
    for name, value in {**it.environment, "INPUT_MODE": "run", "INPUT_BACKENDS": "onnx"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(repository.path)
    assert main(["action"], run_cases=run_cases, list_workarounds=tuple) == 0
    outputs = (tmp_path / "outputs").read_text()
    assert '"regression": 1' in outputs
    assert "\nhfexport-out/report.json\n" in outputs
    assert "1 regression in 1 cause" in (tmp_path / "summary").read_text()
    assert f"$ hfexport-bot run --repo . --base {base} --head {head}" in capsys.readouterr().err


# What follows holds files to each other: whoever changes one of them changes the others too.


def load(path: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((ROOT / path).read_text())
    return found


ACTION, COMPOSITE = load("action.yml"), load("composite/action.yml")
WORKFLOWS = sorted(path.name for path in (ROOT / "examples" / "workflows").glob("*.yml"))
#: The last part of the name of the action in workflows.
OURS = "/hfexport-bot@"
#: How workflows name the action, and its image, until a release is put in.
OWNER = "OWNER/hfexport-bot"
PLACEHOLDERS = {f"{OWNER}@{'0' * 40}", f"ghcr.io/{OWNER}@sha256:{'0' * 64}"}
RELEASE = {"ACTION": f"zoo/hfexport-bot@{'a1' * 20}", "IMAGE": f"ghcr.io/zoo/hfexport-bot@sha256:{'b2' * 32}"}


def steps_of(workflow: str) -> list[dict[str, Any]]:
    jobs = load(f"examples/workflows/{workflow}")["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def test_action_yml_has_the_inputs_that_are_read() -> None:
    assert ACTION["inputs"].keys() == INPUTS
    assert all(each["description"] for each in ACTION["inputs"].values())


def test_each_input_is_an_option_of_its_command() -> None:
    for names, commands in ((OPTIONS, ("run", "check")), (RUN_OPTIONS, ("run",)), (PUBLISH_OPTIONS, ("publish",))):
        for command in commands:
            known = {option for parameter in cli.commands[command].params for option in parameter.opts}
            assert {*names.values()} <= known


def test_defaults_are_those_of_the_commands() -> None:
    defaults = {name: each["default"] for name, each in ACTION["inputs"].items()}
    for parameter in cli.commands["publish"].params:
        if parameter.name in ("comment", "out"):
            assert defaults[parameter.name] == str(parameter.default)
        if parameter.name == "check_name":
            assert defaults["check-name"] == parameter.default
    for name in ("backends", "shapes", "tasks", "engine", "fail-on", "budget-minutes", "max-models"):
        assert name.replace("-", "_") in SettingsFile.model_fields
        assert defaults[name] == ""  # the settings file decides
    said = ACTION["inputs"]["budget-minutes"]["description"], ACTION["inputs"]["max-models"]["description"]
    assert f"or {SettingsFile().budget_minutes:g}." in said[0]
    assert f"or {SettingsFile().max_models}." in said[1]


def test_the_outputs_are_those_that_are_set() -> None:
    sources = [ROOT / "hfexport_bot" / "github" / name for name in ("job.py", "outputs.py")]
    keys = {
        key.value
        for source in sources
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    files = {"report-json", "report-md", "junit-xml"}
    assert ACTION["outputs"].keys() - files <= keys
    assert {
        "counts",
        "regressions",
        "conclusion",
        "problem",
        "check-url",
        "comment-url",
        "head-sha",
        "base-ref",
    } <= keys


def test_the_composite_action_is_the_same_without_a_container() -> None:
    own = {name: each for name, each in COMPOSITE["inputs"].items() if name != "torch-index"}
    assert own == ACTION["inputs"]
    assert {name: each["description"] for name, each in COMPOSITE["outputs"].items()} == {
        name: each["description"] for name, each in ACTION["outputs"].items()
    }
    act_step = COMPOSITE["runs"]["steps"][-1]
    assert act_step["env"] == {
        f"INPUT_{name.upper().replace('-', '_')}": f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]
    }
    assert {each["value"] for each in COMPOSITE["outputs"].values()} == {
        f"${{{{ steps.{act_step['id']}.outputs.{name} }}}}" for name in ACTION["outputs"]
    }


def test_the_image_has_the_torch_of_the_lock() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    (version,) = re.findall(r"^ARG TORCH_VERSION=(.+)$", dockerfile, re.MULTILINE)
    assert f"torch=={version}" in (ROOT / "requirements.lock").read_text().splitlines()
    (index,) = re.findall(r"^ARG TORCH_INDEX=(.+)$", dockerfile, re.MULTILINE)
    assert COMPOSITE["inputs"]["torch-index"]["default"] == index


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_workflows_use_what_there_is(workflow: str) -> None:
    content, steps = load(f"examples/workflows/{workflow}"), steps_of(workflow)
    assert "concurrency" in content
    assert content["permissions"] in ({}, {"contents": "read"})
    for step in steps:
        if OURS in step.get("uses", ""):
            assert step.get("with", {}).keys() <= ACTION["inputs"].keys()
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    text = (ROOT / "examples" / "workflows" / workflow).read_text()
    for action in re.findall(r"uses: (.+)$", text, re.MULTILINE):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # \S.*", action), action
    for command, options in re.findall(r"hfexport-bot (\w+)([^\n]*)", text.partition("jobs:")[2]):
        if command in cli.commands:
            known = {option for parameter in cli.commands[command].params for option in parameter.opts}
            assert {*re.findall(r"--[a-z][a-z-]*", options)} <= known
    for used in re.findall(r"steps\.order\.outputs\.([\w-]+)", text):
        assert used in ACTION["outputs"]


def test_what_runs_a_changes_code_may_only_read_and_what_may_write_runs_none() -> None:
    for workflow in WORKFLOWS:
        content = load(f"examples/workflows/{workflow}")
        for name, each in content["jobs"].items():
            rights = each.get("permissions", content["permissions"])
            writes = "write" in rights.values()
            modes = [step.get("with", {}).get("mode") for step in each["steps"] if OURS in step.get("uses", "")]
            checks_out = any(step.get("uses", "").startswith("actions/checkout@") for step in each["steps"])
            if workflow == "private.yml":
                assert writes  # its authors may push anyway
            elif writes:
                assert "run" not in modes, (workflow, name)
                assert not checks_out, (workflow, name)
    run = load("examples/workflows/pull-request.yml")["jobs"]["run"]
    assert run["steps"][0]["with"]["fetch-depth"] == 2
    (upload,) = [step for step in run["steps"] if "upload-artifact" in step["uses"]]
    assert upload["if"] == "always()"


def test_publish_waits_for_the_workflow_that_runs() -> None:
    publish, run = load("examples/workflows/publish.yml"), load("examples/workflows/pull-request.yml")
    assert publish[True]["workflow_run"]["workflows"] == [run["name"]]  # YAML reads `on` as true
    (upload,) = [s for s in steps_of("pull-request.yml") if "upload-artifact" in s["uses"]]
    (download,) = [s for s in steps_of("publish.yml") if "download-artifact" in s["uses"]]
    assert upload["with"]["name"] == download["with"]["name"]


def test_the_readme_names_every_workflow_and_input() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [name for name in WORKFLOWS if f"examples/workflows/{name}" not in readme] == []
    section = readme.partition("## On GitHub")[2].partition("\n## ")[0]
    assert [name for name in INPUTS if f"`{name}`" not in section] == []


def test_the_readme_says_how_to_put_a_release_into_the_workflows(tmp_path: Path) -> None:
    """There is one placeholder for the action and one for its image, and the README's command replaces both."""
    folder, readme = tmp_path / ".github" / "workflows", (ROOT / "README.md").read_text()
    shutil.copytree(ROOT / "examples" / "workflows", folder)
    named = re.compile(r"\S*hfexport-bot(?:/composite)?@[\w:…]*")
    before = [name for file in sorted(folder.iterdir()) for name in named.findall(file.read_text())]
    assert {*before} == PLACEHOLDERS
    short = {re.sub("0+", "000…", name) for name in PLACEHOLDERS}
    in_readme = {
        name.removeprefix("docker://") for name in re.findall(r"[\w:/.]*OWNER/hfexport-bot[^@\s]*@[\w:…]+…", readme)
    }
    assert short < in_readme <= short | {f"{OWNER}/composite@000…"}

    (command,) = re.findall(r"^\$ (sed .*)$", readme, re.MULTILINE)
    subprocess.run(["sh", "-euc", command], cwd=tmp_path, env=os.environ | RELEASE, check=True)
    after = [name for file in sorted(folder.iterdir()) for name in named.findall(file.read_text())]
    assert after == [RELEASE["IMAGE" if "sha256" in name else "ACTION"] for name in before]
    assert all(f"{name}=" in (ROOT / ".github" / "workflows" / "release.yml").read_text() for name in RELEASE)
