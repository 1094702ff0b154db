"""The statements of a Python file that run, each with its lines: neither headers of functions and classes, nor text,
nor what only declares."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from hfexport_bot.changes.modeling import parse
from hfexport_bot.changes.units import is_text


@dataclass(frozen=True)
class Statement:
    """One statement; of a compound one its header alone. ``function`` is what it stands in, ``LlamaAttention.forward``,
    and ``at_import`` whether it runs when its file is imported: module-level code and the bodies of classes."""

    first: int
    last: int
    function: str
    at_import: bool

    def touches(self, lines: Collection[int]) -> bool:
        """Whether one of the lines is its."""
        return any(line in lines for line in range(self.first, self.last + 1))


def statements(source: bytes) -> tuple[Statement, ...]:
    """The statements of a file in its order. Raises `SourceError` for what is no Python."""
    return tuple(_in_block(parse(source).body, "", at_import=True))


def statement_at(found: Sequence[Statement], line: int) -> Statement | None:
    """The statement that a line belongs to."""
    return next((each for each in found if each.first <= line <= each.last), None)


def _in_block(body: Sequence[ast.stmt], owner: str, *, at_import: bool) -> Iterator[Statement]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{owner}.{node.name}".lstrip(".")
            yield from _in_block(node.body, inner, at_import=at_import and isinstance(node, ast.ClassDef))
            continue
        blocks = list(_blocks(node))
        if _runs(node):
            starts = [_start(block[0]) - 1 for block in blocks]
            yield Statement(
                node.lineno, max(node.lineno, min(starts, default=node.end_lineno or node.lineno)), owner, at_import
            )
        if isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            blocks = blocks[1:]
        for block in blocks:
            yield from _in_block(block, owner, at_import=at_import)


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement in their order."""
    if isinstance(node, ast.Match):
        yield from (case.body for case in node.cases)
        return
    if body := getattr(node, "body", []):
        yield body
    yield from (handler.body for handler in getattr(node, "handlers", ()))
    yield from (block for name in ("orelse", "finalbody") if (block := getattr(node, name, [])))


def _runs(node: ast.stmt) -> bool:
    """Whether a statement leaves code of its own."""
    if isinstance(node, ast.Pass | ast.Global | ast.Nonlocal | ast.Try | ast.TryStar) or is_text(node):
        return False
    if isinstance(node, ast.While):
        return not isinstance(node.test, ast.Constant)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return not (isinstance(node, ast.AnnAssign) and node.value is None)


def _start(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])
