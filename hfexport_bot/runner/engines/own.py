"""Who exports: engine ``own`` is this project's ``exporters``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from exporters import Artifact
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


class OwnGeneration:
    """What a case's ``generate`` calls, for our own exporters.

    Graphs of static shapes get a static cache with room for ``new_tokens``, since others grow with every token.
    ``on_stage`` is told of a stage and its component. Raises ``ValueError`` for a static cache of a model that reads no
    text.
    """

    def __init__(
        self,
        case: ModelCase,
        backend: Backend,
        *,
        dynamic: bool,
        new_tokens: int,
        disabled: Collection[str],
        on_stage: Callable[[str, str], None],
    ) -> None:
        self._exporter = exporter_for(backend)
        model: Any = case.model
        generation_config = None
        if not dynamic and "input_ids" not in case.inputs:
            raise ValueError(f"{type(model).__name__} reads no text, and then a static cache cannot be exported yet")
        if not dynamic:
            generation_config = copy.deepcopy(model.generation_config)
            generation_config.cache_implementation = "static"
            generation_config.max_length = case.inputs["input_ids"].shape[1] + new_tokens
        config = self._exporter.config_class(dynamic=dynamic, disabled=frozenset(disabled))
        self._arguments = (model, case.inputs, config, generation_config)
        self._component = ""
        self._told: dict[str, Any] = {
            "on_step": self._begin,
            "on_stage": lambda stage: on_stage(stage, self._component),
        }

    def export(self, on_trace: OnTrace | None) -> GenerationExport:
        """Export every component. Raises ``ValueError`` for a model that decodes in a way the exporters do not know,
        ``exporters.StageError`` otherwise."""
        return self._exporter.export_for_generation(*self._arguments, **self._told, on_trace=on_trace)

    def trace(self, on_trace: OnTrace) -> None:
        """Trace every component, and nothing else. Raises what `export` and ``on_trace`` raise."""
        self._exporter.trace_for_generation(*self._arguments, **self._told, on_trace=on_trace)

    def _begin(self, component: str) -> None:
        self._component = component
