"""``hfexport-bot cases``, with a runner of the test's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.cli import main
from hfexport_bot.execution.client import RunResult
from hfexport_bot.schema import (
    CaseRequest,
    Census,
    Outcome,
    OutcomeKind,
    RunnerSetup,
    Source,
    SourceTry,
    Task,
    UnavailableCause,
    Variant,
)

MODEL = "class {0}(PreTrainedModel):\n    def forward(self): return 1\n"
MISSING = SourceTry(source="model tests", cause=UnavailableCause.MISSING_LIBRARY, message="no timm")


class Runner:
    """Says that classes whose names begin with A run, and that the others lack a library."""

    def __init__(self, fatal: str = "") -> None:
        self.fatal = fatal
        self.setup: RunnerSetup | None = None
        self.asked: list[str] = []
        self.surveyed = False

    def __call__(self, setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        self.setup, self.asked = setup, [str(request.id) for request in requests]
        self.surveyed = all(request.survey for request in requests)
        good = Outcome(
            kind=OutcomeKind.PASS,
            source="synthesised",
            tried=(MISSING, SourceTry(source="synthesised")),
            parameters=1_000,
            fed=("input_ids",),
            notes=("AModelTest changed what is the process's: grad mode (put back)",),
            seconds=0.25,
        )
        bad = Outcome(
            kind=OutcomeKind.UNAVAILABLE, cause=UnavailableCause.MISSING_LIBRARY, message="no timm", tried=(MISSING,)
        )
        outcomes = {request.id: good if request.id.class_name.startswith("A") else bad for request in requests}
        return RunResult(outcomes, {"torch": "2.13.0"}, self.fatal)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two modeling files, one that Python cannot read, and a test."""
    for name, text in {
        "modeling_a.py": MODEL.format("AModel"),
        "pkg/modeling_b.py": MODEL.format("BModel") + MODEL.format("_Hidden"),
        "modeling_broken.py": "def (",
        "tests/modeling_c.py": MODEL.format("CModel"),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_public_class_is_asked_for_once_and_nothing_is_exported(tree: Path, capsys: Any) -> None:
    runner = Runner()
    assert main(["cases", "--tree", str(tree), "--json"], run_cases=runner) == 0
    assert runner.asked == ["modeling_a/AModel/dynamo/dynamic/forward", "pkg/modeling_b/BModel/dynamo/dynamic/forward"]
    assert runner.surveyed
    census = Census.model_validate_json(capsys.readouterr().out)
    first, second = census.entries
    assert (first.model, first.class_name, first.task) == ("modeling_a", "AModel", Task.FORWARD)
    assert (first.outcome, first.source, first.parameters, first.fed) == ("pass", "synthesised", 1_000, ("input_ids",))
    assert first.tried[0] == MISSING
    assert first.notes == ("AModelTest changed what is the process's: grad mode (put back)",)
    assert (second.outcome, second.cause) == ("unavailable", "missing library")


def test_the_table_tells_sources_causes_and_shares(tree: Path, capsys: Any) -> None:
    assert main(["cases", "--tree", str(tree)], run_cases=Runner()) == 0
    printed = capsys.readouterr().out
    assert "pkg/modeling_b/BModel (forward): missing library: no timm" in printed
    assert "model tests: 0 of 2 asked have a case (2 missing library)" in printed
    fallback = "modeling_a/AModel (forward): runs from synthesised, not from model tests: missing library: no timm"
    assert fallback in printed
    noted = "AModelTest changed what is the process's: grad mode (put back)"
    assert f"1 case with notes, see --json; modeling_a/AModel (forward): {noted}" in printed
    assert "synthesised: 1 of 1 asked have a case" in printed
    assert "1 of 2 cases run in eager (50.0%)" in printed


def test_one_class_one_source_and_a_variant(tree: Path) -> None:
    runner = Runner()
    asked = [str(tree / "modeling_a.py"), "--source", "model tests", "--variant", "cache", "--quiet"]
    assert main(["cases", *asked], run_cases=runner) == 0
    plain = "modeling_a/AModel/dynamo/dynamic/forward"
    assert runner.asked == [plain, f"{plain}+cache"]
    assert runner.setup is not None
    assert runner.setup.sources == (Source.MODEL_TESTS,)


def test_a_variant_is_told_from_the_plain_model(tree: Path, capsys: Any) -> None:
    asked = ["cases", "--tree", str(tree), "b", "--variant", "cache"]
    assert main([*asked, "--json"], run_cases=Runner()) == 0
    census = Census.model_validate_json(capsys.readouterr().out)
    assert [entry.variant for entry in census.entries] == [None, Variant.CACHE]
    assert main(asked, run_cases=Runner()) == 0
    printed = capsys.readouterr().out
    assert "pkg/modeling_b/BModel (forward): missing" in printed
    assert "pkg/modeling_b/BModel (forward, cache): missing" in printed


def test_sizes_of_tiny_models_are_told_in_full(tree: Path, capsys: Any) -> None:
    assert main(["cases", "--tree", str(tree)], run_cases=Runner()) == 0
    assert "at most 1,000 parameters" in capsys.readouterr().out


def test_what_has_no_case_at_all_is_an_error(tree: Path, capsys: Any) -> None:
    assert main(["cases", "--tree", str(tree), "--task", "generate"], run_cases=Runner()) == 2
    assert "none of the classes generates" in capsys.readouterr().err


def test_files_that_were_left_out_are_noted(tree: Path, capsys: Any) -> None:
    assert main(["cases", "--tree", str(tree)], run_cases=Runner()) == 0
    assert "note: modeling_broken.py was left out: syntax error, line 1" in capsys.readouterr().out


def test_a_runner_that_cannot_work_is_three(tree: Path, capsys: Any) -> None:
    assert main(["cases", "--tree", str(tree)], run_cases=Runner(fatal="torch does not import")) == 3
    assert "torch does not import" in capsys.readouterr().err


def test_what_stops_every_case_is_told_once(tree: Path, capsys: Any) -> None:
    def run(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        broken = Outcome(kind=OutcomeKind.ERROR, message="the case function exits (0)", error_type="HookError")
        return RunResult({request.id: broken for request in requests}, {}, "")

    assert main(["cases", "--tree", str(tree), "a"], run_cases=run) == 3
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("the case function exits (0)") == 1


def test_its_schema_is_printed(capsys: Any) -> None:
    assert main(["schema", "--census"]) == 0
    assert "entries" in json.loads(capsys.readouterr().out)["properties"]
