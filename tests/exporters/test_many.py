from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from exporters import DynamoExporter, ExecutorchExporter, OnnxExporter, StageError, export_many
from tests.exporters.models import Branching, Mean, assert_untouched, mean_inputs, snapshot


def _operators(program: torch.export.ExportedProgram) -> list[tuple[str, str]]:
    return [(node.op, str(node.target)) for node in program.graph.nodes]


@pytest.mark.export
def test_each_artifact_is_what_its_exporter_gives_alone() -> None:
    model, inputs, other, bound = Mean().eval(), mean_inputs(), mean_inputs(3, 7), {"max_size": 16}
    before, told = snapshot(model), []
    configs: dict[str, Any] = {"executorch": bound, "dynamo": bound, "onnx": None}
    results = export_many(model, inputs, configs, on_stage=lambda *what: told.append(what))
    assert_untouched(model, before)
    assert (list(results), results.errors) == (["executorch", "dynamo", "onnx"], {})
    assert {("executorch", "lower"), ("dynamo", "trace"), ("onnx", "translate")} <= set(told)
    alone = {
        "executorch": ExecutorchExporter().export_artifact(model, inputs, bound),
        "dynamo": DynamoExporter().export_artifact(model, inputs, bound),
        "onnx": OnnxExporter().export_artifact(model, inputs),
    }
    for backend, artifact in alone.items():
        assert (results[backend].axes, results[backend].config) == (artifact.axes, artifact.config)
        torch.testing.assert_close(results[backend](**other), artifact(**other), rtol=0, atol=0)
    assert results["executorch"].program.buffer == alone["executorch"].program.buffer
    assert _operators(results["dynamo"].program) == _operators(alone["dynamo"].program)


@pytest.mark.export
def test_a_backend_that_fails_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "exporters.executorch.exporter", None)  # as if it was not installed
    results = export_many(Mean().eval(), mean_inputs(), {"executorch": {}, "dynamo": {}, "onnx": {"disabled": {"x"}}})
    assert list(results) == ["dynamo"]
    assert results["dynamo"](**mean_inputs(4, 6))["logits"].shape == (4, 3)
    assert isinstance(results.errors["executorch"], ImportError)
    assert isinstance(results.errors["onnx"], ValueError)
    with pytest.raises(KeyError, match="onnx was not exported: disabled names no workaround 'x'"):
        _ = results["onnx"]
    assert results.get("onnx") is None


@pytest.mark.export
def test_a_failed_stage_is_kept() -> None:
    results = export_many(Branching().eval(), mean_inputs(), "dynamo")
    error = results.errors["dynamo"]
    assert isinstance(error, StageError)
    assert (len(results), error.backend, error.stage) == (0, "dynamo", "trace")


@pytest.mark.parametrize(
    ("configs", "error", "message"),
    [
        (["onnx", "coreml"], ValueError, "unknown backend 'coreml'; known are dynamo, onnx, executorch"),
        ({"dynamo": {}, "onnx": {"opsett": 1}}, TypeError, "OnnxConfig has no opsett"),
    ],
)
def test_what_no_backend_can_take_is_refused_before_the_first_export(
    configs: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        export_many(Mean().eval(), mean_inputs(), configs, on_stage=lambda *_: pytest.fail("an export began"))
    with pytest.raises(ValueError, match="in training mode"):
        export_many(Mean(), mean_inputs())
