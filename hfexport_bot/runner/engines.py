"""Who exports: engine ``own`` is this project's ``exporters``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import exporters
from exporters import Artifact, DynamoConfig, ExecutorchConfig, OnnxConfig
from exporters.base import HfExporter
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import Backend

if TYPE_CHECKING:
    from exporters.runtime.generation import GenerationExport


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


def export_generation_own(
    case: ModelCase,
    backend: Backend,
    *,
    dynamic: bool,
    new_tokens: int,
    disabled: Collection[str],
    on_stage: Callable[[str, str], None],
) -> GenerationExport:
    """Export what a case's ``generate`` calls, with our own exporters.

    Graphs of static shapes get a static cache with room for ``new_tokens``, since others grow with every token.
    ``on_stage`` is told of a stage and its component. Raises ``ValueError`` for a model that decodes in a way the
    exporters do not know, ``exporters.StageError`` otherwise.
    """
    exporter, config = _exporter(backend)
    model: Any = case.model
    generation_config = None
    if not dynamic:
        generation_config = copy.deepcopy(model.generation_config)
        generation_config.cache_implementation = "static"
        generation_config.max_length = case.inputs["input_ids"].shape[1] + new_tokens
    encodes = model.config.is_encoder_decoder
    return exporter.export_for_generation(
        model,
        case.inputs,
        config(dynamic=dynamic, disabled=frozenset(disabled)),
        generation_config,
        on_stage=_with_component(on_stage, ("encoder", "prefill", "decode") if encodes else ("prefill", "decode")),
    )


def _with_component(on_stage: Callable[[str, str], None], components: Sequence[str]) -> Callable[[str], None]:
    """Components are exported one after the other: each begins with the stage that the first one began with."""
    first = ""
    begun = 0

    def tell(stage: str) -> None:
        nonlocal first, begun
        first = first or stage
        begun += stage == first
        on_stage(stage, components[min(begun, len(components)) - 1])

    return tell
