from __future__ import annotations

from typing import Any

import pytest
import torch

from exporters.many import exporter_for
from hfexport_bot.runner.interface import interface
from hfexport_bot.schema import MAX_OPERATORS, Component, TensorType

pytestmark = pytest.mark.export


class Counting(torch.nn.Module):
    """Writes into a buffer, and into one of its inputs through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(8))

    def forward(self, x: torch.Tensor, cache: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        self.count.add_(1)
        cache[:, :4].add_(x[:, :4])
        return {"sums": torch.cumsum(self.linear(cache) + self.count, 0), "ids": ids * 2}


def component(backend: str, module: torch.nn.Module, inputs: dict[str, Any]) -> Component:
    exporter = exporter_for(backend)
    artifact = exporter.export_artifact(module.eval(), inputs, exporter.config_class(dynamic=False))
    return Component(name="model", **interface(artifact))


def counting(backend: str) -> Component:
    ids = torch.arange(3)
    return component(backend, Counting(), {"x": torch.rand(3, 8), "cache": torch.zeros(3, 8), "ids": ids})


TENSORS = {
    "inputs": ("x", "cache", "ids"),
    "input_dtypes": ("float32", "float32", "int64"),
    "returns": (TensorType(name="sums", dtype="float32", rank=2), TensorType(name="ids", dtype="int64", rank=1)),
}


def told(found: Component) -> dict[str, Any]:
    return {name: getattr(found, name) for name in TENSORS}


def test_a_torch_program_tells_what_it_takes_gives_writes_into_and_needs() -> None:
    found = counting("dynamo")
    assert told(found) == TENSORS
    assert found.mutated == ("cache", "count")
    assert {"aten.cumsum.default", "aten.linear.default", "aten.add_.Tensor"} <= set(found.operators)
    assert list(found.operators) == sorted(set(found.operators))
    assert (found.opset, found.delegated_to, found.operators_left_out) == (None, (), 0)
    assert found.nodes is not None
    assert found.nodes > 5


def test_an_onnx_model_tells_its_operators_and_opset_and_writes_into_nothing() -> None:
    found = counting("onnx")
    assert told(found) == TENSORS
    assert found.mutated == ()
    assert {"CumSum", "Add"} <= set(found.operators)
    assert found.opset is not None
    assert found.opset >= 18
    assert found.size_bytes is not None


def test_an_executorch_program_tells_the_kernels_it_needs_and_its_delegates() -> None:
    found = counting("executorch")
    assert told(found) == TENSORS
    assert found.mutated == ("cache", "count")
    assert "aten::cumsum.out" in found.operators
    assert found.delegated_to == ("XnnpackBackend",)
    assert found.delegates is not None
    assert found.delegates >= 1


class Slipping(torch.nn.Module):
    """Computes in float64, and ignores an input."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Buffer(torch.rand(5, 3), persistent=False)

    def forward(self, x: torch.Tensor, ignored: torch.Tensor) -> dict[str, torch.Tensor]:
        ignored.bool().unsqueeze(0)  # leads nowhere
        return {"y": (x.double() * 2).float() + self.table[x.shape[0]]}


@pytest.mark.parametrize("backend", ["dynamo", "onnx", "executorch"])
def test_dtypes_inside_inputs_without_use_and_sizes(backend: str) -> None:
    found = component(backend, Slipping(), {"x": torch.rand(2, 3), "ignored": torch.rand(2)})
    assert {"float32", "float64"} <= set(found.computed)
    assert found.unread == ("ignored",)
    assert found.size_bytes is not None
    assert found.size_bytes >= 5 * 3 * 4


class Casting(torch.nn.Module):
    """Writes into what is its input, and into a copy of one."""

    def forward(self, same: torch.Tensor, other: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"same": same.to(torch.float32).add_(1), "other": other.to(torch.float32).add_(1)}


def test_a_copy_of_another_dtype_may_be_written_into() -> None:
    found = component("dynamo", Casting(), {"same": torch.rand(3), "other": torch.arange(3)})
    assert found.mutated == ("same",)


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": torch.cond(x.sum() > 0, lambda x: x.tanh(), lambda x: x.erf(), (x,))}


@pytest.mark.parametrize(
    ("backend", "operators"),
    [("dynamo", {"aten.tanh.default", "aten.erf.default", "cond"}), ("onnx", {"Tanh", "Erf", "If"})],
)
def test_operators_inside_branches_count(backend: str, operators: set[str]) -> None:
    assert operators <= set(component(backend, Branching(), {"x": torch.rand(3)}).operators)


class Many(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x.sin().cos().tan() + x.exp()}


def test_operators_beyond_the_most_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hfexport_bot.runner.interface.MAX_OPERATORS", 2)
    found = component("dynamo", Many(), {"x": torch.rand(3)})
    assert found.operators == ("aten.add.Tensor", "aten.cos.default")
    assert found.operators_left_out == 3
    assert MAX_OPERATORS > 100
