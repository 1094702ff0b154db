from __future__ import annotations

from typing import Any

import pytest
import torch

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
