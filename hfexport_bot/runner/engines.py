"""Who exports: engine ``own`` is this project's ``exporters``."""

from __future__ import annotations

from collections.abc import Callable, Collection

import exporters
from exporters import Artifact, DynamoConfig, ExecutorchConfig, OnnxConfig
from exporters.base import HfExporter
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import Backend


def _exporter(backend: Backend) -> tuple[HfExporter, type[DynamoConfig]]:
    if backend is Backend.ONNX:
        return exporters.OnnxExporter(), OnnxConfig
    if backend is Backend.EXECUTORCH:
        return exporters.ExecutorchExporter(), ExecutorchConfig
    return exporters.DynamoExporter(), DynamoConfig


def export_own(
    case: ModelCase,
    backend: Backend,
    *,
    dynamic: bool,
    disabled: Collection[str],
    on_stage: Callable[[str], None],
) -> Artifact:
    """Export a case with our own exporters. Raises ``exporters.StageError``."""
    exporter, config = _exporter(backend)
    return exporter.export_artifact(
        case.model, case.inputs, config(dynamic=dynamic, disabled=frozenset(disabled)), on_stage=on_stage
    )
