"""Every promised case passes, or is a registered skip that says why not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hfexport_bot.schema import CaseId, CaseReport, OutcomeKind
from hfexport_bot.verdicts.compare import describe
from tests.reach.classes import is_quick, promised_cases

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
    assert outcome.kind is OutcomeKind.PASS, describe(outcome)
