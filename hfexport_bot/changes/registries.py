"""What a file says of tables that definitions are put into by a decorator, or by deriving from a class with
``__init_subclass__``."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Collection, Iterator

from hfexport_bot.changes.modeling import is_documenting
from hfexport_bot.changes.units import MESSAGES, given_to, root_of

#: Methods of tables, lists and sets that put something in.
FILLS = frozenset({"append", "add", "update", "setdefault", "extend", "insert", "register"})
_DOTTED = re.compile(r"[\w.]+")
#: Decorators of others that keep a function: those that make it an operator of ``torch.ops``, or part of one.
REGISTERING = re.compile(r"(.*\.)?(custom_op|triton_op|impl|register\w*)")
DERIVES = "__init_subclass__"
#: What tables, lists, sets and queues are asked for: what they are given is found by what reads them.
_OF_TABLES = frozenset({"register", *(name for each in (dict, list, set, deque) for name in dir(each))})
#: Stands for the tables of code that is not the repository's.
KEPT = "<kept>"


def read_marks(module: ast.Module, local: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """The decorators of each definition that are a repository's own, with a key as written where one is given."""
    found: dict[str, list[tuple[str, str]]] = {}
    for node in module.body:
        name = getattr(node, "name", "")
        for mark in getattr(node, "decorator_list", ()):
            called = mark.func if isinstance(mark, ast.Call) else mark
            dotted = ast.unparse(called)
            own = dotted.partition(".")[0] in local or REGISTERING.fullmatch(dotted)
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
    for name, tables in _of_constants(module, local):
        found[name] = sorted({*tables, *found.get(name, ())})
    return found


def _of_constants(module: ast.Module, local: Collection[str]) -> Iterator[tuple[str, set[str]]]:
    """What is filled through the constants of a file: the table that one is another name of, those that a comprehension
    fills, and `KEPT` for what is made by code of others and given something of the file."""
    given = {
        (root_of(node.value), node.value.func.attr in _OF_TABLES)
        for node in module.body
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and not (MESSAGES.fullmatch(root_of(node.value)) or given_to(node.value).isdisjoint(local))
    }
    for node in module.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Name):
            continue
        value = node.value
        if isinstance(value, ast.Name | ast.Attribute) and (target.id, True) in given and root_of(value) in local:
            yield target.id, {ast.unparse(value)}
        elif isinstance(value, ast.Call) and (target.id, False) in given and root_of(value) not in local:
            yield target.id, {KEPT}
        elif isinstance(value, ast.ListComp | ast.SetComp):
            tables = {each for each in _filled(value) if each.partition(".")[0] in local}
            yield from [(target.id, tables)] if tables else ()


def _bound(function: ast.FunctionDef) -> set[str]:
    nodes = [*ast.walk(function)]
    stored = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return stored | {each.arg for each in nodes if isinstance(each, ast.arg)}


def _filled(within: ast.AST) -> Iterator[str]:
    for node in ast.walk(within):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield ast.unparse(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FILLS:
            yield ast.unparse(node.func.value)
