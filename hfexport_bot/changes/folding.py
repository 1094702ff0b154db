"""What is left of a function where something is known of what it is given: an argument that keeps its default, a
property of the configuration that does not hold. Branches that then cannot run are dropped."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

#: What a name, or an attribute of any object, is known to be.
Known = Mapping[str, ast.Constant]
#: Names of a file's functions, and what each of their arguments is by default.
Defaults = Mapping[str, Known]

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Node = TypeVar("_Node", bound=ast.AST)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
_PURE = (ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.cmpop, ast.boolop)


def defaults_of(function: _Function) -> dict[str, ast.Constant]:
    """The arguments of a function that are a constant by default."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *((each, value) for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value),
    ]
    return {each.arg: value for each, value in pairs if isinstance(value, ast.Constant)}


def without_arguments(function: _Function, names: Collection[str]) -> _Function:
    """A copy that does not declare some of its optional arguments."""
    found = copy.copy(function)
    found.args = arguments = copy.copy(function.args)
    plain = [*arguments.posonlyargs, *arguments.args]
    padded = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults]
    values = {each.arg: value for each, value in zip(plain, padded, strict=True)}
    arguments.posonlyargs = [each for each in arguments.posonlyargs if each.arg not in names]
    arguments.args = [each for each in arguments.args if each.arg not in names]
    arguments.defaults = [
        value for each in (*arguments.posonlyargs, *arguments.args) if (value := values[each.arg]) is not None
    ]
    only = [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    arguments.kwonlyargs = [each for each, _ in only if each.arg not in names]
    arguments.kw_defaults = [value for each, value in only if each.arg not in names]
    return found


def folded(function: _Function, names: Known, attributes: Known, functions: Defaults) -> _Function:
    """A copy of a function in which ``names``, until it sets them, and ``attributes`` are what they are known to be,
    and ``functions`` are not given what they have by default."""
    found = _copied(function)
    inner = [each for each in ast.walk(found) if isinstance(each, _SCOPES) and each is not found]
    within = {name for each in inner for name in _mentioned(each)}
    bound = {each.arg for scope in inner for each in ast.walk(scope) if isinstance(each, ast.arg)}
    elsewhere = {name for each in ast.walk(found) if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    # A function inside may run when a name is something else already.
    unsure = (within & {*stored(found.body)}) | bound | elsewhere
    if "locals" in _mentioned(found):
        unsure |= names.keys()
    known = {name: value for name, value in names.items() if name not in unsure}
    found.body = _Folding(known, attributes, functions).block(found.body) or [ast.Pass()]
    return found


def _copied(node: _Node) -> _Node:
    """A copy of a tree. `copy.deepcopy` takes several times as long."""
    found = type(node).__new__(type(node))
    for name, value in vars(node).items():
        setattr(found, name, [*map(_copied_field, value)] if isinstance(value, list) else _copied_field(value))
    return found


def _copied_field(value: Any) -> Any:
    return _copied(value) if isinstance(value, ast.AST) else value


class _Folding(ast.NodeTransformer):
    """Folds one block. What it finds a tracked name set to is known from there on, and that statement dropped; where
    it can no longer be known, the statement is written again. ``branch``: the block may run, or not."""

    def __init__(self, names: Known, attributes: Known, functions: Defaults, branch: bool = False) -> None:
        self._tracked = frozenset(names)
        self._names = dict(names)
        self._attributes = attributes
        self._functions = functions
        self._is_branch = branch

    # -- statements ----------------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements in their order, up to one that leaves them."""
        found: list[ast.stmt] = []
        for statement in body:
            for each in self._statement(statement):
                found.append(each)
                if isinstance(each, ast.Return | ast.Raise | ast.Continue | ast.Break):
                    return found
        return found

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.If):
            return self._if(node)
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and self._tracked.isdisjoint(stored([ast.Expr(node.value)]))
        ):
            return self._assign(node, node.targets[0].id)
        if isinstance(node, _Function):
            node.body = self._branch(node.body) or [ast.Pass()]
            return [node]
        sure = self._sure(node)
        return [*self._forget(node), *self._parts(node)] if sure is None else sure

    def _sure(self, node: ast.stmt) -> list[ast.stmt] | None:
        """What is left of a compound statement, if nothing of that sets what is known."""
        if not isinstance(node, _COMPOUND) or self._tracked.isdisjoint(stored([node])):
            return None
        found = self._parts(_copied(node))
        return found if self._tracked.isdisjoint(stored(found)) else None

    def _parts(self, node: ast.stmt) -> list[ast.stmt]:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                branch = self._branch(value)
                needed = name == "body" and not isinstance(node, ast.If | ast.Try)
                setattr(node, name, branch or [ast.Pass()] if needed else branch)
            elif isinstance(value, list):
                setattr(node, name, [self._part(each) for each in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        if isinstance(node, ast.Try) and not node.body:
            return [*node.orelse, *node.finalbody]
        if isinstance(node, ast.If) and not node.body:
            if not node.orelse and _is_pure(node.test):
                return []
            node.body = [ast.Pass()]
        return [node]

    def _part(self, node: Any) -> Any:
        """One of a statement's parts: an expression, or a handler or case with statements of its own."""
        if isinstance(node, ast.ExceptHandler | ast.match_case):
            node.body = self._branch(node.body) or [ast.Pass()]
            return node
        return self.visit(node) if isinstance(node, ast.AST) else node

    def _assign(self, node: ast.Assign, name: str) -> list[ast.stmt]:
        node.value = self.visit(node.value)
        if isinstance(node.value, ast.Name) and node.value.id == name:
            return []
        if name in self._tracked:
            known = self._names.pop(name, None)
            if isinstance(node.value, ast.Constant) and (
                not self._is_branch or (known is not None and _same(known, node.value))
            ):
                self._names[name] = node.value
                return []
        return [node]

    def _if(self, node: ast.If) -> list[ast.stmt]:
        node.test = self.visit(node.test)
        if isinstance(node.test, ast.Constant):
            return self.block(node.body if node.test.value else node.orelse)
        if _is_never(node.test):
            return self.block(node.orelse)
        sure = self._sure(node)
        return [*self._forget(node), *self._parts(node)] if sure is None else sure

    def _branch(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements that may run, or run again: what they set stays said."""
        return _Folding(self._names, self._attributes, self._functions, branch=True).block(body)

    def _forget(self, node: ast.stmt) -> list[ast.stmt]:
        """Know no longer what a statement may set; that what was known is said before it."""
        names = sorted(self._names.keys() & {*stored([node])}) if self._names else ()
        known = {name: self._names.pop(name) for name in names}
        return [ast.Assign([ast.Name(name, ast.Store())], value, lineno=0) for name, value in known.items()]

    # -- expressions ---------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = self._names.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return known or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        known = self._attributes.get(node.attr) if isinstance(node.ctx, ast.Load) else None
        return known or node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
            return ast.Constant(not node.operand.value)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        sides = (node.left, node.comparators[0])
        if len(node.ops) > 1 or not all(isinstance(side, ast.Constant) for side in sides):
            return node
        one, other = (side.value for side in sides if isinstance(side, ast.Constant))
        same = one is other if isinstance(node.ops[0], ast.Is | ast.IsNot) else one == other
        if isinstance(node.ops[0], ast.Is | ast.Eq):
            return ast.Constant(same)
        return ast.Constant(not same) if isinstance(node.ops[0], ast.IsNot | ast.NotEq) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        stops = isinstance(node.op, ast.Or)  # at a value that is true, `and` at one that is false
        values: list[ast.expr] = []
        for place, value in enumerate(node.values):
            constant = isinstance(value, ast.Constant)
            if isinstance(value, ast.Constant) and bool(value.value) == stops:
                values.append(value)
                break
            if not constant or place == len(node.values) - 1:
                values.append(value)
        node.values = values
        return values[0] if len(values) == 1 else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        known = self._functions.get(node.func.id, {}) if isinstance(node.func, ast.Name) else {}
        node.keywords = [each for each in node.keywords if not _is_default(each, known)]
        return node


def _is_default(keyword: ast.keyword, known: Known) -> bool:
    value = known.get(keyword.arg or "")
    return value is not None and isinstance(keyword.value, ast.Constant) and _same(keyword.value, value)


def _same(one: ast.Constant, other: ast.Constant) -> bool:
    return type(one.value) is type(other.value) and bool(one.value == other.value)


def stored(body: Sequence[ast.AST]) -> Iterator[str]:
    """The names that code sets, those inside of other scopes too, arguments aside."""
    for each in (each for statement in body for each in ast.walk(statement)):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.alias):
            yield (each.asname or each.name).partition(".")[0]
        elif isinstance(each, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | _Function | ast.ClassDef):
            yield each.name or ""


def _mentioned(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_never(test: ast.expr) -> bool:
    """Whether a condition cannot hold, and asking it does nothing else."""
    return (
        isinstance(test, ast.BoolOp)
        and isinstance(test.op, ast.And)
        and _is_pure(test)
        and any(isinstance(value, ast.Constant) and not value.value for value in test.values)
    )


def _is_pure(node: ast.expr) -> bool:
    """Whether evaluating an expression does no more than that."""
    return all(isinstance(each, (*_PURE, ast.expr_context, ast.unaryop)) for each in ast.walk(node))


def names_in(node: ast.AST) -> Iterator[str]:
    """Every name, attribute, imported name and string in some code."""
    return filter(None, map(named, ast.walk(node)))


def named(node: ast.AST) -> str:
    """What one node names by itself."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.alias):
        return node.name
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def without(function: _Function, is_left_out: Callable[[ast.stmt], bool]) -> _Function:
    """A copy of a function without some of its statements, and conditions that then have none."""
    found = _copied(function)
    found.body = [*_kept(found.body, is_left_out)]
    return found


def _kept(body: Sequence[ast.stmt], is_left_out: Callable[[ast.stmt], bool]) -> Iterator[ast.stmt]:
    for node in body:
        if is_left_out(node):
            continue
        if isinstance(node, ast.If):
            node.body, node.orelse = [*_kept(node.body, is_left_out)], [*_kept(node.orelse, is_left_out)]
            if not node.body and not node.orelse and _is_pure(node.test):
                continue
        yield node
