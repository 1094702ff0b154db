"""The list of workarounds for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tabulate import tabulate

from hfexport_bot.reporting.text import plain
from hfexport_bot.schema import STAGES, Backend, WorkaroundInfo

_WIDTHS = [40, 60, 60]


def render_workarounds(found: Sequence[WorkaroundInfo]) -> str:
    """A table by backend and stage, in the order in which they run, and after it the paths that lead nowhere."""
    blocks = []
    for (backend, stage), group in groupby(sorted(found, key=_place), key=lambda each: (each.backend, each.stage)):
        rows = [
            (plain(each.id.rpartition("/")[2], 80), plain(each.reason, 200), plain(_until(each), 200)) for each in group
        ]
        headers = ("id", "reason", "until")
        table = tabulate(rows, headers=headers, tablefmt="simple", maxcolwidths=_WIDTHS, disable_numparse=True)
        blocks.append(f"{backend}/{stage}\n{table}")
    lost = [f"{plain(each.id, 300)}: {plain(path, 300)} does not resolve" for each in found for path in each.unresolved]
    return "\n\n".join((*blocks, *lost))


def _place(each: WorkaroundInfo) -> tuple[int, int]:
    stages = (*STAGES["prepare"], *STAGES[each.backend])
    return list(Backend).index(each.backend), stages.index(each.stage) if each.stage in stages else len(stages)


def _until(each: WorkaroundInfo) -> str:
    return each.upstream or f"the model changes: {each.model_change}"
