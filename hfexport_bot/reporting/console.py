"""Lines and tables in a terminal or a log, of text that may come from anywhere: nothing in it is markup or a code for
an emoji, and no part of it is coloured as a number or a path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print one line as it is, in one style."""
    # Not wrapped: a line that is broken in a log could begin with anything.
    console.print(Text(line, style=style), soft_wrap=True)


def print_table(console: Console, titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> None:
    """Print a table whose cells are folded where they are too long. ``numbers``: those of the last column are."""
    table = Table(box=box.SQUARE, header_style="bold")
    for title in titles:
        last = title is titles[-1]
        table.add_column(Text(title), overflow="fold", justify="right" if numbers and last else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
