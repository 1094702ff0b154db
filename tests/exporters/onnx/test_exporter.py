from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from onnx import TensorProto, helper

from exporters import OnnxConfig, OnnxExporter, StageError
from exporters.configs import MAX_OPSET, MIN_OPSET
from exporters.leaves import named_leaves
from exporters.onnx.ir_fixes import _fix_ir_shared_outputs
from exporters.onnx.reference import make_evaluator
from exporters.registry import resolve
from exporters.runtime.onnx import make_session
from exporters.stages import STAGES
from tests.exporters.models import (
    Mean,
    Odd,
    assert_odd,
    assert_untouched,
    bert_inputs,
    mean_inputs,
    snapshot,
    tiny_bert,
)

pytestmark = pytest.mark.export


def test_the_documented_example_runs_as_it_stands() -> None:
    model, new = tiny_bert(), bert_inputs(3, 11)
    before = snapshot(model)
    program = OnnxExporter().export(model, bert_inputs(), config=OnnxConfig(dynamic=True))
    assert_untouched(model, before)
    torch.testing.assert_close(program.call_reference(**new)[0], program(**new)[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(program(**new)[0], model(**new).logits, rtol=1e-4, atol=1e-4)
    padded = bert_inputs(3, 11, padded=True)
    torch.testing.assert_close(program(**padded)[0], model(**padded).logits, rtol=1e-4, atol=1e-4)


def test_stages_begin_in_their_order() -> None:
    told: list[str] = []
    artifact = OnnxExporter().export_artifact(Mean().eval(), mean_inputs(), on_stage=told.append)
    first = list(dict.fromkeys(told))
    assert set(first) == {*STAGES["dynamo"], *STAGES["onnx"]}
    assert [stage for stage in first if stage in STAGES["onnx"]] == list(STAGES["onnx"])
    assert set(artifact.stage_seconds) == set(first)


def test_inputs_are_bound_by_name_whatever_their_order() -> None:
    model, inputs = Mean().eval(), mean_inputs(3, 7)
    program = OnnxExporter().export(model, mean_inputs())
    expected = model(**inputs)["logits"]
    torch.testing.assert_close(program(**dict(reversed(inputs.items())))[0], expected)
    torch.testing.assert_close(program(*inputs.values())[0], expected)


def test_inputs_that_do_not_fit_the_graph_are_refused() -> None:
    program = OnnxExporter().export(Mean().eval(), mean_inputs())
    inputs = mean_inputs()
    with pytest.raises(ValueError, match=r"unknown \['pixels'\], missing \['attention_mask'\]"):
        program(input_ids=inputs["input_ids"], pixels=torch.ones(1))
    with pytest.raises(ValueError, match=r"given twice \['input_ids'\]"):
        program(inputs["input_ids"], input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
    with pytest.raises(ValueError, match="takes 2 inputs, got 3"):
        program(*inputs.values(), inputs["input_ids"])


class Shared(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = x + 1
        return {"x": x, "first": y, "second": y}


def _fixed(value: str) -> onnx_ir.Model:
    model = onnx_ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["": 20]> g (float[N] x) => (float[N] {value}) {{ y = Neg (x) }}'
    )
    model.graph.outputs.append(model.graph.outputs[0])
    assert _fix_ir_shared_outputs(model) == (2 if value == "x" else 1)
    return model


@pytest.mark.parametrize(("value", "sign"), [("x", 1), ("y", -1)])
def test_graph_outputs_that_share_a_value_are_told_apart(value: str, sign: int) -> None:
    model = _fixed(value)
    names = [output.name for output in model.graph.outputs]
    assert len(set(names)) == 2
    assert "x" not in names
    session = make_session(onnx_ir.to_proto(model).SerializeToString())
    x = np.array([1.0, 2.0], dtype=np.float32)
    for output in session.run(None, {"x": x}):
        np.testing.assert_array_equal(output, sign * x)


def test_outputs_that_are_inputs_or_one_another_get_values_of_their_own() -> None:
    artifact = OnnxExporter().export_artifact(Shared().eval(), {"x": torch.ones(2, 2)})
    outputs = artifact(x=torch.zeros(3, 2))
    assert {name: float(value.sum()) for name, value in outputs.items()} == {"x": 0.0, "first": 6.0, "second": 6.0}
    assert [value.name for value in artifact.program.model.graph.outputs] == ["output.x", "first", "second"]


class Writes(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        x.add_(1.0)
        return {"product": x * y}


class WritesAndReturns(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        x[:, 1:] = y[:, 1:]
        return {"x": x, "view": x[:, :1], "y": y}


class KeepsTheOld(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        old = x.clone()
        return {"old": old, "x": x.mul_(y)}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Writes, ["product"]),
        (WritesAndReturns, ["output.x", "view", "output.y"]),
        (KeepsTheOld, ["old", "output.x"]),
    ],
)
@pytest.mark.parametrize("dynamic", [True, False])
def test_an_input_that_the_model_writes_into(kind: type[torch.nn.Module], names: list[str], dynamic: bool) -> None:
    def inputs() -> dict[str, torch.Tensor]:
        shape = (3, 4) if dynamic else (2, 5)
        return {"x": torch.arange(torch.Size(shape).numel()).reshape(shape) / 7, "y": torch.full(shape, 3.0)}

    traced = {"x": torch.rand(2, 5), "y": torch.rand(2, 5)}
    artifact = OnnxExporter().export_artifact(kind().eval(), traced, {"dynamic": dynamic})
    graph = artifact.program.model.graph
    assert [value.name for value in graph.inputs] == ["x", "y"]
    assert [value.name for value in graph.outputs] == names
    expected = kind()(**inputs())
    given = inputs()
    found = artifact(**given)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    # What the model does to its input beside its outputs is no part of an ONNX graph.
    assert torch.equal(given["x"], inputs()["x"])


class Homonyms(torch.nn.Module):
    """Paths that are names of other values too: of weights, of a buffer, of nodes in the graph and of one another."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("x", torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        weight = self.linear.weight
        return {
            "add": torch.relu(x + 1),
            "mul": self.linear(x) * self.x,
            "x": x,
            "output": {"x": x * 3},
            "linear": {"weight": weight, "bias": self.linear.bias * 2},
        }


@pytest.mark.parametrize("optimize", [True, False])
def test_names_of_inputs_and_outputs_are_no_one_elses(optimize: bool) -> None:
    model = Homonyms().eval()
    artifact = OnnxExporter().export_artifact(model, {"x": torch.rand(2, 4)}, {"optimize": optimize})
    graph = artifact.program.model.graph
    names = ["add", "mul", "output.x", "output.output.x", "linear.weight", "linear.bias"]
    assert [value.name for value in (*graph.inputs, *graph.outputs)] == ["x", *names]
    x = torch.rand(3, 4)
    expected = named_leaves(model(x.clone()))
    found = artifact(x=x)
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


class Attend(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def test_a_failed_translation_names_its_stage_and_reverts_its_hooks() -> None:
    hooks = (
        "torch.onnx._internal.exporter._core._prepare_exported_program_for_export",
        "torch.onnx._internal.exporter._registration.ONNXRegistry.from_torchlib",
    )
    places = [resolve(hook) for hook in hooks]
    assert None not in places, "torch.onnx has moved what the exporter hooks into"
    before = [vars(owner)[name] for owner, name in places]  # type: ignore[misc]
    with pytest.raises(StageError, match="only 4D query, key, and value are supported") as caught:
        OnnxExporter().export(Attend().eval(), {"x": torch.ones(2, 3, 4)})
    assert caught.value.stage == "translate"
    assert [vars(owner)[name] for owner, name in places] == before  # type: ignore[misc]


def test_a_saved_model_runs_without_torch(tmp_path: Path) -> None:
    model, inputs = Mean().eval(), mean_inputs(3, 7)
    file = OnnxExporter().export_artifact(model, mean_inputs()).save(tmp_path)
    onnx.checker.check_model(onnx.load(file))
    np.savez(tmp_path / "inputs.npz", **{name: value.numpy() for name, value in inputs.items()})
    np.save(tmp_path / "expected.npy", model(**inputs)["logits"].detach().numpy())
    code = (
        "import sys, numpy, onnxruntime; folder = sys.argv[1]\n"
        "session = onnxruntime.InferenceSession(f'{folder}/model.onnx', providers=['CPUExecutionProvider'])\n"
        "logits, _ = session.run(['logits', 'nested.pooled'], dict(numpy.load(f'{folder}/inputs.npz')))\n"
        "numpy.testing.assert_allclose(logits, numpy.load(f'{folder}/expected.npy'), rtol=1e-4, atol=1e-4)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


@pytest.mark.parametrize("opset", [MIN_OPSET, 21, MAX_OPSET])
def test_the_opset_is_the_one_asked_for(opset: int) -> None:
    model, padded = tiny_bert(), bert_inputs(3, 11, padded=True)
    program = OnnxExporter().export(model, bert_inputs(), config={"opset": opset})
    assert program.model.opset_imports[""] == opset
    torch.testing.assert_close(program(**padded)[0], model(**padded).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("opset", [-1, 0, 17, 26, 99, "18", 18.0])
def test_an_opset_that_cannot_be_written_is_refused_before_the_first_stage(opset: object) -> None:
    told: list[str] = []
    with pytest.raises(ValueError, match=rf"^opset {opset!r} cannot be exported; give a number from 18 to 25, or None"):
        OnnxExporter().export_artifact(Mean().eval(), mean_inputs(), {"opset": opset}, on_stage=told.append)
    assert told == []


@pytest.mark.parametrize(("axis", "indices"), [(1, [[511, 0, -1]]), (0, [[0, 1, 1]]), (-1, [[2], [1]])])
def test_the_reference_gathers_from_data_that_is_larger_than_the_indices(axis: int, indices: list[list[int]]) -> None:
    data, index = np.arange(1024).reshape(2, 512), np.array(indices)
    node = helper.make_node("GatherElements", ["data", "index"], ["y"], axis=axis)
    graph = helper.make_graph(
        [node],
        "gather",
        [
            helper.make_tensor_value_info("data", TensorProto.INT64, data.shape),
            helper.make_tensor_value_info("index", TensorProto.INT64, index.shape),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT64, index.shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (found,) = make_evaluator(model).run(None, {"data": data, "index": index})
    wrapped = torch.from_numpy(index % data.shape[axis])
    np.testing.assert_array_equal(found, torch.from_numpy(data).gather(axis, wrapped).numpy())


def test_constant_outputs_and_written_inputs_do_not_shift_the_names() -> None:
    assert_odd(OnnxExporter().export_artifact(Odd().eval(), {"x": torch.zeros(2, 5)}))
