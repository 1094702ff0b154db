"""Who exports: ``own`` is this project's ``exporters``, ``repo`` the revision's own ``transformers.exporters``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from exporters import Artifact
from exporters.stages import OnTrace
from hfexport_bot.runner.engines.own import OwnGeneration, export_own
from hfexport_bot.runner.engines.package import NoEngine
from hfexport_bot.runner.engines.parts import RepoParts
from hfexport_bot.runner.engines.repo import CannotDrive, RepoStageError, export_generation_repo, export_repo
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import REPO_PREFIX, Backend, Engine

if TYPE_CHECKING:
    from exporters.runtime.generation import GenerationExport

__all__ = ["CannotDrive", "NoEngine", "RepoParts", "RepoStageError", "export", "export_generation", "trace_generation"]


def export(
    case: ModelCase,
    backend: Backend,
    *,
    engine: Engine,
    dynamic: bool,
    disabled: Collection[str],
    on_stage: Callable[[str, str], None],
    on_trace: OnTrace | None = None,
) -> Artifact | RepoParts:
    """Export a case's forward; ``on_trace`` is told of the traced program, before anything changes it, ``on_stage`` of
    a stage and, where there are several, its component.

    Raises ``exporters.StageError``, and `NoEngine` where the engine is not there.
    """
    own = _those_of(engine, disabled)
    if engine is Engine.REPO:
        return export_repo(case, backend, dynamic=dynamic, disabled=own, on_stage=on_stage, on_trace=on_trace)
    return export_own(
        case, backend, dynamic=dynamic, disabled=own, on_stage=lambda stage: on_stage(stage, ""), on_trace=on_trace
    )


def export_generation(
    case: ModelCase,
    backend: Backend,
    *,
    engine: Engine,
    dynamic: bool,
    new_tokens: int,
    disabled: Collection[str],
    on_stage: Callable[[str, str], None],
    on_trace: OnTrace | None = None,
) -> GenerationExport | RepoParts:
    """Export what a case's ``generate`` calls; ``on_stage`` is told of a stage and its component, ``on_trace`` of each
    component's program.

    Graphs of static shapes get a static cache with room for ``new_tokens``. Raises as `export` does, ``ValueError`` for
    a model that decodes in a way the engine does not know, and `CannotDrive` where the engine has no steps for it.
    """
    own = _those_of(engine, disabled)
    if engine is Engine.REPO:
        return export_generation_repo(
            case, backend, dynamic=dynamic, new_tokens=new_tokens, disabled=own, on_stage=on_stage, on_trace=on_trace
        )
    asked = OwnGeneration(case, backend, dynamic=dynamic, new_tokens=new_tokens, disabled=own, on_stage=on_stage)
    return asked.export(on_trace)


def trace_generation(
    case: ModelCase,
    backend: Backend,
    *,
    engine: Engine,
    dynamic: bool,
    new_tokens: int,
    disabled: Collection[str],
    on_stage: Callable[[str, str], None],
    on_trace: OnTrace,
) -> None:
    """Trace the components of `export_generation` and leave out what follows, where the engine can. Raises what that
    and ``on_trace`` raise."""
    if engine is Engine.OWN:
        own = _those_of(engine, disabled)
        asked = OwnGeneration(case, backend, dynamic=dynamic, new_tokens=new_tokens, disabled=own, on_stage=on_stage)
        asked.trace(on_trace)


def _those_of(engine: Engine, disabled: Collection[str]) -> frozenset[str]:
    """The workarounds of one engine: a run may disable some of each."""
    return frozenset(name for name in disabled if name.startswith(REPO_PREFIX) == (engine is Engine.REPO))
