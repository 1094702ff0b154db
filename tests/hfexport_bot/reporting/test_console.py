"""What the terminal shows of text that comes from a repository is that text."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hfexport_bot.changes.layout import ModelFile
from hfexport_bot.changes.selection import AffectedModule, Selection
from hfexport_bot.reporting.census import print_census
from hfexport_bot.reporting.console import print_line, print_table
from hfexport_bot.reporting.selection import print_selection
from hfexport_bot.reporting.terminal import print_report
from hfexport_bot.schema import Census, NotRun, Report, Revision

#: Markup, a code for an emoji, a link and a colour of rich's; and what it would show in another colour.
FOREIGN = "zoo/a:x:.py [bold]b[/bold] [link=x]y[/link] [/] :smile: 12 'z'"


def terminal() -> tuple[Console, io.StringIO]:
    """A console that believes to be a terminal, and what it prints."""
    stream = io.StringIO()
    return Console(file=stream, width=200, force_terminal=True, color_system="truecolor"), stream


def test_a_line_is_printed_as_it_is() -> None:
    console, stream = terminal()
    print_line(console, FOREIGN)
    assert stream.getvalue() == FOREIGN + "\n"


def test_the_cells_of_a_table_are_printed_as_they_are() -> None:
    console, stream = terminal()
    print_table(console, (FOREIGN, "n"), [(FOREIGN, FOREIGN)], numbers=True)
    assert stream.getvalue().count(FOREIGN) == 3


def test_a_cell_that_is_too_long_is_folded_and_not_cut() -> None:
    stream = io.StringIO()
    print_table(Console(file=stream, width=20), ("a", "b"), [("x" * 30, "y" * 30)])
    assert (stream.getvalue().count("x"), stream.getvalue().count("y")) == (30, 30)


def test_a_selection_is_printed_as_it_is() -> None:
    file = ModelFile("m.py", "m.py", FOREIGN)
    module = AffectedModule(file, file, (FOREIGN,), (FOREIGN,), FOREIGN)
    not_run = NotRun(kind="file", name=FOREIGN, reason=FOREIGN)
    console, stream = terminal()
    print_selection(Selection((module,), (not_run,), (FOREIGN,)), console)
    shown = stream.getvalue()
    assert shown.count(FOREIGN) == 6
    assert "1 class of 1 model affected\n" in shown


@pytest.mark.parametrize("place", ["notes", "failure"])
def test_a_report_is_printed_as_it_is(check_report: Report, place: str) -> None:
    said = {"notes": (FOREIGN,)} if place == "notes" else {"failure": FOREIGN}
    case = check_report.cases[0]
    named = case.model_copy(update={"id": case.id.model_copy(update={"class_name": FOREIGN})})
    console, stream = terminal()
    print_report(check_report.model_copy(update={**said, "cases": (named,)}), console)
    assert stream.getvalue().count(FOREIGN) >= 2


def test_a_census_is_printed_as_it_is() -> None:
    console, stream = terminal()
    print_census(Census(revision=Revision(name="zoo"), notes=(FOREIGN,)), console)
    assert FOREIGN in stream.getvalue()
