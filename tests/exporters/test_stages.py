from __future__ import annotations

import pytest

from exporters.stages import STAGES, StageError, StageRunner, locate
from hfexport_bot import schema


def test_both_sides_of_the_trust_line_know_the_same_stages() -> None:
    for backend, stages in STAGES.items():
        assert schema.STAGES[backend] == stages


def test_a_failure_names_its_backend_and_stage() -> None:
    told: list[str] = []
    runner = StageRunner("onnx", told.append)
    message = "onnx export failed in stage translate: ValueError: no kernel"
    with pytest.raises(StageError, match=message) as caught, runner.stage("decompose") as move_on:
        move_on("translate")
        raise ValueError("no kernel")
    assert (caught.value.backend, caught.value.stage, caught.value.file) == ("onnx", "translate", None)
    assert told == ["decompose", "translate"]
    assert set(runner.seconds) == {"decompose", "translate"}


def test_an_inner_stage_keeps_its_name() -> None:
    runner = StageRunner("dynamo")
    with pytest.raises(StageError) as caught, runner.stage("trace"), runner.stage("shapes"):
        raise ValueError
    assert caught.value.stage == "shapes"


def test_a_stage_that_runs_twice_counts_both_times() -> None:
    runner = StageRunner("onnx")
    with runner.stage("node_fixes"):
        pass
    first = runner.seconds["node_fixes"]
    with runner.stage("node_fixes"):
        pass
    assert runner.seconds["node_fixes"] > first


def _raised_in(file: str, line: int) -> BaseException:
    code = compile("\n" * (line - 1) + "raise ValueError('inner')", file, "exec")
    try:
        exec(code)
    except ValueError as error:
        return error
    raise AssertionError


def test_the_innermost_modeling_line_is_found_through_causes() -> None:
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("outer") from _raised_in("/tree/models/modeling_tiny.py", 7)
    assert locate(caught.value) == ("/tree/models/modeling_tiny.py", 7, "<module>")


def test_other_files_are_not_blamed() -> None:
    assert locate(_raised_in("/site-packages/torch/nn/functional.py", 7)) is None


def test_frames_in_messages_and_notes_count_where_no_traceback_has_one() -> None:
    told = RuntimeError(
        'failed\n  File "/a/modeling_x.py", line 3, in forward\n  File "/a/linear.py", line 4, in forward'
    )
    assert locate(told) == ("/a/modeling_x.py", 3, "forward")
    noted = RuntimeError("failed")
    noted.add_note('  File "/a/modeling_y.py", line 9, in attend')
    assert locate(noted) == ("/a/modeling_y.py", 9, "attend")
