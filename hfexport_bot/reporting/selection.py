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
    from rich.table import Column, Table  # JSON does without

    rows = _rows(selection)
    if rows:
        table = Table("Model", "Class", Column("Why", overflow="fold"))
        for model, name, reason, tasks in rows:
            only = "" if Task.FORWARD.value in tasks else " (generate only)"
            table.add_row(plain(model), plain(name) + only, plain(reason))
        console.print(table, markup=False)
    for each in selection.not_run:
        console.print(f"not run: {each.kind} {plain(each.name)}: {plain(each.reason)}", style="dim", markup=False)
    for note in selection.notes:
        console.print(f"note: {plain(note)}", style="yellow", markup=False)
    models = len({model for model, *_ in rows})
    counts = (
        f"{len(rows)} {'class' if len(rows) == 1 else 'classes'} of {models} {'model' if models == 1 else 'models'}"
    )
    console.print(f"{counts} affected", markup=False)


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
