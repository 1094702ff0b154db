"""Models that are left out of a backend, or of ONNX's optimizer, until what stops them is mended.

Entries are workarounds like the others: each has an id, a reason, and ``upstream=`` or ``model_change=``; ``disabled``
switches one off. Whoever checks models asks `find_skip` and does not export what is skipped; ``export()`` itself does
what it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from exporters.registry import SKIP_STAGE, Hits, Kind, Workaround, add_workaround, require_reasons, workarounds

_SHAPES = ("dynamic", "static")
_TASKS = ("forward", "generate")


@dataclass(frozen=True)
class _Scope:
    """Which cases an entry is for; ``None`` stands for any."""

    models: tuple[str, ...]
    shapes: str | None = None
    task: str | None = None

    def __call__(self, model_class: type, shapes: str | None = None, task: str | None = None) -> bool:
        config_class = getattr(model_class, "config_class", None)
        names = {
            model_class.__name__,
            f"{model_class.__module__}.{model_class.__qualname__}",
            getattr(config_class, "model_type", None),
        }
        return not names.isdisjoint(self.models) and self.shapes in (None, shapes) and self.task in (None, task)


class SkipTable(Mapping[str, Workaround]):
    """The entries of one kind by id: a live view of the registry."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def __getitem__(self, workaround_id: str) -> Workaround:
        return {entry.id: entry for entry in workarounds(kind=self._kind)}[workaround_id]

    def __iter__(self) -> Iterator[str]:
        return (entry.id for entry in workarounds(kind=self._kind))

    def __len__(self) -> int:
        return len(workarounds(kind=self._kind))


#: What is not exported to a backend. An entry is made with `register_export_skip`.
EXPORT_SKIPS = SkipTable("skip")

#: What onnxscript's optimizer breaks. An entry is made with `register_onnx_disable_optimize`.
ONNX_DISABLE_OPTIMIZE = SkipTable("no_optimize")


def register_export_skip(
    name: str,
    *models: str,
    backend: str,
    reason: str,
    shapes: Literal["dynamic", "static"] | None = None,
    task: Literal["forward", "generate"] | None = None,
    upstream: str | None = None,
    model_change: str | None = None,
) -> str:
    """Leave models out of a backend; returns the entry's id, ``backend/source/name``.

    Args:
        models: class names (``GPT2Model``), dotted paths of classes, or model types (``gpt2``, all its classes).
        reason: what happens without the skip, a sentence.
        shapes, task: only these; both by default.
        upstream: address of the issue. model_change: what the model should do instead. One is needed.

    Raises:
        ValueError: a name, a reason or a model is missing, or the id is taken.
    """
    if shapes not in (None, *_SHAPES) or task not in (None, *_TASKS):
        raise ValueError(f"shapes are {' or '.join(_SHAPES)}, tasks {' or '.join(_TASKS)}; got {shapes!r} and {task!r}")
    scope = _Scope(models, shapes, task)
    return _register("skip", f"{backend}/{SKIP_STAGE}/{name}", scope, reason, upstream, model_change)


def register_onnx_disable_optimize(
    name: str, *models: str, reason: str, upstream: str | None = None, model_change: str | None = None
) -> str:
    """Pass over ONNX's stage ``optimize`` for models; returns the entry's id, ``onnx/optimize/name``.

    Arguments and errors as for `register_export_skip`.
    """
    return _register("no_optimize", f"onnx/optimize/{name}", _Scope(models), reason, upstream, model_change)


def _register(
    kind: Kind, workaround_id: str, scope: _Scope, reason: str, upstream: str | None, model_change: str | None
) -> str:
    backend, stage, name = workaround_id.split("/", 2)
    require_reasons(backend, stage, upstream, model_change)
    if not (name and reason and scope.models and all(scope.models)):
        raise ValueError(f"{workaround_id} needs a name, a reason and the models it is for")
    add_workaround(
        Workaround(
            id=workaround_id,
            kind=kind,
            backend=backend,
            stage=stage,
            reason=reason,
            function=scope,
            targets=tuple(part for part in (*scope.models, scope.shapes, scope.task) if part),
            upstream=upstream,
            model_change=model_change,
        )
    )
    return workaround_id


def find_skip(
    model_class: type, *, backend: str, shapes: str, task: str, disabled: Iterable[str] = ()
) -> Workaround | None:
    """The first entry of `EXPORT_SKIPS` that is for this case and not in ``disabled``."""
    entries = workarounds(backend, kind="skip", disabled=disabled)
    return next((entry for entry in entries if entry.function(model_class, shapes, task)), None)


def skips_optimize(model_class: type, hits: Hits, disabled: Iterable[str] = ()) -> bool:
    """Whether an entry of `ONNX_DISABLE_OPTIMIZE` is for a class; each that is counts as a hit."""
    found = [entry for entry in workarounds(kind="no_optimize", disabled=disabled) if entry.function(model_class)]
    for entry in found:
        hits.add(entry)
    return bool(found)
