"""Exporters: a Hugging Face model to a torch.export program, an ONNX model or an ExecuTorch program.

Importing this package imports torch, but neither transformers nor a backend: those come with the exporter that
needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from exporters.artifacts import Artifact
from exporters.configs import DynamoConfig, ExecutorchConfig, OnnxConfig
from exporters.dynamo.exporter import DynamoExporter
from exporters.many import ExportResults, export_many
from exporters.runtime.generation import GenerationExport
from exporters.runtime.session import UnsupportedByRuntime
from exporters.stages import StageError

if TYPE_CHECKING:
    from exporters.executorch.exporter import ExecutorchExporter
    from exporters.onnx.exporter import OnnxExporter

__all__ = [
    "Artifact",
    "DynamoConfig",
    "DynamoExporter",
    "ExecutorchConfig",
    "ExecutorchExporter",
    "ExportResults",
    "GenerationExport",
    "OnnxConfig",
    "OnnxExporter",
    "StageError",
    "UnsupportedByRuntime",
    "export_many",
]

_LAZY = {"OnnxExporter": "exporters.onnx.exporter", "ExecutorchExporter": "exporters.executorch.exporter"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
