"""A small report with something in every section, made the way a run makes it."""

from __future__ import annotations

import pytest

from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import (
    Backend,
    CaseId,
    Component,
    Location,
    NotRun,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
)
from hfexport_bot.verdicts.compare import make_cases

GUARD = Outcome(
    kind=OutcomeKind.ERROR,
    stage="trace",
    error_type="torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode",
    message="Could not guard on data-dependent expression Eq(u0, 1)\n\nif x.sum() > 0:",
    location=Location(file="models/modeling_tiny.py", line=31, function="forward"),
    seconds=1.0,
)
WRONG = Outcome(
    kind=OutcomeKind.PARITY,
    stage="parity",
    message="logits: max abs 0.031",
    components=(Component(name="model", max_abs=0.031),),
)


def passing(max_abs: float = 3e-7, nodes: int = 100, inputs: tuple[str, ...] = ("x",)) -> Outcome:
    component = Component(name="model", max_abs=max_abs, nodes=nodes, inputs=inputs)
    return Outcome(kind=OutcomeKind.PASS, components=(component,), seconds=2.0, workarounds={"onnx.patch.sdpa": 2})


# class -> backend -> base, head (None: the class is not there)
SIDES: dict[str, dict[Backend, tuple[Outcome | None, Outcome | None]]] = {
    "Branch": {backend: (passing(), GUARD) for backend in Backend},
    "Gelu": {
        Backend.DYNAMO: (passing(0.0), passing(0.0)),
        Backend.ONNX: (passing(), passing(inputs=("x", "y"))),
        Backend.EXECUTORCH: (passing(), WRONG),
    },
    "Mended": {Backend.DYNAMO: (GUARD, passing()), Backend.ONNX: (GUARD, WRONG)},
    "Grown": {Backend.ONNX: (passing(), passing(nodes=200))},
    "Broken": {Backend.DYNAMO: (GUARD, GUARD)},
    "Fresh": {Backend.DYNAMO: (None, passing())},
    "Gone": {Backend.DYNAMO: (passing(), None)},
}


@pytest.fixture
def run_report() -> Report:
    planned, base, head = [], {}, {}
    for class_name, backends in SIDES.items():
        for backend, (before, after) in backends.items():
            case = CaseId(model="models/modeling_tiny", class_name=class_name, backend=backend)
            modules = ["models/modeling_tiny.py" if side else None for side in (before, after)]
            planned.append(PlannedCase(case, modules[0], modules[1], "modeling_tiny.py changed"))
            if before:
                base[case] = before
            if after:
                head[case] = after
    return Report(
        command="run",
        base=Revision(name="main", sha="d" * 40),
        head=Revision(name="topic", sha="a" * 40),
        cases=make_cases(planned, base, head),
        not_run=(NotRun(kind="file", name="models/modeling_doc.py", reason="only docstrings changed"),),
        notes=("the settings change after merge",),
        seconds=112.0,
        versions={"torch": "2.13.0"},
    )


@pytest.fixture
def check_report(run_report: Report) -> Report:
    planned = [PlannedCase(case.id, None, "x", "") for case in run_report.cases if case.head]
    head = {case.id: case.head for case in run_report.cases if case.head}
    return Report(
        command="check",
        head=Revision(name="transformers 5.24.0"),
        cases=make_cases(planned, None, head),
        seconds=4.0,
    )
