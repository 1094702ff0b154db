"""What runs as a file is imported, step by step: each with the conditions around it, the names it binds, reads and
changes the state of.

What a function does when it is called counts for the steps that call it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hfexport_bot.changes.imports import Import, import_rows
from hfexport_bot.changes.modeling import is_documenting
from hfexport_bot.changes.registries import DERIVES, FILLS
from hfexport_bot.changes.units import MESSAGES, OFFERS, is_text, root_of

#: Around what type checkers alone see.
CHECKING = "TYPE_CHECKING"
#: Methods that change an object, and functions that change what they are given first.
_CHANGES = FILLS | {"pop", "popitem", "popleft", "remove", "discard", "clear", "sort", "reverse", "appendleft"}
_CHANGES_FIRST = frozenset({"next", "setattr", "delattr", "heappush", "heappop"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda)
#: Statements that cannot fail, so that a ``try`` around them never gets to its handlers by them.
_SAFE = (ast.Pass, *_FUNCTIONS)


@dataclass(frozen=True)
class Step:
    """A statement, or one name of an import. ``key`` says what it is about and not how; ``context`` the conditions
    around it, which ``tests`` are evaluated for."""

    node: ast.stmt
    key: str
    context: tuple[str, ...] = ()
    tests: tuple[ast.expr, ...] = ()
    row: Import | None = None

    @property
    def runs(self) -> bool:
        """Whether it is for more than type checkers."""
        return CHECKING not in self.context

    @property
    def around(self) -> tuple[str, ...]:
        """The conditions around it, as far as they matter when it runs."""
        return self.context if self.runs else (CHECKING,)

    @cached_property
    def binds(self) -> tuple[str, ...]:
        """The names that it gives a value; that of a star import is ``*``."""
        if self.row is not None:
            return (self.row.local,)
        if isinstance(self.node, (*_FUNCTIONS, ast.ClassDef)):
            return (self.node.name,)
        if isinstance(self.node, ast.AnnAssign) and self.node.value is None:
            return ()
        inner = _inner_names(self.node)
        names = (each for each in outside(self.node) if isinstance(each, ast.Name) and id(each) not in inner)
        return tuple(dict.fromkeys(each.id for each in names if not isinstance(each.ctx, ast.Load)))


@dataclass(frozen=True)
class Effect:
    """A change of what a name holds: of all of it, or of the ``item`` that is set. Items that begin with ``[`` keep
    the order in which they are set."""

    name: str
    item: str = ""


def steps(body: Sequence[ast.stmt], context: tuple[str, ...] = (), tests: tuple[ast.expr, ...] = ()) -> Iterator[Step]:
    """The steps of a file's or a class's body, in their order."""
    for node in body:
        if isinstance(node, ast.If):
            checking = ast.unparse(node.test).rpartition(".")[2] == CHECKING
            test = ast.dump(node.test)
            inner = (*tests, *(() if checking else (node.test,)))
            yield from steps(node.body, (*context, CHECKING if checking else f"if {test}"), inner)
            yield from steps(node.orelse, context if checking else (*context, f"else {test}"), inner)
        elif isinstance(node, ast.Try | ast.TryStar):
            yield from _of_try(node, context, tests)
        elif isinstance(node, ast.With):
            items = [each.context_expr for each in node.items]
            yield from _guarded(node.body, f"with {', '.join(map(ast.dump, items))}", context, (*tests, *items))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if getattr(node, "module", "") != "__future__":
                yield from (Step(node, f"import {row}", context, tests, row) for row in import_rows(node))
        elif not (isinstance(node, ast.Pass) or is_text(node) or _offers(node)):
            yield Step(node, _key(node), context, tests)


def _of_try(node: ast.Try | ast.TryStar, context: tuple[str, ...], tests: tuple[ast.expr, ...]) -> Iterator[Step]:
    types = [ast.dump(each.type) if each.type else "" for each in node.handlers]
    yield from _guarded(node.body, f"try {types}", context, tests)
    tried = _may_fail(node.body)
    for place, handler in enumerate(node.handlers):
        yield from steps(handler.body, (*context, f"except {types[: place + 1]} after {tried}"), tests)
    yield from steps(node.orelse, (*context, f"else after {tried}"), tests)
    yield from steps(node.finalbody, context, tests)


def _guarded(
    body: Sequence[ast.stmt], guard: str, context: tuple[str, ...], tests: tuple[ast.expr, ...]
) -> Iterator[Step]:
    """Steps of which none is reached after one that fails."""
    for place, node in enumerate(body):
        yield from steps([node], (*context, f"{guard} after {_may_fail(body[:place])}"), tests)


def _may_fail(body: Sequence[ast.stmt]) -> list[str]:
    return [ast.dump(node) for node in body if not isinstance(node, _SAFE) and not is_text(node)]


def _offers(node: ast.stmt) -> bool:
    """Whether a statement only says what a package offers."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(each, ast.Name) and each.id in OFFERS for each in targets)


def _key(node: ast.stmt) -> str:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return f"def {node.name}"
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return f"{' = '.join(map(ast.unparse, targets))} ="
    return ast.dump(node)


def outside(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it that runs where it stands: not what functions do when they are called."""
    yield node
    if isinstance(node, _SCOPES):
        arguments = node.args
        below: Iterable[ast.AST] = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        if not isinstance(node, ast.Lambda):
            below = [*(each for each in node.decorator_list if not is_documenting(each)), *below, *hints(node)]
    else:
        below = ast.iter_child_nodes(node)
    for each in below:
        yield from outside(each)


def hints(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    """The type hints of a function."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    found = [each.annotation for each in named if each is not None]
    return [each for each in (*found, node.returns) if each is not None]


@dataclass
class _Function:
    """What a function or class of the file does when it is called."""

    reads: frozenset[str]
    effects: frozenset[Effect]


@dataclass
class Running:
    """The steps of one body, and what they do. ``postponed``: type hints are never evaluated."""

    steps: Sequence[Step]
    postponed: bool = False
    _functions: dict[str, _Function] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for step in self.steps:
            node = step.node
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                self._add(node.name, _when_called(node))
            if isinstance(node, ast.ClassDef):
                own = [each for each in node.body if isinstance(each, _FUNCTIONS) and each.name == DERIVES]
                inherited = [self._functions.get(f"{root_of(base)}.{DERIVES}") for base in node.bases]
                for each in [_when_called(own[-1])] if own else filter(None, inherited):
                    self._add(f"{node.name}.{DERIVES}", each)

    def _add(self, name: str, function: _Function) -> None:
        known = self._functions.get(name, _Function(frozenset(), frozenset()))
        self._functions[name] = _Function(known.reads | function.reads, known.effects | function.effects)

    def reads(self, step: Step) -> frozenset[str]:
        """The names whose values a step may depend on, by the functions that it calls too."""
        return self.named(step) | self._by_calls(_called(self._nodes(step)))

    def named(self, step: Step) -> frozenset[str]:
        """The names that a step itself evaluates."""
        node, inner = step.node, _inner_names(step.node)
        names = [each for each in self._nodes(step) if isinstance(each, ast.Name)]
        read = {each.id for each in names if isinstance(each.ctx, ast.Load)}
        read -= {each.id for each in names if id(each) in inner}
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            read.add(node.target.id)
        if isinstance(node, ast.ClassDef):
            read -= _bound_inside(node)
        if isinstance(node, ast.For | ast.While):
            read -= {*step.binds}
        return frozenset(read)

    def _nodes(self, step: Step) -> list[ast.AST]:
        if step.row is not None:
            return [each for test in step.tests for each in outside(test)]
        found = [each for root in (step.node, *step.tests) for each in outside(root)]
        if not self.postponed:
            return found
        hinted = [each for each in found if isinstance(each, _FUNCTIONS)]
        skipped = {id(each) for node in hinted for hint in hints(node) for each in ast.walk(hint)}
        skipped |= {id(each) for node in found if isinstance(node, ast.AnnAssign) for each in ast.walk(node.annotation)}
        return [each for each in found if id(each) not in skipped]

    def _by_calls(self, called: Iterable[str]) -> frozenset[str]:
        """The names that functions of the file read when they are called, through others too."""
        return frozenset(each for name in self._reached(called) for each in self._functions[name].reads)

    def _reached(self, called: Iterable[str]) -> Collection[str]:
        waiting, seen = [*called], dict[str, None]()
        while waiting:
            name = waiting.pop()
            if name in self._functions and name not in seen:
                seen[name] = None
                waiting += self._functions[name].reads
        return seen

    def effects(self, step: Step, bound: Mapping[str, str]) -> list[Effect]:
        """What a step changes of what it does not bind; ``bound`` has the kind of each name."""
        node = step.node
        if step.row is not None or (isinstance(node, ast.AnnAssign) and node.value is None):
            return []
        found: dict[Effect, None] = {}
        for each in _stored(node):
            found[each] = None
        for call in (each for each in self._nodes(step) if isinstance(each, ast.Call)):
            plain = isinstance(node, ast.Expr) and node.value is call
            for each in self._of_call(call, plain, bound):
                found[each] = None
        for mark in getattr(node, "decorator_list", ()):
            for each in self._of_decorator(mark, getattr(node, "name", "")):
                found[each] = None
        for base in getattr(node, "bases", ()):
            for each in self._effects_of(f"{root_of(base)}.{DERIVES}"):
                found[Effect(each.name, f".({getattr(node, 'name', '')})" if each.item else "")] = None
        return [*found]

    def _of_call(self, call: ast.Call, plain: bool, bound: Mapping[str, str]) -> Iterator[Effect]:
        root, dotted = root_of(call.func), ast.unparse(call.func)
        key = _literal_key(call)
        item = f".{dotted}({key})" if key else ""
        if self._functions.get(root) is not None and root == dotted:
            for effect in self._effects_of(root):
                yield Effect(effect.name, f".({key})" if key and effect.item else "")
            return
        method = call.func.attr if isinstance(call.func, ast.Attribute) else dotted
        if method in _CHANGES and isinstance(call.func, ast.Attribute):
            yield Effect(root, "" if not key or method in _CHANGES else item)
        elif method in _CHANGES_FIRST and call.args and (first := root_of(call.args[0])):
            yield Effect(first)
        elif plain and root and not MESSAGES.fullmatch(root):
            yield Effect(root, item)
            for argument in (*call.args, *(each.value for each in call.keywords)):
                if isinstance(argument, ast.Name) and bound.get(argument.id) == "constant":
                    yield Effect(argument.id, item)

    def _of_decorator(self, mark: ast.expr, owner: str) -> Iterator[Effect]:
        called = mark.func if isinstance(mark, ast.Call) else mark
        root, dotted = root_of(called), ast.unparse(called)
        key = _literals(mark) if isinstance(mark, ast.Call) else ""
        if root in self._functions and root == dotted:
            for effect in self._effects_of(root):
                yield Effect(effect.name, f".({key or owner})" if effect.item else "")
        elif key and "regist" in dotted.lower():
            yield Effect(root, f".{dotted}({key})")

    def _effects_of(self, name: str) -> Iterator[Effect]:
        for each in self._reached([name]):
            yield from self._functions[each].effects


def _inner_names(node: ast.AST) -> set[int]:
    """The names, by their nodes, that loops inside expressions bind for themselves."""
    loops = (each for each in outside(node) if isinstance(each, ast.comprehension))
    return {id(each) for loop in loops for each in ast.walk(loop.target)}


def _literal_key(call: ast.Call) -> str:
    """The key under which a call registers something, as it is written; empty where it has none."""
    more = len(call.args) + len(call.keywords) > 1
    return ast.unparse(call.args[0]) if more and call.args and isinstance(call.args[0], ast.Constant) else ""


def _literals(call: ast.Call) -> str:
    """All that a decorator registers its function under."""
    return ", ".join(ast.unparse(each) for each in call.args if isinstance(each, ast.Constant))


def _called(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names of what is called, by a decorator or as a base too, or handed to a call."""
    for node in nodes:
        if isinstance(node, ast.Call):
            yield root_of(node.func)
            yield from (each.id for each in node.args if isinstance(each, ast.Name))
        for each in getattr(node, "decorator_list", ()):
            yield root_of(each)
        if isinstance(node, ast.ClassDef):
            yield from (f"{root_of(base)}.{DERIVES}" for base in node.bases)
            yield from (root_of(each.value) for each in node.keywords)


def _stored(node: ast.AST) -> Iterator[Effect]:
    """The attributes and entries that a statement sets or deletes."""
    for each in outside(node):
        if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            root = root_of(each)
            item = ast.unparse(each).removeprefix(root)
            whole = isinstance(node, ast.AugAssign | ast.Delete) or not root
            if root:
                yield Effect(root, "" if whole or isinstance(each.value, ast.Call) else item)


def _bound_inside(node: ast.ClassDef) -> set[str]:
    """The names that a class's body binds before it reads them."""
    found, read = set[str](), set[str]()
    for step in steps(node.body):
        names = [each for each in outside(step.node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
        read |= {each.id for each in names} - found
        found |= {*step.binds} if not step.context else set()
    return found - read


def _when_called(node: ast.stmt) -> _Function:
    """The names of its file that a function reads when it is called, and what it changes of them."""
    inner = [each for each in ast.walk(node) if each is not node]
    names = [each for each in inner if isinstance(each, ast.Name)]
    shared = {name for each in inner if isinstance(each, ast.Global) for name in each.names}
    own = {each.id for each in names if not isinstance(each.ctx, ast.Load)} - shared
    own |= {each.arg for each in inner if isinstance(each, ast.arg)}
    effects = {Effect(name) for name in shared if any(each.id == name for each in names)}
    for each in inner:
        if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            effects.add(Effect(root_of(each), "."))
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _CHANGES:
            keyed = each.func.attr in ("setdefault", "update")
            effects.add(Effect(root_of(each.func), "." if keyed else ""))
    return _Function(
        frozenset(each.id for each in names) - own,
        frozenset(each for each in effects if each.name and each.name not in own),
    )
