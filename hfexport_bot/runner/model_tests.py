"""One export check inside a model author's own test: the case of a runner, in the test's process, told in words."""

from __future__ import annotations

from typing import Any, NamedTuple

from hfexport_bot.runner.case import examine, require_not_skipped
from hfexport_bot.runner.progress import Progress
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.runner.sources.testers import case_from_tester, model_classes
from hfexport_bot.schema import (
    Backend,
    CaseId,
    Component,
    Layout,
    Outcome,
    OutcomeKind,
    RunnerSetup,
    Shapes,
    Task,
)

#: What tells nothing of the export.
_SKIPPED = (OutcomeKind.SKIPPED, OutcomeKind.UNAVAILABLE, OutcomeKind.NONDETERMINISTIC)


class Finding(NamedTuple):
    """How a check ended; ``message`` says why it did not pass."""

    passed: bool
    skipped: bool
    message: str


def classes_to_check(test_case: Any, task: str) -> tuple[type, ...]:
    """The model classes of a test class that a task is for."""
    return model_classes(test_case, Task(task))


def check_model(test_case: Any, model_class: type, backend: str, shapes: str, task: str, *, root: str) -> Finding:
    """Export the model that a test's tester makes, run it in its runtime and compare it with eager, probes included.

    Args:
        test_case: an instance of the test class after its ``setUp``.
        root: the repository's folder; files are told relative to it.

    A test class that says ``test_torch_exportable = False`` is skipped, as by transformers' own export tests.
    """
    setup = RunnerSetup(layout=Layout.INSTALLED, tree=root)
    case_id = CaseId(
        model=model_class.__module__.rpartition(".")[2].removeprefix("modeling_"),
        class_name=model_class.__name__,
        backend=Backend(backend),
        shapes=Shapes(shapes),
        task=Task(task),
    )

    if getattr(test_case, "test_torch_exportable", True) is False:
        return Finding(False, True, f"{case_id}: {type(test_case).__name__} says test_torch_exportable = False")

    def find() -> ModelCase:
        require_not_skipped(model_class, case_id, setup)
        return case_from_tester(test_case, model_class, case_id.task, setup.seed)

    outcome = examine(case_id, find, setup, Progress(lambda stage, component: None))
    return Finding(outcome.kind is OutcomeKind.PASS, outcome.kind in _SKIPPED, tell(case_id, outcome))


def tell(case_id: CaseId, outcome: Outcome) -> str:
    """What happened to a case, in which stage and where, by how much it is off, and what is known besides."""
    stage = f"{outcome.component}, stage {outcome.stage}" if outcome.component else f"stage {outcome.stage}"
    at = f" at {outcome.location}" if outcome.location else ""
    error = f"{outcome.error_type}: " if outcome.error_type else ""
    lines = [f"{case_id}: {outcome.kind} in {stage}{at}: {error}{outcome.message}"]
    lines += [line for component in outcome.components for line in _numbers(component)]
    if outcome.workarounds and outcome.kind is not OutcomeKind.SKIPPED:
        lines.append(f"workarounds: {', '.join(sorted(outcome.workarounds))}")
    return "\n".join([*lines, *(f"note: {note}" for note in outcome.notes)])


def _numbers(component: Component) -> list[str]:
    traced = [f"{output.name} {output.max_abs:.3g}" for output in component.outputs if output.max_abs is not None]
    probes = [
        f"{probe.name} {probe.status}" + ("" if probe.max_abs is None else f" {probe.max_abs:.3g}")
        for probe in component.probes
    ]
    return [
        f"{component.name}, {what}: {', '.join(parts)}"
        for what, parts in (("largest error of each output as traced", traced), ("probes, with theirs", probes))
        if parts
    ]
