"""Whether two failures are one: of one signature, and the later one not worse in its numbers. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import isnan

from hfexport_bot.schema import MAX_NAME_CHARS, MAX_TRIES, Outcome, OutcomeKind, Try
from hfexport_bot.settings import DriftSettings
from hfexport_bot.verdicts.moved import DEFAULT_DRIFT
from hfexport_bot.verdicts.signatures import signature


def told_of(outcome: Outcome) -> Try:
    """What a report tells of how one run ended, which is all that two ends are compared by."""
    compared = () if outcome.kind is OutcomeKind.PASS else tuple(itertools.islice(_compared(outcome), MAX_TRIES))
    return Try(
        kind=outcome.kind,
        signature=signature(outcome),
        errors={name: error for name, error, _ in compared},
        off=tuple(name for name, _, is_off in compared if is_off),
    )


def alike(base: Try, head: Try, limits: DriftSettings = DEFAULT_DRIFT) -> bool:
    """Whether head fails as base does: what fails where base did not, or is further off than drift may be, does not."""
    return base.signature == head.signature and not any(worse(base, head, limits))


def worse(base: Try, head: Try, limits: DriftSettings = DEFAULT_DRIFT) -> Iterator[str]:
    """One line for each output or probe that is off on head and was right on base, or off by much less. None where
    either side's numbers are unknown."""
    for name in head.off if base.errors else ():
        old, new = base.errors.get(name), head.errors[name]
        if old is None or new is None:
            if name not in base.off:
                yield f"{name}: off, and was not"
            elif old is not None:
                yield f"{name}: max abs error {old:.2g} → none, nothing to compare"
        elif not isnan(old) and not new <= limits.error_factor * max(old, limits.error_floor):  # also for a NaN
            yield f"{name}: max abs error {old:.2g} → {new:.2g}"


def _compared(outcome: Outcome) -> Iterator[tuple[str, float | None, bool]]:
    """Each output and each probe of an outcome: its name, its error, and whether it is off."""
    for component in outcome.components:
        inside = "" if component.name == "model" else f"{component.name}: "
        for output in component.outputs:
            yield f"{inside}{output.name}"[:MAX_NAME_CHARS], output.max_abs, output.mismatched > 0
        for probe in component.probes:
            if probe.status != "static":
                yield f"{inside}probe {probe.name}"[:MAX_NAME_CHARS], probe.max_abs, probe.status != "pass"
