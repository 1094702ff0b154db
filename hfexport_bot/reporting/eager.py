"""Eager against eager in words: whether a change moved a model's own numbers, apart from any export. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from hfexport_bot.reporting.summary import error_size, plural
from hfexport_bot.schema import NO_LONGER_TAKEN, CaseReport, EagerChange, OutputChange, largest

#: Outputs that are told of one model.
SHOWN = 4
#: How the probes begin that have other sizes and nothing else.
_SIZES = ("probe batch_", "probe length_", "probe image_", "probe grid_")


def eager_cell(cases: Iterable[CaseReport]) -> str:
    """``unchanged``, ``moved 0.003``, ``refuses 3 sizes, moved 0.003``, ``not comparable``; empty where it is unknown.
    Holds no untrusted text."""
    change = next((case.eager for case in cases if case.eager is not None), None)
    if change is None:
        return ""
    if not change.is_moved:
        return "unchanged" if change.is_comparable else "not comparable"
    refused = [output.name for output in change.moved if output.note.startswith(NO_LONGER_TAKEN)]
    parts = []
    if refused:
        of_sizes = all(name.startswith(_SIZES) for name in refused)
        parts.append(f"refuses {plural(len(refused), 'size' if of_sizes else 'probe')}")
    if len(refused) < len(change.moved):
        size = largest(output.max_abs for output in change.moved)
        parts.append(f"moved {error_size(size)}" if size is not None else "moved")
    return ", ".join(parts)


def eager_changes(cases: Iterable[CaseReport]) -> list[tuple[CaseReport, str]]:
    """What is worth telling: one case for each model and inputs whose eager outputs moved or could not be compared, and
    how. Untrusted text."""
    found: dict[tuple[object, ...], tuple[CaseReport, str]] = {}
    for case in cases:
        key = (case.id.model, case.id.class_name, case.id.task, case.id.variant)
        if case.eager is not None and key not in found and (said := _said(case.eager, case)):
            found[key] = (case, said)
    return list(found.values())


def _said(change: EagerChange, case: CaseReport) -> str:
    moved = _moved(change)
    if not change.configuration:
        return moved
    outcome = case.head or case.base
    maker = f", from {outcome.source}," if outcome is not None and outcome.source else ""
    return (
        f"its configuration{maker} is another than on base ({change.configuration}); with base's, "
        f"{moved or 'outputs are unchanged'}"
    )


def _moved(change: EagerChange) -> str:
    if change.problem:
        return f"not compared, {change.problem}"
    if change.weights:
        return f"weights {'not comparable' if change.moved else 'differ, outputs do not'}: {change.weights}"
    told = "; ".join(map(_output, change.moved[:SHOWN]))
    more = len(change.moved) - SHOWN
    return told + (f"; and {more} more" if more > 0 else "")


def _output(output: OutputChange) -> str:
    where = f" (probe {output.probe})" if output.probe else ""
    if output.note != "moved" or output.max_abs is None:
        return f"{output.name}: {output.note}{where}"
    return f"{output.name} moved by up to {error_size(output.max_abs)}, {output.share:.0%} of it{where}"
