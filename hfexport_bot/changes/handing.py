"""Whether code that uses a function, or a class, gives it an argument.

It does not where it calls it plainly, by its name or by one of its own for it, with arguments that can all be told.
Whatever else is done with the function counts as giving the argument.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from hfexport_bot.changes.folding import defaults_of, stored
from hfexport_bot.changes.given import Given, is_transparent, name_of, place_of

_Function = ast.FunctionDef | ast.AsyncFunctionDef
#: What reads a mapping and leaves it as it was, or with less in it.
_READING = frozenset({"get", "pop", "items", "keys", "values", "copy"})


def handed_on(nodes: Sequence[ast.AST], target: str, when: Sequence[Given]) -> Sequence[Given] | None:
    """What must be given to code that uses ``target`` for it to give what ``target`` must be given: nothing where it
    does, or may, in any case; None where it never does. ``nodes``: that code in each of its versions."""
    found: dict[Given, None] = {}
    for node in nodes:
        if isinstance(node, _Function):
            calls = _calls_of(node, target)
            handed = None if calls is None else _handed(node, calls, when)
        elif isinstance(node, ast.ClassDef):
            handed = _handed_by_class(node, target, when)
        else:
            handed = when if isinstance(node, ast.stmt) and _only_holds(node, target) else None
        if handed is None:
            return ()
        found |= dict.fromkeys(handed)
    return [*found] or (None if nodes else ())


def _handed(function: _Function, calls: Sequence[ast.Call], when: Sequence[Given]) -> Sequence[Given] | None:
    """What a function must be given for one of its calls to give something; None where that cannot be told, or it
    does in any case."""
    found: dict[Given, None] = {}
    for call in calls:
        if any(isinstance(each, ast.Starred) for each in call.args):
            return None
        for given in when:
            values = [call.args[given.place]] if given.place is not None and len(call.args) > given.place else []
            values += [keyword.value for keyword in call.keywords if keyword.arg == given.name]
            mappings = [keyword.value for keyword in call.keywords if keyword.arg is None]
            own = [
                *(_own_argument(function, value, given) for value in values),
                *(_own_mapping(function, value, given) for value in mappings),
            ]
            for handed in own:
                if handed is None:
                    return None
                found |= dict.fromkeys(handed)
    return [*found]


def _own_argument(function: _Function, value: ast.expr, given: Given) -> Sequence[Given] | None:
    """The optional argument of a function that a value is, if it is by default what ``given`` is."""
    default = defaults_of(function).get(value.id) if isinstance(value, ast.Name) else None
    name = name_of(value)
    if default is None or ast.unparse(default) != given.default or name in _bound_again(function):
        return None
    return [given._replace(name=name, place=place_of(function, name))] if is_transparent(function, name) else None


def _own_mapping(function: _Function, value: ast.expr, given: Given) -> Sequence[Given] | None:
    """What a function must be given for a mapping to hold an argument."""
    if isinstance(value, ast.Dict):
        keys = _keys(value)
        return None if keys is None or given.name in keys else []
    written = _written(function, value.id) if isinstance(value, ast.Name) else None
    if written is None or given.name in written:
        return None
    own = function.args.kwarg
    if own is None or not isinstance(value, ast.Name) or own.arg != value.id:
        return []
    return [given._replace(place=None)] if is_transparent(function, given.name) else None


def _handed_by_class(node: ast.ClassDef, target: str, when: Sequence[Given]) -> Sequence[Given] | None:
    """What must be given to make an object of a class that derives from ``target`` or holds it."""
    if node.decorator_list or node.keywords:
        return None
    for each in node.body:
        if not isinstance(each, _Function) and target in _loaded(each) and not _only_holds(each, target):
            return None
    made = [each for each in node.body if isinstance(each, _Function) and each.name in ("__init__", "__new__")]
    if target not in map(name_of, node.bases) or not made:
        return when
    calls = [each for each in ast.walk(made[0]) if isinstance(each, ast.Call) and name_of(each.func) == "__init__"]
    plain = all(
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Call)
        and name_of(call.func.value.func) == "super"
        for call in calls
    )
    mentions = sum(isinstance(each, ast.Attribute) and each.attr == "__init__" for each in ast.walk(made[0]))
    if len(made) > 1 or made[0].name == "__new__" or not plain or mentions != len(calls):
        return None
    return [*when] if (handed := _handed(made[0], calls, when)) == [] else handed


def _only_holds(node: ast.stmt, target: str) -> bool:
    """Whether a statement gives ``target`` a name or a place in a table, or makes an object of it of nothing."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if not all(isinstance(each, ast.Name) for each in targets):
        return False
    value = node.value
    values = value.values if isinstance(value, ast.Dict) else [value]
    for each in values:
        held = each.func if isinstance(each, ast.Call) and not each.args and not each.keywords else each
        if held is not None and name_of(held) != target and target in _loaded(held):
            return False
    return True


def _loaded(node: ast.AST) -> Iterator[str]:
    return (name_of(each) for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute))


# -- what a function does with a name --------------------------------------------------------------------------------


@cache
def _parents(function: _Function) -> Mapping[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}


@cache
def _types(function: _Function) -> frozenset[ast.AST]:
    """What is written as a type alone: annotations, and what `isinstance` asks for."""
    found: list[ast.AST] = []
    for node in ast.walk(function):
        hints = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Call) and name_of(node.func) == "isinstance":
            hints += node.args[1:]
        found += [each for hint in hints if isinstance(hint, ast.AST) for each in ast.walk(hint)]
    return frozenset(found)


@cache
def _calls_of(function: _Function, target: str) -> Sequence[ast.Call] | None:
    """The calls of ``target`` in a function, also by a local name for it or for what a table holds; None where more is
    done with it, or it is not named."""
    parents, types = _parents(function), _types(function)
    names, calls, seen = {target}, list[ast.Call](), set[ast.AST]()
    mentioned = False
    elsewhere = {
        name for each in ast.walk(function) if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names
    }
    moved = True
    while moved:
        moved = False
        for node in parents:
            is_target = isinstance(node, ast.Name | ast.Attribute) and name_of(node) == target
            is_alias = isinstance(node, ast.Name) and node.id in names
            if isinstance(node, ast.alias) and node.name == target and node.asname not in (None, target):
                return None
            if node in seen or not (is_target or is_alias):
                continue
            seen.add(node)
            mentioned |= is_target
            if node in types:
                continue
            if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
                if is_target:
                    return None
                continue
            held, parent = _held(node, parents)
            if isinstance(parent, ast.Call) and parent.func is held:
                calls.append(parent)
            elif (name := _named_by(parent, held)) and name not in elsewhere:
                moved |= name not in names
                names.add(name)
            elif not (isinstance(parent, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in parent.ops)):
                return None
    return calls if mentioned else None


def _held(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> tuple[ast.AST, ast.AST]:
    """The largest expression that may be what a name, or the table of that name, holds; and what it is in."""
    parent = parents[node]
    while True:
        of_table = isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load)
        if of_table or (isinstance(parent, ast.IfExp) and parent.test is not node):
            node = parent
        elif isinstance(parent, ast.Attribute) and parent.attr.startswith("get"):
            call = parents[parent]
            if not isinstance(call, ast.Call) or call.func is not parent:
                return node, parent
            node = call
        else:
            return node, parent
        parent = parents[node]


def _named_by(statement: ast.AST, value: ast.AST) -> str:
    """The one name that a statement gives a value."""
    targets: Sequence[ast.expr] = ()
    if isinstance(statement, ast.Assign) and statement.value is value:
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is value:
        targets = [statement.target]
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


@cache
def _bound_again(function: _Function) -> frozenset[str]:
    """The names that a function, or a scope inside, may bind to something else than it is given."""
    own = function.args
    arguments = {*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg}
    found = {*stored([function])}
    for each in ast.walk(function):
        if isinstance(each, ast.arg) and each not in arguments:
            found.add(each.arg)
        elif isinstance(each, ast.Global | ast.Nonlocal):
            found.update(each.names)
        elif isinstance(each, ast.MatchMapping):
            found.add(each.rest or "")
    return frozenset(found)


@cache
def _written(function: _Function, name: str) -> frozenset[str] | None:
    """The keys that a function writes in a mapping of its own, or in that of what it is given by name; None where
    others may be written."""
    parents = _parents(function)
    own = function.args.kwarg
    found: set[str] = set()
    is_own = own is not None and own.arg == name
    for node in parents:
        if isinstance(node, ast.arg) and node.arg == name and node is not own:
            return None
        if not isinstance(node, ast.Name) or node.id != name:
            continue
        keys = _keys_by(node, parents)
        if keys is None:
            return None
        found |= keys
        is_own |= not isinstance(node.ctx, ast.Load)
    return frozenset(found) if is_own else None


def _keys_by(node: ast.Name, parents: Mapping[ast.AST, ast.AST]) -> set[str] | None:
    """The keys that one mention of a mapping writes in it."""
    parent = parents[node]
    if not isinstance(node.ctx, ast.Load):
        value = parent.value if isinstance(parent, ast.Assign | ast.AnnAssign) else None
        return _keys(value) if value is not None and _named_by(parent, value) else None
    if isinstance(parent, ast.keyword) and parent.arg is None:
        return set()
    if isinstance(parent, ast.Compare) or (isinstance(parent, ast.If | ast.IfExp) and parent.test is node):
        return set()
    if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.slice, ast.Constant):
        return {str(parent.slice.value)} if isinstance(parent.ctx, ast.Store) else set()
    call = parents.get(parent)
    if isinstance(parent, ast.Attribute) and isinstance(call, ast.Call) and call.func is parent:
        if parent.attr in _READING:
            return set()
        if parent.attr == "setdefault" and call.args and isinstance(call.args[0], ast.Constant):
            return {str(call.args[0].value)}
        if parent.attr == "update":
            each = [_keys(value) for value in call.args]
            named = {keyword.arg for keyword in call.keywords}
            if None not in named and all(keys is not None for keys in each):
                return {key for keys in (*each, named) for key in keys or () if key}
    return None


def _keys(value: ast.expr) -> set[str] | None:
    """The keys of a mapping as it is written; None where not all can be told."""
    if isinstance(value, ast.Dict):
        keys = [each.value if isinstance(each, ast.Constant) else None for each in value.keys]
        return None if None in keys else {str(key) for key in keys}
    if isinstance(value, ast.Call) and name_of(value.func) == "dict" and not value.args:
        named = [keyword.arg for keyword in value.keywords]
        return None if None in named else {key for key in named if key}
    return None
