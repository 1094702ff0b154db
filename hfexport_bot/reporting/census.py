"""The census in the terminal: how many classes run, from which source, and why the others don't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from rich.console import Console

from hfexport_bot.reporting.console import print_line, print_table
from hfexport_bot.reporting.summary import duration, plural
from hfexport_bot.reporting.text import plain
from hfexport_bot.schema import Census, CensusEntry, OutcomeKind

#: Classes that are told one by one; ``--json`` has all. Of those that run, where an earlier source failed.
SHOWN = 60
_SHOWN_FALLBACKS = 20


def print_census(census: Census, console: Console) -> None:
    """Print a line for each class that does not run, the causes with their counts, and the sources with theirs.

    What is told as the failure of the whole is not told of its cases too.
    """
    failing = [entry for entry in census.entries if entry.outcome is not OutcomeKind.PASS]
    told = sorted(
        (entry for entry in failing if not census.failure or entry.message != census.failure),
        key=lambda entry: (cause(entry), entry.model, entry.class_name),
    )
    for entry in told[:SHOWN]:
        print_line(console, f"{plain(_name(entry))}: {cause(entry)}: {plain(entry.message, 400)}")
    _more(console, len(told) - SHOWN)
    passing = [entry for entry in census.entries if entry.outcome is OutcomeKind.PASS]
    stepped_in = [(entry, each) for entry in passing for each in entry.tried if each.cause is not None]
    for entry, each in stepped_in[:_SHOWN_FALLBACKS]:
        why = f"{each.source}: {each.cause.value if each.cause else ''}: {each.message}"
        print_line(
            console, f"{plain(_name(entry))}: runs from {plain(entry.source)}, not from {plain(why, 400)}", "dim"
        )
    _more(console, len(stepped_in) - _SHOWN_FALLBACKS)
    for title, counted in (("why not", map(cause, failing)), ("source", _sources(census.entries))):
        _table(console, title, Counter(counted))
    tries = Counter((each.source, each.cause) for entry in census.entries for each in entry.tried)
    for source in dict.fromkeys(source for source, _ in tries):
        causes = {cause: count for (asked, cause), count in tries.items() if asked == source}
        why = ", ".join(f"{count:,} {plain(cause)}" for cause, count in causes.items() if cause is not None)
        asked = f"{causes.get(None, 0):,} of {sum(causes.values()):,} asked have a case"
        print_line(console, f"{plain(source)}: {asked}" + (f" ({why})" if why else ""))
    noted = [entry for entry in census.entries if entry.notes]
    if noted:
        first = f"{_name(noted[0])}: {noted[0].notes[0]}"
        print_line(console, f"{plural(len(noted), 'case')} with notes, see --json; {plain(first, 400)}", "yellow")
    for note in census.notes:
        print_line(console, f"note: {plain(note, 400)}", "yellow")
    if passing:
        seconds, largest = median(entry.seconds for entry in passing), max(entry.parameters or 0 for entry in passing)
        print_line(console, f"median {seconds:.2f} s, at most {_many(largest)} parameters")
    share = f" ({len(passing) / len(census.entries):.1%})" if census.entries else ""
    ran = f"{len(passing):,} of {plural(len(census.entries), 'case')} run in eager{share}"
    print_line(console, f"{ran} in {duration(census.seconds)}", "bold")


def _more(console: Console, count: int) -> None:
    if count > 0:
        print_line(console, f"... and {count:,} more, see --json", "dim")


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
    if counted:
        rows = [(plain(name), f"{count:,}") for name, count in counted.most_common()]
        print_table(console, (title, "cases"), rows, numbers=True)
