"""The census in the terminal: how many classes run, from which source, and why the others don't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hfexport_bot.reporting.summary import duration, plural
from hfexport_bot.reporting.text import plain
from hfexport_bot.schema import Census, CensusEntry, OutcomeKind

#: Classes that are told one by one; ``--json`` has all.
SHOWN = 60


def print_census(census: Census, console: Console) -> None:
    """Print a line for each class that does not run, the causes with their counts, and the sources with theirs."""
    failing = [entry for entry in census.entries if entry.outcome is not OutcomeKind.PASS]
    for entry in sorted(failing, key=lambda entry: (cause(entry), entry.model, entry.class_name))[:SHOWN]:
        _print(console, f"{plain(_name(entry))}: {cause(entry)}: {plain(entry.message, 400)}")
    if len(failing) > SHOWN:
        _print(console, f"... and {len(failing) - SHOWN:,} more, see --json", "dim")
    for title, counted in (("why not", map(cause, failing)), ("source", _sources(census.entries))):
        _table(console, title, Counter(counted))
    tries = Counter((each.source, each.cause is None) for entry in census.entries for each in entry.tried)
    for source in dict.fromkeys(source for source, _ in tries):
        worked, all_ = tries[source, True], tries[source, True] + tries[source, False]
        _print(console, f"{plain(source)}: {worked:,} of {all_:,} asked have a case")
    for note in census.notes:
        _print(console, f"note: {plain(note, 400)}", "yellow")
    passing = [entry for entry in census.entries if entry.outcome is OutcomeKind.PASS]
    if passing:
        seconds, largest = median(entry.seconds for entry in passing), max(entry.parameters or 0 for entry in passing)
        _print(console, f"median {seconds:.2f} s, at most {_many(largest)} parameters")
    share = f" ({len(passing) / len(census.entries):.1%})" if census.entries else ""
    ran = f"{len(passing):,} of {plural(len(census.entries), 'case')} run in eager{share}"
    _print(console, f"{ran} in {duration(census.seconds)}", "bold")


def cause(entry: CensusEntry) -> str:
    """Why a class has no case: the cause, or else how its build or its eager forward ended."""
    return entry.cause.value if entry.cause is not None else entry.outcome.value


def _name(entry: CensusEntry) -> str:
    """``bert/BertModel (forward, eager_attention)``. Untrusted text."""
    kind = ", ".join(each.value for each in (entry.task, entry.variant) if each)
    return f"{entry.model}/{entry.class_name} ({kind})"


def _many(count: int) -> str:
    """``1,234``, or ``4.1 million`` where single ones no longer count."""
    return f"{count / 1e6:.1f} million" if count >= 100_000 else f"{count:,}"


def _sources(entries: Iterable[CensusEntry]) -> Iterable[str]:
    return (entry.source.partition(":")[0] for entry in entries if entry.outcome is OutcomeKind.PASS)


def _table(console: Console, title: str, counted: Counter[str]) -> None:
    if not counted:
        return
    table = Table(box=box.SQUARE, header_style="bold")
    table.add_column(title)
    table.add_column("cases", justify="right")
    for name, count in counted.most_common():
        table.add_row(Text(plain(name)), f"{count:,}")
    console.print(table)


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
