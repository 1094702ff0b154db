"""Whether a change takes away a name that a checkout's own exporters look for, as far as the files' texts tell.

Which of their patches and preparers find what they look for is known only once the code is imported, on either side.
That is worth its time where a name is gone, and nowhere else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from hfexport_bot.changes.exporters import FOLDER, is_exporter_file
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.modeling import SourceError, parse
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Layout

_PACKAGE = "src/transformers/"
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_WORD = re.compile(rb"[A-Za-z_]\w*")


def takes_names_away(changes: Iterable[FileChange], base: Tree, head: Tree) -> bool:
    """Whether a changed file of the checkout's package no longer has something that its exporters may look for, or the
    exporters changed themselves."""
    inside = [change for change in changes if (change.old or "").startswith(_PACKAGE) and change.path.endswith(".py")]
    if any(is_exporter_file(change.path, Layout.TRANSFORMERS) for change in inside):
        return True
    names = _looked_for(head) if inside else frozenset[str]()
    return any(_loses(base.read(each.old or ""), head.read(each.new) if each.new else b"", names) for each in inside)


def _loses(before: bytes | None, now: bytes | None, names: frozenset[str]) -> bool:
    before, now = before or b"", now or b""
    words = {word.decode() for word in {*_WORD.findall(before)} - {*_WORD.findall(now)}}
    if words & names:
        return True
    try:
        gone = {*_bound(parse(before).body)} - {*_bound(parse(now).body)}
    except SourceError:  # what cannot be read may have lost anything
        return True
    return any(is_base or name.rpartition(".")[2] in names for name, is_base in gone)


def _looked_for(head: Tree) -> frozenset[str]:
    """Each word of the names and dotted paths that the exporters' code has as texts."""
    found: set[str] = set()
    for path in head.files(FOLDER):
        if is_exporter_file(path, Layout.TRANSFORMERS):
            try:
                nodes = ast.walk(parse(head.read(path) or b""))
            except SourceError:
                continue  # nothing is exported with these anyway
            texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
            found.update(word for text in texts if _DOTTED.fullmatch(text) for word in text.split("."))
    return frozenset(found)


def _bound(body: Iterable[ast.stmt], inside: str = "") -> Iterator[tuple[str, bool]]:
    """The names that a module's or a class's statements bind, by their dotted paths; and each base of a class, marked:
    its methods may be what is looked for."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield inside + node.name, False
        elif isinstance(node, ast.ClassDef):
            yield inside + node.name, False
            yield from ((f"{inside}{node.name}({ast.unparse(each)})", True) for each in node.bases)
            yield from _bound(node.body, f"{inside}{node.name}.")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((inside + (alias.asname or alias.name), False) for alias in node.names)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            handlers = [statement for each in getattr(node, "handlers", ()) for statement in each.body]
            more = [*handlers, *getattr(node, "orelse", ()), *getattr(node, "finalbody", ())]
            yield from _bound([*node.body, *more], inside)
        else:
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            names = (each for target in targets if target is not None for each in ast.walk(target))
            yield from (
                (inside + ast.unparse(each), False) for each in names if isinstance(each, ast.Name | ast.Attribute)
            )
