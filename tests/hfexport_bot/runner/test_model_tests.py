"""What a check in a model author's test says; what it checks, the tests of the plugin and of the runner tell."""

from __future__ import annotations

import pytest

from hfexport_bot.runner import model_tests
from hfexport_bot.runner.model_tests import Finding, check_model, tell
from hfexport_bot.schema import (
    Backend,
    CaseId,
    Component,
    Location,
    Outcome,
    OutcomeKind,
    ProbeResult,
    Task,
    TensorParity,
)

CASE = CaseId(model="toy", class_name="Toy", backend=Backend.ONNX)


def test_an_error_names_stage_component_and_line() -> None:
    outcome = Outcome(
        kind=OutcomeKind.ERROR,
        stage="translate",
        component="decode",
        error_type="KeyError",
        message="aten::x",
        location=Location(file="src/modeling_toy.py", line=7),
    )
    said = "toy/Toy/onnx/dynamic/forward: error in decode, stage translate at src/modeling_toy.py:7: KeyError: aten::x"
    assert tell(CASE, outcome) == said


def test_wrong_numbers_come_with_those_of_each_output_and_probe() -> None:
    outputs = (
        TensorParity(name="logits", shape=(2, 3), dtype="float32", max_abs=0.25),
        TensorParity(name="ids", shape=(2,), dtype="int64"),
    )
    probes = (
        ProbeResult(name="batch_1", status="pass", max_abs=3e-7),
        ProbeResult(name="length_9", status="static", message="eager refuses it"),
    )
    outcome = Outcome(
        kind=OutcomeKind.PARITY,
        stage="parity",
        message="logits: 2 of 6 elements differ, by up to 0.25",
        components=(Component(name="model", outputs=outputs, probes=probes),),
        workarounds={"onnx/node_fixes/b": 2, "onnx/node_fixes/a": 1},
        notes=("nearly blind to x",),
    )
    assert tell(CASE, outcome).splitlines() == [
        "toy/Toy/onnx/dynamic/forward: parity in stage parity: logits: 2 of 6 elements differ, by up to 0.25",
        "model, largest error of each output as traced: logits 0.25",
        "model, probes, with theirs: batch_1 pass 3e-07, length_9 static",
        "workarounds: onnx/node_fixes/a, onnx/node_fixes/b",
        "note: nearly blind to x",
    ]


class Declining:
    test_torch_exportable = False


def test_a_test_class_that_declines_is_skipped() -> None:
    found = check_model(Declining(), Declining, "onnx", "static", "generate", root=".")
    assert found == (
        False,
        True,
        "test_model_tests/Declining/onnx/static/generate: Declining says test_torch_exportable = False",
    )


@pytest.mark.parametrize(
    ("kind", "passed", "skipped"),
    [(kind, kind is OutcomeKind.PASS, kind in ("skipped", "unavailable", "nondeterministic")) for kind in OutcomeKind],
)
def test_only_what_tells_nothing_of_the_export_is_skipped(
    monkeypatch: pytest.MonkeyPatch, kind: OutcomeKind, passed: bool, skipped: bool
) -> None:
    asked: list[CaseId] = []

    def examine(case_id: CaseId, *_: object) -> Outcome:
        asked.append(case_id)
        return Outcome(kind=kind, stage="run", message="so it is")

    monkeypatch.setattr(model_tests, "examine", examine)
    found = check_model(object(), Declining, "onnx", "static", "generate", root=".")
    assert found[:2] == Finding(passed, skipped, "")[:2]
    assert "so it is" in found.message
    assert (asked[0].task, asked[0].class_name) == (Task.GENERATE, "Declining")
