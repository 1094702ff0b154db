"""A run in stages at the command line: plan, shards, merge, report, with a runner of the test's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.cli import main
from hfexport_bot.execution.client import RunResult
from hfexport_bot.reporting.summary import headline
from hfexport_bot.schema import CaseRequest, Outcome, OutcomeKind, Report, RunnerEvent, RunnerSetup

MODEL = "class {0}Model(PreTrainedModel):\n    def forward(self): return {1}\n"


class Runner:
    """Passes but for the classes that fail on head, and keeps what it was asked for."""

    def __init__(self, failing: Sequence[str] = ()) -> None:
        self.failing, self.asked = failing, list[str]()

    def __call__(
        self,
        setup: RunnerSetup,
        requests: Sequence[CaseRequest],
        *,
        on_event: Callable[[RunnerEvent], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> RunResult:
        head = (setup.log_dir or "").endswith("head")
        self.asked += [str(request.id) for request in requests if head]
        failed = Outcome(kind=OutcomeKind.ERROR, stage="trace", message="no")
        bad = self.failing if head else ()
        return RunResult(
            {each.id: failed if each.id.class_name in bad else Outcome(kind=OutcomeKind.PASS) for each in requests},
            {"torch": "2.13.0"},
        )


@pytest.fixture
def changed(repository: Any) -> Any:
    """A repository whose HEAD changed four models after ``main``."""
    repository.commit({f"modeling_{name}.py": MODEL.format(name.upper(), 1) for name in "abcd"})
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({f"modeling_{name}.py": MODEL.format(name.upper(), 2) for name in "abcd"})
    return repository


def call(*arguments: object, runner: Any = None) -> int:
    return main([str(each) for each in arguments], run_cases=runner or Runner(), list_workarounds=tuple)


def planned(repository: Any, folder: Path, *more: str) -> Path:
    file = folder / "plan.json"
    arguments = ("plan", "--repo", repository.path, "--base", "main", "--backend", "onnx", "--out", file, *more)
    assert call(*arguments) == 0
    return file


def shard(repository: Any, plan: Path, name: str, runner: Any = None) -> tuple[int, Path]:
    out = plan.parent / name.replace("/", "-")
    code = call("run", "--repo", repository.path, "--plan", plan, "--shard", name, "--out", out, runner=runner)
    return code, out


def report_in(out: Path) -> Report:
    return Report.model_validate_json((out / "report.json").read_text())


def test_shards_come_to_what_one_run_does(changed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    plan = planned(changed, tmp_path, "--shards", "2")
    assert '["1/2", "2/2"]' in (tmp_path / "outputs").read_text()
    runner = Runner(["CModel"])
    done = [shard(changed, plan, name, runner) for name in ("1/2", "2/2")]
    assert sorted(code for code, _ in done) == [0, 1]
    assert len(set(runner.asked)) == 4
    assert call("merge", "--plan", plan, *(out for _, out in done), "--out", tmp_path / "all") == 1
    whole = tmp_path / "whole"
    again = ("--repo", changed.path, "--base", "main", "--backend", "onnx", "--out", whole)
    assert call("run", *again, runner=Runner(["CModel"])) == 1
    reports = (report_in(out) for out in (tmp_path / "all", whole))
    merged, one = (
        each.model_copy(update={"seconds": 0.0, "rerun": each.rerun.model_copy(update={"out": ""})}) for each in reports
    )
    assert merged == one
    assert [case.verdict.value for case in merged.cases] == ["ok", "ok", "regression", "ok"]


def test_a_shard_that_is_missing_fails_the_run_and_is_told(changed: Any, tmp_path: Path, capsys: Any) -> None:
    plan = planned(changed, tmp_path, "--shards", "4")
    _, first = shard(changed, plan, "1/4")
    _, second = shard(changed, plan, "2/4")
    (second / "report.json").write_text("{")
    assert call("merge", "--plan", plan, first, second, tmp_path / "none", "--out", tmp_path / "all") == 3
    report = report_in(tmp_path / "all")
    lacking = [f"shard {number} of 4 gave no report, so 1 case was not run" for number in (2, 3, 4)]
    assert report.failure == "; ".join(lacking)
    assert [(each.kind, each.reason) for each in report.not_run] == [
        ("case", f"shard {number} of 4 gave no result") for number in (2, 3, 4)
    ]
    assert len(report.cases) == 1
    assert any("report.json is no report.json of this version" in note for note in report.notes)
    assert f"the run failed: {report.failure}" in capsys.readouterr().err


def test_reports_of_another_plan_or_of_one_shard_twice_are_refused(changed: Any, tmp_path: Path, capsys: Any) -> None:
    plan = planned(changed, tmp_path, "--shards", "2")
    _, first = shard(changed, plan, "1/2")
    assert call("merge", "--plan", plan, first, first, "--out", tmp_path / "all") == 2
    assert "two reports of shard 1" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    other = planned(changed, tmp_path / "other", "--shards", "3")
    assert call("merge", "--plan", other, first, "--out", tmp_path / "all") == 2
    assert "is of shard 1 of another plan" in capsys.readouterr().err


def test_a_shard_answers_only_for_what_it_was_asked(changed: Any, tmp_path: Path) -> None:
    plan = planned(changed, tmp_path, "--shards", "2")
    outs = [shard(changed, plan, name)[1] for name in ("1/2", "2/2")]
    mine, others = map(report_in, outs)
    forged = mine.model_copy(update={"cases": (*mine.cases[:1], *others.cases)})
    (outs[0] / "report.json").write_text(forged.model_dump_json())
    assert call("merge", "--plan", plan, *outs, "--out", tmp_path / "all") == 3
    report = report_in(tmp_path / "all")
    assert report.failure == "shard 1 of 2 lacks 1 of its cases"
    told = ", ".join(str(case.id) for case in others.cases)
    assert report.notes[-1] == f"shard 1 of 2 told of what it was not asked for, which is left out: {told}"
    assert len(report.cases) == 3


def test_a_plan_of_commits_that_are_not_there_is_refused(changed: Any, tmp_path: Path, capsys: Any) -> None:
    plan = planned(changed, tmp_path)
    content = json.loads(plan.read_text())
    content["head"]["sha"] = "0" * 40
    plan.write_text(json.dumps(content))
    assert shard(changed, plan, "1/1")[0] == 2
    assert f"and {'0' * 12} is not in this clone" in capsys.readouterr().err


def test_what_a_plan_settles_is_not_said_again(changed: Any, tmp_path: Path, capsys: Any) -> None:
    plan = planned(changed, tmp_path, "--shards", "2")
    out = tmp_path / "out"
    assert call("run", "--plan", plan, "--backend", "onnx", "--out", out) == 2
    assert "--backend is settled by the plan" in capsys.readouterr().err
    assert call("run", "--plan", plan, "--out", out) == 2
    assert "this plan has 2 shards; give --shard" in capsys.readouterr().err
    assert call("run", "--plan", plan, "--shard", "2", "--out", out) == 2
    assert "is no shard; write it as 2/8" in capsys.readouterr().err
    assert call("run", "--shard", "1/2", "--out", out) == 2
    assert "give --plan too" in capsys.readouterr().err
    assert call("run", "--out", out) == 2
    assert "Missing option '--base'" in capsys.readouterr().err


def sweep(repository: Any, folder: Path, runner: Runner, *more: object) -> tuple[int, Report]:
    """Plan a sweep over a folder, run its two shards and merge them."""
    folder.mkdir()
    plan = folder / "plan.json"
    assert call("plan", "--tree", repository.path, "--backend", "onnx", "--shards", "2", "--out", plan) == 0
    outs = [folder / "1", folder / "2"]
    for number, out in enumerate(outs, 1):
        assert call("run", "--plan", plan, "--shard", f"{number}/2", "--out", out, runner=runner) == 0
    code = call("merge", "--plan", plan, *outs, "--out", folder / "all", *more)
    return code, report_in(folder / "all")


def test_a_sweep_is_judged_against_an_earlier_one(changed: Any, tmp_path: Path, capsys: Any) -> None:
    code, first = sweep(changed, tmp_path / "first", Runner(["AModel"]))
    assert (code, len(first.cases)) == (0, 4)
    assert {case.verdict.value for case in first.cases} == {"no-baseline"}
    assert "3 of 4 cases pass" in (tmp_path / "first" / "all" / "report.md").read_text()
    changed.commit({"modeling_d.py": None, "modeling_e.py": MODEL.format("E", 1)})
    baseline = tmp_path / "first" / "all" / "report.json"
    code, second = sweep(changed, tmp_path / "second", Runner(["BModel"]), "--baseline", baseline)
    assert code == 1
    assert {case.id.class_name: case.verdict.value for case in second.cases} == {
        "AModel": "fixed",
        "BModel": "regression",
        "CModel": "ok",
        "EModel": "no-baseline",
    }
    assert second.base == first.head
    assert "in the baseline, not in this sweep: modeling_d/DModel/onnx/dynamic/forward" in second.notes
    text = (tmp_path / "second" / "all" / "report.md").read_text()
    assert "1 regression in 1 cause · 1 fixed" in text
    assert "safe to merge" not in text


def test_a_sweep_of_some_models_does_not_stand_for_all(changed: Any, tmp_path: Path) -> None:
    def swept(name: str, broken: list[str], *named: str, earlier: str = "") -> tuple[int, Report, Path]:
        folder = tmp_path / name
        folder.mkdir()
        plan, out = folder / "plan.json", folder / "all"
        models = [part for model in named for part in ("--model", model)]
        assert call("plan", "--tree", changed.path, "--backend", "onnx", *models, "--out", plan) == 0
        assert call("run", "--plan", plan, "--out", folder / "1", runner=Runner(broken)) == 0
        baseline = tmp_path / earlier / "all" / "baseline.json"
        code = call("merge", "--plan", plan, folder / "1", "--out", out, *(("--baseline", baseline) if earlier else ()))
        return code, report_in(out), out / "baseline.json"

    _, _, left = swept("some", [], "a")
    assert not left.exists()
    swept("all", [])
    code, report, _ = swept("some again", [], "a", earlier="all")
    assert (code, len(report.cases), report.notes) == (0, 1, ())
    code, report, _ = swept("broken", ["BModel"], earlier="some again")
    assert code == 1
    assert {each.id.class_name: each.verdict.value for each in report.cases}["BModel"] == "regression"
    changed.commit({"modeling_e.py": MODEL.format("E", 1)})
    _, report, _ = swept("new", ["EModel"], earlier="all")
    assert headline(report).startswith("0 regressions · 1 case without a baseline fails")


def test_a_sweep_that_lacks_a_shard_is_nothing_to_compare_with(changed: Any, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "all"
    assert call("plan", "--tree", changed.path, "--backend", "onnx", "--shards", "2", "--out", plan) == 0
    assert call("run", "--plan", plan, "--shard", "1/2", "--out", tmp_path / "1") == 0
    assert call("merge", "--plan", plan, tmp_path / "1", "--out", out) == 3
    assert not (out / "baseline.json").exists()


def test_a_sweep_of_other_content_is_refused(changed: Any, tmp_path: Path, capsys: Any) -> None:
    plan = tmp_path / "plan.json"
    assert call("plan", "--tree", changed.path, "--model", "a", "--out", plan) == 0
    assert len(json.loads(plan.read_text())["cases"]) == 3
    changed.commit({"modeling_a.py": MODEL.format("A", 3)})
    assert call("run", "--plan", plan, "--out", tmp_path / "out") == 2
    assert "; plan again" in capsys.readouterr().err
    assert call("plan", "--tree", changed.path, "--rest", plan, "--out", plan) == 2
    assert "--rest is for a change; give --base too" in capsys.readouterr().err


def test_nothing_affected_has_no_shards_and_merges(changed: Any, tmp_path: Path) -> None:
    plan = planned(changed, tmp_path, "--head", "main", "--shards", "3")
    assert json.loads(plan.read_text())["shards"] == []
    assert call("merge", "--plan", plan, "--out", tmp_path / "all") == 0


def test_the_schema_of_a_plan(changed: Any, tmp_path: Path, capsys: Any) -> None:
    plan = planned(changed, tmp_path)
    capsys.readouterr()
    assert call("schema", "--plan") == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"].keys() == json.loads(plan.read_text()).keys()


def test_settings_may_lie_elsewhere(changed: Any, tmp_path: Path, capsys: Any) -> None:
    changed.git("checkout", "-q", "main")
    changed.commit({"tools/export.yml": "backends: [dynamo]\nfail-on: []\n"})
    changed.git("checkout", "-q", "topic")
    changed.git("rebase", "-q", "main")
    arguments = ("--repo", changed.path, "--base", "main", "--out", tmp_path / "out", "--settings")
    assert call("run", *arguments, "tools/export.yml", runner=Runner(["AModel"])) == 0
    assert {case.id.backend.value for case in report_in(tmp_path / "out").cases} == {"dynamo"}
    assert call("run", *arguments, "tools/none.yml") == 2
    assert "--settings: there is no tools/none.yml in base" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "begins"), [("markdown", "## Export check"), ("junit", "<?xml"), ("terminal", "\u250c")]
)
def test_a_report_is_rendered_again(changed: Any, tmp_path: Path, capsys: Any, form: str, begins: str) -> None:
    _, out = shard(changed, planned(changed, tmp_path), "1/1")
    capsys.readouterr()
    assert call("report", out, "--format", form) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(begins)
    assert call("report", out, "--format", form, "--out", tmp_path / "again") == 0
    assert (tmp_path / "again").read_text().startswith(begins)
