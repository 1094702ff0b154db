"""``reproduce``: one case in the foreground, run by a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.cli import main
from hfexport_bot.execution.client import RunResult
from hfexport_bot.schema import (
    CaseFinished,
    CaseId,
    CaseRequest,
    Location,
    Outcome,
    OutcomeKind,
    RunnerEvent,
    RunnerSetup,
    StageBegan,
)

MODEL = "class AForCausalLM(PreTrainedModel, GenerationMixin):\n    def forward(self): return {0}\n"
CASE = "zoo/modeling_a/AForCausalLM/onnx/dynamic/forward"


class Runner:
    """Writes to its log, and fails where it is told to."""

    def __init__(self, kind: OutcomeKind = OutcomeKind.PASS, fatal: str = "") -> None:
        self.setup: RunnerSetup | None = None
        self.asked: list[CaseId] = []
        self.source = ""
        self._kind = kind
        self._fatal = fatal

    def __call__(
        self, setup: RunnerSetup, requests: Sequence[CaseRequest], *, on_event: Callable[[RunnerEvent], None], **_: Any
    ) -> RunResult:
        self.setup, self.asked = setup, [request.id for request in requests]
        (request,) = requests
        self.source = Path(str(setup.tree), request.module).read_text()
        log = Path(str(setup.log_dir), "case.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        on_event(StageBegan(id=request.id, stage="trace"))
        log.write_text(f"from the trace\n  ::error::x\n  in {setup.tree}/m.py\n")
        on_event(StageBegan(id=request.id, stage="load", component="decode"))
        failed = {"stage": "load", "message": "no kernel", "frames": (Location(file="m.py", line=3, function="f"),)}
        outcome = Outcome(kind=self._kind, seconds=2, **(failed if self._kind is OutcomeKind.ERROR else {}))
        on_event(CaseFinished(id=request.id, outcome=outcome))
        return RunResult({request.id: outcome}, fatal=self._fatal)


def run(runner: Runner, *arguments: str) -> int:
    return main(["reproduce", *arguments], run_cases=runner, list_workarounds=list)


@pytest.fixture
def zoo(repository: Any) -> Path:
    """A repository of two commits, and a folder that says 3."""
    files: Mapping[str, str] = {"zoo/modeling_a.py": MODEL}
    repository.commit({path: text.format(1) for path, text in files.items()})
    repository.commit({path: text.format(2) for path, text in files.items()})
    (repository.path / "zoo/modeling_a.py").write_text(MODEL.format(3))
    folder: Path = repository.path
    return folder


def test_stages_log_and_outcome_are_told_in_order(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner = Runner(OutcomeKind.ERROR)
    assert run(runner, CASE, "--tree", str(zoo)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "stage: trace",
        "  from the trace",
        "    : :error::x",
        f"    in {zoo}/m.py",
        "stage: decode load",
        "  no kernel",
        "  at m.py:3 in f",
        "outcome: error at load in 2.0s",
    ]
    assert runner.asked == [CaseId.parse(CASE)]
    assert "return 3" in runner.source


def test_a_revision_is_run_as_it_was_committed(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, said in ((("--rev", "HEAD~1"), "return 1"), ((), "return 2")):
        runner = Runner()
        assert run(runner, CASE, "--repo", str(zoo), *options) == 0
        assert said in runner.source
        assert runner.setup is not None
        assert not Path(str(runner.setup.tree)).exists()  # nothing is left
        assert "\n    in m.py\n" in capsys.readouterr().out


def test_a_commit_that_is_not_there_is_told_with_how_to_get_it(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rev in ("e" * 40, "nowhere"):
        assert run(Runner(), CASE, "--repo", str(zoo), "--rev", rev) == 2
        said = capsys.readouterr().err
        assert f"unknown revision '{rev}'" in said
        assert (f"from the repository that the pull request is for: git fetch URL {rev}" in said) is (rev != "nowhere")


def test_a_class_that_a_revision_lacks_is_told_with_the_revision(
    zoo: Path, repository: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (zoo / "zoo/modeling_a.py").unlink()
    repository.commit({"zoo/modeling_b.py": MODEL.format(4)})
    for case in (CASE, CASE.replace("AFor", "BFor").replace("modeling_a", "modeling_b")):
        assert run(Runner(), case, "--repo", str(zoo), "--rev", "HEAD") == 2
        said = capsys.readouterr().err
        assert "/tree" not in said
        assert ("in revision HEAD;" in said) is (case == CASE)


@pytest.mark.parametrize("ending", ["+sdpa", "@repo", "+eager_attention@repo"])
def test_variants_and_engines_are_part_of_the_id(zoo: Path, ending: str) -> None:
    runner = Runner()
    assert run(runner, CASE + ending, "--tree", str(zoo)) == 0
    assert [str(each) for each in runner.asked] == [CASE + ending]


def test_what_is_kept_goes_to_a_new_folder(zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner = Runner()
    assert run(runner, CASE, "--tree", str(zoo), "--keep", str(tmp_path / "kept")) == 0
    assert runner.setup is not None
    assert (runner.setup.keep, runner.setup.log_dir) == (str(tmp_path / "kept"), str(tmp_path / "kept/logs"))
    assert (tmp_path / "kept/logs/case.log").exists()
    assert run(runner, CASE, "--tree", str(zoo), "--keep", str(tmp_path / "kept")) == 2
    assert "is not an empty folder; give a new one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (CASE.replace("onnx", "onx"), "there is no backend 'onx'; did you mean onnx?"),
        (
            "zoo/modeling_size/Sizer/dynamo/dynamic",
            "the task is missing; did you mean zoo/modeling_size/Sizer/dynamo/d",
        ),
        (CASE.replace("dynamic", "dynmic"), "there is no shapes 'dynmic'; did you mean dynamic?"),
        (CASE + "+sdp", "there is no variant 'sdp'; did you mean sdpa?"),
        (CASE + "@rep", "there is no engine 'rep'; did you mean repo?"),
        (CASE.replace("AFor", "BFor"), "did you mean AForCausalLM?"),
        ("nonsense", "is no case id; expected MODEL/CLASS/BACKEND/SHAPES/TASK"),
    ],
)
def test_what_there_is_not_is_told_with_the_nearest(
    zoo: Path, case: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Runner(), case, "--tree", str(zoo)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_a_folder_and_a_revision_are_not_both_given(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Runner(), CASE, "--tree", str(zoo), "--rev", "HEAD") == 2
    assert "give one of both" in capsys.readouterr().err


def test_a_runner_that_cannot_work_fails_the_command(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Runner(fatal="no torch"), CASE, "--tree", str(zoo)) == 3
    assert "no torch" in capsys.readouterr().err
