"""What a change affects, as a table or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hfexport_bot.changes.selection import Selection
from hfexport_bot.reporting.text import plain
from hfexport_bot.schema import Task

if TYPE_CHECKING:
    from rich.console import Console


def selection_json(selection: Selection) -> str:
    """An object with three lists: ``affected`` of model, class, reason, tasks; ``not_run`` of kind, name, reason;
    ``notes``."""
    affected = [
        {"model": model, "class": name, "reason": reason, "tasks": tasks}
        for model, name, reason, tasks in _rows(selection)
    ]
    not_run = [{"kind": each.kind, "name": each.name, "reason": each.reason} for each in selection.not_run]
    found = {"affected": affected, "not_run": not_run, "notes": list(selection.notes)}
    # Paths may hold bytes that are no UTF-8.
    return json.dumps(found, indent=2, ensure_ascii=False).encode("utf-8", "replace").decode()


def print_selection(selection: Selection, console: Console) -> None:
    """A table of the affected classes, a line for each thing that is not run, and how many there are."""
    from hfexport_bot.reporting.console import print_line, print_table  # JSON does without rich
    from hfexport_bot.reporting.summary import plural

    rows = _rows(selection)
    if rows:
        generate = {True: "", False: " (generate only)"}
        cells = [
            (plain(model), plain(name) + generate[Task.FORWARD.value in tasks], plain(reason))
            for model, name, reason, tasks in rows
        ]
        print_table(console, ("Model", "Class", "Why"), cells)
    for each in selection.not_run:
        print_line(console, f"not run: {each.kind} {plain(each.name)}: {plain(each.reason)}", "dim")
    for note in selection.notes:
        print_line(console, f"note: {plain(note)}", "yellow")
    models = len({model for model, *_ in rows})
    print_line(console, f"{plural(len(rows), 'class')} of {plural(models, 'model')} affected")


def _rows(selection: Selection) -> list[tuple[str, str, str, list[str]]]:
    rows = []
    for module in selection.affected:
        file = module.head or module.base
        if file is None:
            continue
        for name in module.classes:
            plain_forward = name in (*module.head_classes, *module.base_classes)
            generates = name in (*module.head_generating, *module.base_generating)
            tasks = [Task.FORWARD.value] * plain_forward + [Task.GENERATE.value] * generates
            rows.append((file.model, name, module.reason_of(name), tasks))
    return rows
