"""A failure that is told of a graph points at the line of the model that the graph's node was traced from."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exporters import ExecutorchConfig, ExecutorchExporter, OnnxExporter, StageError, UnsupportedByRuntime
from exporters.base import HfExporter
from exporters.origins import telling_where
from exporters.stages import frames_of, locate

pytestmark = pytest.mark.export

FILE = "/tree/models/modeling_tiny.py"


def model(line: str) -> torch.nn.Module:
    """A model with an ordinary line, number 6, before the one to blame, number 7."""
    source = f"""
class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        y = torch.erf(self.linear(x))
        y = {line}
        return y * 2
"""
    names: dict[str, Any] = {"torch": torch}
    exec(compile(source, FILE, "exec"), names)
    made: torch.nn.Module = names["Tiny"]().eval()
    return made


@pytest.mark.parametrize(("exporter", "stage"), [(OnnxExporter(), "translate"), (ExecutorchExporter(), "lower")])
def test_an_operator_that_a_backend_does_not_have(exporter: HfExporter, stage: str) -> None:
    with pytest.raises(StageError) as caught:
        exporter.export(model("torch.linalg.qr(y)[0]"), {"x": torch.randn(2, 4)})
    assert (caught.value.stage, caught.value.frame) == (stage, (FILE, 7, "forward"))


def test_an_operator_that_the_runtime_has_no_kernel_for() -> None:
    artifact = OnnxExporter().export_artifact(model("torch.atanh(y.double()).float()"), {"x": torch.randn(2, 4)})
    with pytest.raises(UnsupportedByRuntime, match="implementation for Atanh") as caught:
        artifact.session  # noqa: B018  loads on first access
    assert locate(caught.value) == (FILE, 7, "forward")


def test_an_operator_that_executorch_has_no_kernel_for() -> None:
    tiny = model("torch.sort(y)[0]")
    artifact = ExecutorchExporter().export_artifact(tiny, {"x": torch.randn(2, 4)}, ExecutorchConfig(dynamic=False))
    with pytest.raises(UnsupportedByRuntime, match=r"kernel 'aten::sort\.values' not found") as caught:
        artifact.session  # noqa: B018  loads on first access
    assert locate(caught.value) == (FILE, 7, "forward")


def test_of_two_nodes_of_one_operator_the_one_that_is_meant() -> None:
    artifact = OnnxExporter().export_artifact(model("torch.erf(y.double()).float()"), {"x": torch.randn(2, 4)})
    with pytest.raises(UnsupportedByRuntime, match="implementation for Erf") as caught:
        artifact.session  # noqa: B018  loads on first access
    assert locate(caught.value) == (FILE, 7, "forward")


def test_what_an_error_is_about_comes_before_what_it_lists() -> None:
    graph = torch.fx.Graph()
    for name, line in (("first", 3), ("second", 5)):
        graph.placeholder(name).meta["stack_trace"] = f'File "{FILE}", line {line}, in forward'
    with pytest.raises(ValueError, match="%") as caught, telling_where([graph]):
        raise ValueError("Error when translating node %second : (args = (%first,))")
    assert frames_of(caught.value) == ((FILE, 5, "forward"),)


def test_an_error_that_tells_its_frames_keeps_them() -> None:
    graph = torch.fx.Graph()
    graph.placeholder("first").meta["stack_trace"] = f'File "{FILE}", line 3, in forward'
    with pytest.raises(ValueError, match="%") as caught, telling_where([graph]):
        raise ValueError(f'While executing %first\n  File "{FILE}", line 8, in forward')
    assert locate(caught.value) == (FILE, 8, "forward")


@pytest.mark.parametrize(
    ("lines", "found"), [((5,), (FILE, 5, "forward")), ((5, 5), (FILE, 5, "forward")), ((5, 6), None)]
)
def test_what_a_decomposition_made_leads_to_the_only_node_that_it_can_be_of(
    lines: tuple[int, ...], found: object
) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for line in lines:
        node = graph.call_function(torch.ops.aten.diagonal.default, (x,))
        node.meta["stack_trace"] = f'File "{FILE}", line {line}, in forward'
    for text in (
        "found %copy_to : (args = (%diagonal_9, %fill))",
        "aten.diagonal_scatter.default is not in the opset %",
    ):
        with pytest.raises(ValueError, match="%") as caught, telling_where([graph]):
            raise ValueError(text)
        assert locate(caught.value) == found
