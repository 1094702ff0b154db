"""What a file says of tables that definitions are put into by a decorator, or by deriving from a class with
``__init_subclass__``."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from hfexport_bot.changes.modeling import is_documenting

#: Methods of tables, lists and sets that put something in.
FILLS = frozenset({"append", "add", "update", "setdefault", "extend", "insert", "register"})
_DOTTED = re.compile(r"[\w.]+")
#: Decorators of torch that make a function an operator of ``torch.ops``.
_OPERATORS = ("custom_op", "triton_op")
DERIVES = "__init_subclass__"


def read_marks(module: ast.Module, local: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """The decorators of each definition that are a repository's own, with a key as written where one is given."""
    found: dict[str, list[tuple[str, str]]] = {}
    for node in module.body:
        name = getattr(node, "name", "")
        for mark in getattr(node, "decorator_list", ()):
            called = mark.func if isinstance(mark, ast.Call) else mark
            dotted = ast.unparse(called)
            own = dotted.partition(".")[0] in local or dotted.endswith(_OPERATORS)
            if is_documenting(mark) or not _DOTTED.fullmatch(dotted) or not own:
                continue
            key = mark.args[0] if isinstance(mark, ast.Call) and mark.args else None
            named = isinstance(key, ast.Constant) and isinstance(key.value, str)
            found.setdefault(name, []).append((dotted, ast.unparse(key) if key and named else ""))
    return found


def read_fills(module: ast.Module, local: Collection[str]) -> dict[str, list[str]]:
    """The tables of module level that each function puts something into; those of a class that what derives from it
    is put into."""
    found: dict[str, list[str]] = {}
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            names = {each for each in _filled(node) if _DOTTED.fullmatch(each) and each.partition(".")[0] in local}
            bound = _bound(node) if names else set()
            names = {each for each in names if each.partition(".")[0] not in bound}
        elif isinstance(node, ast.ClassDef):
            derives = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == DERIVES]
            names = {each for method in derives for each in _filled(method)}
        else:
            continue
        if names:
            found[node.name] = sorted(names)
    return found


def _bound(function: ast.FunctionDef) -> set[str]:
    nodes = [*ast.walk(function)]
    stored = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return stored | {each.arg for each in nodes if isinstance(each, ast.arg)}


def _filled(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield ast.unparse(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FILLS:
            yield ast.unparse(node.func.value)
