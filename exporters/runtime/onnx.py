"""Runs ONNX models in ONNX Runtime, on the CPU and one thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime
import torch

from exporters.origins import tell_where_in_onnx
from exporters.runtime.session import UnsupportedByRuntime

if TYPE_CHECKING:
    from exporters.artifacts import Artifact

_ERRORS_ONLY = 3


def make_session(model: str | bytes) -> Any:
    """An ``onnxruntime.InferenceSession`` for a serialised model or a file's path."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class OnnxSession:
    def __init__(self, artifact: Artifact) -> None:
        program = artifact.program
        self._output_paths = artifact.output_paths
        self._model = None if isinstance(program, Path) else program.model
        try:
            self._session = make_session(str(program)) if isinstance(program, Path) else program.load(make_session)
        except Exception as error:  # the runtime's own classes have no base of theirs
            tell_where_in_onnx(error, self._model)
            if isinstance(error, onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented):
                raise UnsupportedByRuntime(f"ONNX Runtime: {error}") from error
            raise
        self._input_names = [value.name for value in self._session.get_inputs()]

    def run(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        feeds = {name: tensor.detach().numpy() for name, tensor in zip(self._input_names, tensors, strict=True)}
        try:
            outputs = self._session.run(None, feeds)
        except Exception as error:
            tell_where_in_onnx(error, self._model)
            raise
        return {path: torch.from_numpy(value) for path, value in zip(self._output_paths, outputs, strict=True)}
