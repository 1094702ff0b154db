"""Changed lines that no case ran: which statements of a change the runners watch, and which of them nothing reached.
Pure, but for reading files of a tree.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hfexport_bot.changes.exporters import is_exporter_file
from hfexport_bot.changes.layout import is_test_or_doc
from hfexport_bot.changes.modeling import SourceError
from hfexport_bot.changes.policy import is_aside
from hfexport_bot.changes.statements import Statement, statements
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Layout, NotRun, Outcome, Span, Unreached
from hfexport_bot.verdicts.blame import Changed

#: Changed statements by file.
Statements = Mapping[str, Sequence[Statement]]


@dataclass(frozen=True)
class ChangedCode:
    """What a change wrote: head's files, its lines in them, and the statements that cases should run."""

    tree: Tree
    lines: Changed
    statements: Statements

    @property
    def watched(self) -> dict[str, tuple[Span, ...]]:
        """The statements as a runner is told of them."""
        return {file: tuple((s.first, s.last, s.at_import) for s in own) for file, own in self.statements.items()}

    def left(self, outcomes: Iterable[Outcome]) -> Statements:
        """The statements that none of the outcomes' cases executed: neither told to have run, nor where one ended."""
        seen: dict[str, set[int]] = {}
        ends: dict[str, set[int]] = {}
        for outcome in outcomes:
            for file, firsts in (outcome.executed or {}).items():
                seen.setdefault(file, set()).update(firsts)
            for frame in outcome.frames:
                ends.setdefault(frame.file, set()).add(frame.line)
        kept = {
            file: [s for s in own if s.first not in seen.get(file, ()) and not _holds(s, ends.get(file, ()))]
            for file, own in self.statements.items()
        }
        return {file: own for file, own in kept.items() if own}

    def unreached(self, outcomes: Iterable[Outcome]) -> tuple[Unreached, ...]:
        """The changed lines of the statements that are left, by file and function; none where no case could tell."""
        outcomes = [outcome for outcome in outcomes if outcome.executed is not None]
        return self.lines_of(self.left(outcomes)) if outcomes else ()

    def lines_of(self, statements: Statements) -> tuple[Unreached, ...]:
        """The changed lines of statements, by file and function."""
        found = []
        for file, own in sorted(statements.items()):
            for function, group in itertools.groupby(own, key=lambda each: each.function):
                lines = {line for each in group for line in range(each.first, each.last + 1)} & {*self.lines[file]}
                found.append(Unreached(file=file, function=function, lines=tuple(line_ranges(sorted(lines)))))
        return tuple(found)


def _holds(statement: Statement, lines: Iterable[int]) -> bool:
    return any(statement.first <= line <= statement.last for line in lines)


def changed_code(tree: Tree, changed: Changed, not_run: Sequence[NotRun], layout: Layout) -> ChangedCode:
    """Find the statements of head that the change wrote and that cases should run: not those of tests, documents,
    exporters, processors and modular files, and not what is on no exported path, which the report tells in any case."""
    left_out = {entry.name for entry in not_run if entry.kind in ("file", "symbol")}
    found: dict[str, Sequence[Statement]] = {}
    for path, lines in changed.items():
        if not lines or path in left_out or not _counts(path, layout):
            continue
        try:
            own = statements(tree.read(path) or b"")
        except SourceError:  # its cases end as errors that say so
            continue
        kept = [each for each in own if each.touches(lines) and not _is_in(each, path, left_out)]
        if kept:
            found[path] = kept
    return ChangedCode(tree, changed, found)


def _counts(path: str, layout: Layout) -> bool:
    if layout is Layout.TRANSFORMERS:
        return path.startswith("src/") and not is_aside(path) and not is_exporter_file(path, layout)
    return not is_test_or_doc(path)


def _is_in(statement: Statement, path: str, names: Collection[str]) -> bool:
    """Whether a statement is part of a symbol that is named as ``path:Class.method``."""
    parts = statement.function.split(".")
    return any(f"{path}:{'.'.join(parts[:end])}" in names for end in range(1, len(parts) + 1))


def line_ranges(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of numbers that follow one another, each as its first and last."""
    for _, run in itertools.groupby(enumerate(lines), key=lambda each: each[1] - each[0]):
        numbers = [number for _, number in run]
        yield numbers[0], numbers[-1]
