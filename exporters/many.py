"""One model to several backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from exporters.base import HfExporter, prepare_inputs
from exporters.configs import DynamoConfig, coerce
from exporters.dynamo.exporter import DynamoExporter
from exporters.saved_config import CONFIGS
from exporters.stages import StageError

if TYPE_CHECKING:
    from exporters.artifacts import Artifact

Config = DynamoConfig | Mapping[str, Any] | None


class ExportResults(Mapping[str, "Artifact"]):
    """The artifacts by backend, of those that were exported.

    Attributes:
        errors: what stopped the others, by backend: a ``StageError``, or an ``ImportError`` or ``ValueError`` where a
            backend is not installed or refuses the model.
    """

    def __init__(self, artifacts: Mapping[str, Artifact], errors: Mapping[str, Exception]) -> None:
        self._artifacts = dict(artifacts)
        self.errors = dict(errors)

    def __getitem__(self, backend: str) -> Artifact:
        if backend in self.errors:
            raise KeyError(f"{backend} was not exported: {self.errors[backend]}")
        return self._artifacts[backend]

    def __iter__(self) -> Iterator[str]:
        return iter(self._artifacts)

    def __len__(self) -> int:
        return len(self._artifacts)


def export_many(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    configs: Mapping[str, Config] | Iterable[str] = tuple(CONFIGS),
    *,
    on_stage: Callable[[str, str], None] | None = None,
) -> ExportResults:
    """Export a model to several backends; one that fails does not lose the others.

    Each backend traces the model itself, so that an artifact is what its exporter gives alone, whatever ran before it.
    One trace for torch.export and ExecuTorch was tried and is not sound, also with the program copied: copies share the
    symbols of their sizes, and an axis that ExecuTorch's lowering took for fixed was fixed in the saved ``.pt2`` too.
    It would have saved 6% of a small model's ExecuTorch export.

    Args:
        model, inputs: as for ``export()``.
        configs: the backends, ``dynamo``, ``onnx`` and ``executorch`` (all by default), or a config for each.
        on_stage: called with the backend and the name of each stage as it begins.

    Raises:
        ValueError, TypeError: no backend can export the model or the inputs as they are, or a backend or config is
            unknown; before anything is exported.
    """
    if isinstance(configs, str):
        configs = (configs,)
    chosen = dict(configs) if isinstance(configs, Mapping) else dict.fromkeys(configs)
    if unknown := sorted(chosen.keys() - CONFIGS.keys()):
        raise ValueError(f"unknown backend {', '.join(map(repr, unknown))}; known are {', '.join(CONFIGS)}")
    checked = {backend: coerce(config, CONFIGS[backend]) for backend, config in chosen.items()}
    prepare_inputs(model, inputs)
    artifacts: dict[str, Artifact] = {}
    errors: dict[str, Exception] = {}
    for backend, config in checked.items():
        tell = partial(on_stage, backend) if on_stage is not None else None
        try:
            artifacts[backend] = exporter_for(backend).export_artifact(model, inputs, config, on_stage=tell)
        except (StageError, ImportError, ValueError, TypeError) as error:
            errors[backend] = error
    return ExportResults(artifacts, errors)


def exporter_for(backend: str) -> HfExporter:
    """The exporter of a backend. Raises ``ImportError`` where its packages are not installed."""
    if backend == "onnx":
        from exporters.onnx.exporter import OnnxExporter

        return OnnxExporter()
    if backend == "executorch":
        from exporters.executorch.exporter import ExecutorchExporter

        return ExecutorchExporter()
    return DynamoExporter()
