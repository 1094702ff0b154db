"""ONNX's reference evaluator, mended where it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class GatherElements(OpRun):  # type: ignore[misc]  # onnx ships no types
    """The operator as the ONNX specification defines it.

    The evaluator's own version asks for indices as large as the data on every other axis, and fails on BERT's
    gather from a buffer of 512 token types: https://github.com/onnx/onnx/pull/8444, newer than the pinned onnx.
    """

    op_domain = ""

    def _run(self, data: Any, indices: Any, axis: int = 0) -> tuple[Any]:
        axis %= data.ndim
        # Only the gathered axis may be longer in the data than the indices reach.
        window = tuple(slice(None) if dim == axis else slice(size) for dim, size in enumerate(indices.shape))
        wrapped = np.where(indices < 0, indices + data.shape[axis], indices)
        return (np.take_along_axis(data[window], wrapped, axis=axis),)


def make_evaluator(model: ModelProto) -> ReferenceEvaluator:
    """A reference evaluator for ``model``."""
    return ReferenceEvaluator(model, new_ops=[GatherElements])
