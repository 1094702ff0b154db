"""Who exports: engine ``own`` is this project's ``exporters``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from exporters import Artifact
from exporters.base import HfExporter
from exporters.many import exporter_for
from exporters.stages import OnTrace
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import Backend

if TYPE_CHECKING:
    from exporters.runtime.generation import GenerationExport


def export_own(
    case: ModelCase,
    backend: Backend,
    *,
    dynamic: bool,
    disabled: Collection[str],
    on_stage: Callable[[str], None],
    on_trace: OnTrace | None = None,
) -> Artifact:
    """Export a case with our own exporters. Raises ``exporters.StageError``."""
    exporter = exporter_for(backend)
    return exporter.export_artifact(
        case.model,
        case.inputs,
        exporter.config_class(dynamic=dynamic, disabled=frozenset(disabled)),
        on_stage=on_stage,
        on_trace=on_trace,
    )


def export_generation_own(
    case: ModelCase,
    backend: Backend,
    *,
    dynamic: bool,
    new_tokens: int,
    disabled: Collection[str],
    on_stage: Callable[[str, str], None],
    on_trace: OnTrace | None = None,
) -> GenerationExport:
    """Export what a case's ``generate`` calls, with our own exporters.

    Graphs of static shapes get a static cache with room for ``new_tokens``, since others grow with every token.
    ``on_stage`` is told of a stage and its component. Raises ``ValueError`` for a model that decodes in a way the
    exporters do not know, ``exporters.StageError`` otherwise.
    """
    exporter, arguments, told = _generating(case, backend, dynamic, new_tokens, disabled, on_stage)
    return exporter.export_for_generation(*arguments, **told, on_trace=on_trace)


def trace_generation_own(
    case: ModelCase,
    backend: Backend,
    *,
    dynamic: bool,
    new_tokens: int,
    disabled: Collection[str],
    on_stage: Callable[[str, str], None],
    on_trace: OnTrace,
) -> None:
    """Trace each component of `export_generation_own`, and nothing else. Raises what that and ``on_trace`` raise."""
    exporter, arguments, told = _generating(case, backend, dynamic, new_tokens, disabled, on_stage)
    exporter.trace_for_generation(*arguments, **told, on_trace=on_trace)


def _generating(
    case: ModelCase,
    backend: Backend,
    dynamic: bool,
    new_tokens: int,
    disabled: Collection[str],
    on_stage: Callable[[str, str], None],
) -> tuple[HfExporter, tuple[Any, ...], dict[str, Any]]:
    """The exporter, what it generates with, and whom it tells."""
    exporter = exporter_for(backend)
    model: Any = case.model
    generation_config = None
    if not dynamic and "input_ids" not in case.inputs:
        raise ValueError(f"{type(model).__name__} reads no text, and then a static cache cannot be exported yet")
    if not dynamic:
        generation_config = copy.deepcopy(model.generation_config)
        generation_config.cache_implementation = "static"
        generation_config.max_length = case.inputs["input_ids"].shape[1] + new_tokens
    component = ""

    def on_step(name: str) -> None:
        nonlocal component
        component = name

    config = exporter.config_class(dynamic=dynamic, disabled=frozenset(disabled))
    told = {"on_step": on_step, "on_stage": lambda stage: on_stage(stage, component)}
    return exporter, (model, case.inputs, config, generation_config), told
