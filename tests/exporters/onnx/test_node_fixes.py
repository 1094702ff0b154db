from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from exporters import OnnxExporter
from tests.exporters.models import assert_equals_eager

pytestmark = pytest.mark.export


class Pieces(torch.nn.Module):
    """x: (batch, length). ``size``: of a piece; ``count``: of pieces."""

    def __init__(self, size: int | None = None, count: int = 3) -> None:
        super().__init__()
        self.size, self.count = size, count

    def forward(self, x: torch.Tensor) -> Any:
        pieces = x.chunk(self.count, -1) if self.size is None else x.split(self.size, -1)
        return [piece * 2 for piece in pieces]


def _operators(artifact: Any) -> set[str]:
    return {node.op_type for node in artifact.program.model.graph}


def test_a_split_in_pieces_of_a_size_is_no_sequence() -> None:
    model = Pieces(size=4).eval()
    artifact = OnnxExporter().export_artifact(model, {"x": torch.randn(2, 10)}, {"dynamic": False})
    assert artifact.workarounds == {"onnx/node_fixes/fix_split_in_pieces": 1}
    assert _operators(artifact) == {"Split", "Mul"}
    assert_equals_eager(artifact, model, {"x": torch.randn(2, 10)})


def test_pieces_of_a_dynamic_axis_grow_with_it() -> None:
    model = Pieces(count=3).eval()
    inputs = {"x": torch.randn(2, 10)}
    artifact = OnnxExporter().export_artifact(model, inputs)
    assert "SplitToSequence" not in _operators(artifact)
    assert_equals_eager(artifact, model, *({"x": torch.randn(4, length)} for length in (10, 11, 12, 31)))


class Attention(torch.nn.Module):
    """x: (batch, length, 32), attended by 4 heads over ``heads`` of keys and values, with grouping switched on."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.into = torch.nn.Linear(32, 32 + 2 * 8 * heads)
        self.sizes = [32, 8 * heads, 8 * heads]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.into(x).split(self.sizes, -1)
        query, key, value = (part.unflatten(-1, (-1, 8)).transpose(1, 2) for part in parts)
        return scaled_dot_product_attention(query, key, value, enable_gqa=True)


@pytest.mark.parametrize(("heads", "hits"), [(4, 1), (2, 0)])
def test_grouping_that_groups_nothing_is_left_away(heads: int, hits: int) -> None:
    model = Attention(heads).eval()
    artifact = OnnxExporter().export_artifact(model, {"x": torch.randn(2, 5, 32)}, {"opset": 23})
    assert artifact.workarounds.get("onnx/node_fixes/fix_groups_of_one", 0) == hits
    assert "Attention" in _operators(artifact)
    assert_equals_eager(artifact, model, {"x": torch.randn(3, 7, 32)})
