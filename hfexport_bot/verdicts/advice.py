"""What to do about failures that are the model's own, from ``advice.yml``. Pure."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated

from pydantic import Field

from hfexport_bot.schema import STAGES, CaseReport, OutcomeKind, Record
from hfexport_bot.verdicts.entries import Pattern, packaged_entries

#: Stages whose failures name no line.
_WITHOUT_A_LINE = frozenset({"eager", *STAGES["check"]})


class Advice(Record):
    """One entry. ``texts``: regular expressions, any of which is found in a failure's error type and message. ``row``
    begins the row of docs/extending.md that tells more."""

    id: str
    row: str
    stages: Annotated[tuple[str, ...], Field(min_length=1)]
    kinds: Annotated[tuple[OutcomeKind, ...], Field(min_length=1)] = (OutcomeKind.ERROR,)
    texts: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    advice: str


@cache
def known_advice() -> tuple[Advice, ...]:
    """The entries that come with the package."""
    return packaged_entries("advice.yml", Advice)


def advice_on(case: CaseReport) -> Advice | None:
    """What to do about a case's failure where it is the model's own. An export that fails on a line of somebody else's
    code, or on none that is known, may be anybody's."""
    outcome = case.head or case.base
    if outcome is None:
        return None
    is_own = bool(case.blame.source) if case.blame else outcome.stage in _WITHOUT_A_LINE
    if not is_own:
        return None
    text = f"{outcome.error_type}: {outcome.message}"
    return next(
        (
            each
            for each in known_advice()
            if outcome.kind in each.kinds
            and outcome.stage in each.stages
            and any(re.search(pattern, text) for pattern in each.texts)
        ),
        None,
    )
