"""Stages ``load``, ``run`` and ``parity`` of parts that are judged one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hfexport_bot.runner.checks import Checked, check
from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.engines import RepoParts
from hfexport_bot.runner.progress import OnStage


def check_parts(
    parts: RepoParts, *, dynamic: bool, seed: int, on_stage: OnStage, clean: Callable[[str], str]
) -> Checked:
    """Check each part on its own inputs and probes; the first failure decides."""
    found: list[Checked] = []
    for name, artifact in parts.artifacts.items():
        case = parts.cases[name]
        on_stage("eager", name)
        expected = run_eager(case.model, case.inputs, seed)
        checked = check(
            artifact,
            case,
            expected,
            dynamic=dynamic,
            seed=seed,
            on_stage=partial(_told, on_stage, name),
            clean=clean,
        )
        components = tuple(component.model_copy(update={"name": name}) for component in checked.components)
        failure = checked.failure and replace(checked.failure, component=name)
        found.append(Checked(components, failure, tuple(f"{name}: {note}" for note in checked.notes)))
    return Checked(
        components=tuple(component for checked in found for component in checked.components),
        failure=next((checked.failure for checked in found if checked.failure is not None), None),
        notes=tuple(note for checked in found for note in checked.notes),
    )


def _told(on_stage: OnStage, component: str, stage: str) -> None:
    on_stage(stage, component)
