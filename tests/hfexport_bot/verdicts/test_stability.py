from __future__ import annotations

import pytest

from hfexport_bot.execution.reruns import Tries
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import CaseId, Outcome, OutcomeKind
from hfexport_bot.verdicts.compare import make_cases
from hfexport_bot.verdicts.stability import how_often, is_stable, may_be_chance, told

PASS = Outcome(kind=OutcomeKind.PASS)
GUARD, KERNEL = (
    Outcome(kind=OutcomeKind.ERROR, stage=stage, message=text) for stage, text in (("trace", "guard"), ("run", "none"))
)
SKIPPED = Outcome(kind=OutcomeKind.SKIPPED, stage="source", message="registered")


@pytest.mark.parametrize(
    ("base", "head", "chance"),
    [
        (PASS, GUARD, True),
        (GUARD, PASS, True),
        (GUARD, KERNEL, True),
        (PASS, SKIPPED, True),
        (PASS, PASS, False),
        (GUARD, GUARD, False),
    ],
)
def test_another_end_than_on_base_is_worth_another_run(base: Outcome, head: Outcome, chance: bool) -> None:
    assert may_be_chance(base, head) is chance


@pytest.mark.parametrize(
    ("base", "head", "stable"),
    [
        ((PASS, PASS, PASS), (GUARD, GUARD, GUARD), True),
        ((PASS, PASS, PASS), (GUARD, KERNEL, GUARD), True),  # it never passes, whatever it fails with
        ((PASS, PASS, PASS), (GUARD, PASS, GUARD), False),
        ((PASS, GUARD, PASS), (GUARD, GUARD, GUARD), False),
        ((GUARD, GUARD), (PASS, PASS), True),
        ((GUARD, GUARD), (KERNEL, KERNEL), True),
        ((GUARD, GUARD), (KERNEL, GUARD), False),  # now and then as on base
    ],
)
def test_sides_that_change_from_run_to_run_are_not_stable(
    base: tuple[Outcome, ...], head: tuple[Outcome, ...], stable: bool
) -> None:
    assert is_stable(told(Tries(base, head))) is stable
    case = PlannedCase(CaseId.parse("m/M/onnx/dynamic/forward"), "m.py", "m.py", "changed")
    (report,) = make_cases([case], {case.id: base[0]}, {case.id: head[0]}, tried={case.id: told(Tries(base, head))})
    assert (report.verdict == "flaky") is not stable


def test_how_often_is_told_of_each_side_that_failed() -> None:
    case = PlannedCase(CaseId.parse("m/M/onnx/dynamic/forward"), "m.py", "m.py", "changed")
    (report,) = make_cases(
        [case], {case.id: PASS}, {case.id: GUARD}, tried={case.id: told(Tries((PASS, PASS, PASS), (GUARD, PASS, PASS)))}
    )
    assert report.details == ("head failed 1 of 3 runs",)
    assert list(how_often(told(Tries((PASS, GUARD), (GUARD, GUARD))))) == [
        "base failed 1 of 2 runs",
        "head failed 2 of 2 runs",
    ]
