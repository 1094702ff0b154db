"""Every promised case passes, is a registered skip that says why not, or is known to draw random numbers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hfexport_bot.schema import CaseId, CaseReport, OutcomeKind
from hfexport_bot.verdicts.compare import describe
from tests.reach.classes import RANDOM, is_quick, promised_cases

pytestmark = [pytest.mark.reach, pytest.mark.process]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=str(case), marks=() if is_quick(case) else pytest.mark.slow) for case in promised_cases()],
)
def test_promised(case: CaseId, results: Mapping[CaseId, CaseReport]) -> None:
    outcome = results[case].head
    assert outcome is not None
    if outcome.kind is OutcomeKind.SKIPPED:
        pytest.skip(outcome.message)
    wanted = OutcomeKind.NONDETERMINISTIC if case.class_name in RANDOM else OutcomeKind.PASS
    assert outcome.kind is wanted, describe(outcome)
