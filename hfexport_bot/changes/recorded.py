"""What earlier runs tell of composite models: which files the models of their cases were built from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hfexport_bot.schema import Report

#: File to the classes, each with its model, whose cases built something that is written in it.
Built = Mapping[str, frozenset[tuple[str, str]]]


def recorded_builds(reports: Iterable[Report]) -> Built:
    """Read it off reports, from either side of their cases."""
    found: dict[str, set[tuple[str, str]]] = {}
    for case in (case for report in reports for case in report.cases):
        for file in {file for side in (case.base, case.head) if side is not None for file in side.built_from}:
            found.setdefault(file, set()).add((case.id.model, case.id.class_name))
    return {file: frozenset(classes) for file, classes in found.items()}
