"""Code that runs only where an optional argument is given, or where a configuration has a property that few have.

A change of such code affects those alone that give the argument, by name or by place, or that say the word by which a
configuration gets the property.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from hfexport_bot.changes import policy
from hfexport_bot.changes.folding import Defaults, defaults_of, folded, named, names_in, without, without_arguments
from hfexport_bot.changes.modeling import alike

_Function = ast.FunctionDef | ast.AsyncFunctionDef
#: Functions and methods that do nothing to other objects than those they make or are called on.
_READING = frozenset({"dict", "list", "set", "tuple", "copy", "update", "get", "items", "keys"})
#: The properties, not holding.
_PROPERTIES = {name: ast.Constant(False) for name in policy.PROPERTIES}


class Given(NamedTuple):
    """What must be given: an argument's name with its place among those that need no name (None: it needs it), or a
    word of a configuration. ``default``: what an argument is where it is not given, as it is written."""

    name: str
    place: int | None = None
    argument: bool = True
    default: str = "None"


def when_changed(
    old: _Function, new: _Function, functions: tuple[Defaults, Defaults] = ({}, {})
) -> tuple[Given, ...] | None:
    """What must be given for two versions of a function to differ, one of them; None where they differ in any case.
    ``functions``: the defaults of each side's functions."""
    if new.name in policy.ENTRIES:  # what a model is called with is its interface
        return None
    before, after = defaults_of(old), defaults_of(new)
    known = {**before, **after}
    moved = [name for name in known if not (name in _arguments(old) and name in _arguments(new))]
    kept = [name for name in before if name in after and before[name].value == after[name].value]

    def same(names: Collection[str]) -> bool:
        """Whether nothing differs where none of them is given."""
        values = {name: known[name] for name in names if name in known}
        properties = {name: value for name, value in _PROPERTIES.items() if name in names}
        before_it, after_it = (
            folded(without_arguments(function, values.keys() - _arguments(other)), values, properties, defaults)
            for function, other, defaults in ((old, new, functions[0]), (new, old, functions[1]))
        )
        return alike(before_it, after_it)

    # Arguments that only one side has, and as few others as will do.
    for others in ([], *([name] for name in (*_PROPERTIES, *kept)), kept):
        needed = [*moved, *others]
        transparent = all(is_transparent(side, name) for side in (old, new) for name in needed if name in known)
        if needed and transparent and same(needed):
            return tuple(_given(new if name in after else old, name) for name in needed)
    return None


def without_settings_aside(function: _Function) -> _Function:
    """A copy of a function without statements that set what lies behind the boundary, and do nothing else."""
    return without(function, _sets_aside)


def _sets_aside(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return isinstance(node.value.func, ast.Attribute) and _is_aside(node.value.func.value) and _only_reads(node)
    targets = node.targets if isinstance(node, ast.Assign) else []
    flat = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return bool(flat) and all(map(_is_aside, flat)) and _only_reads(node)


def _is_aside(node: ast.expr) -> bool:
    """Whether this is an attribute of the object itself that lies behind the boundary."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return own and policy.is_of_boundary(name_of(node))


def _only_reads(node: ast.AST) -> bool:
    calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
    return all(name_of(call.func) in _READING for call in calls)


def needed_for(function: _Function, word: str) -> tuple[Given, ...] | None:
    """What must be given for a function to get to code that names something, nothing where it may in any case; None
    where it does not name it."""
    asked = _asked_before(function).get(word)
    if asked is None:
        return None
    for name in sorted(asked):
        followed = name in _PROPERTIES or is_transparent(function, name)
        if followed and word not in _named_without(function, name):
            return (_given(function, name),)
    return ()


@cache
def _asked_before(function: _Function) -> Mapping[str, frozenset[str]]:
    """All that a function names, each with what conditions around every mention ask about: optional arguments and
    properties."""
    optional = frozenset((*defaults_of(function), *_PROPERTIES)).intersection(names_in(function))
    if not optional:
        return dict.fromkeys(names_in(function), optional)
    found: dict[str, frozenset[str]] = {}
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(function, frozenset())]
    while waiting:
        node, asked = waiting.pop()
        if word := named(node):
            found[word] = found.get(word, asked) & asked
        within = asked
        if isinstance(node, ast.If | ast.IfExp):
            within |= optional.intersection(names_in(node.test))
            waiting.append((node.test, asked))
        test = getattr(node, "test", None) if within is not asked else None
        waiting += [(child, within) for child in ast.iter_child_nodes(node) if child is not test]
    return found


@cache
def _named_without(function: _Function, name: str) -> frozenset[str]:
    """What a function names where an argument is not given, or a property does not hold."""
    defaults = defaults_of(function)
    known = {name: defaults[name]} if name in defaults else {}
    properties = {} if known else {name: _PROPERTIES[name]}
    return frozenset(names_in(folded(function, known, properties, {})))


def may_be_followed(part: str, when: Sequence[Given]) -> bool:
    """Whether who gives an argument can be told: no method's, but for that which makes objects."""
    return part in ("", "__init__") or not any(given.argument for given in when)


def _given(function: _Function, name: str) -> Given:
    if name in _PROPERTIES:
        return Given(policy.PROPERTIES[name], argument=False)
    return Given(name, place_of(function, name), True, ast.unparse(defaults_of(function)[name]))


def is_transparent(function: _Function, name: str) -> bool:
    """Whether what decorates a function gives it no argument that its callers do not give."""
    return all(
        name_of(each.func if isinstance(each, ast.Call) else each) in policy.TRANSPARENT and name not in names_in(each)
        for each in function.decorator_list
    )


def _arguments(function: _Function) -> set[str]:
    arguments = function.args
    return {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def place_of(function: _Function, name: str) -> int | None:
    """The place of an argument in a call, ``self`` aside."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names and names[0] in ("self", "cls") else names
    return names.index(name) if name in names else None


def name_of(node: ast.AST) -> str:
    """The last word of a name, as it is written."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def functions_of(units: Mapping[str, Sequence[ast.AST]]) -> Defaults:
    """The defaults of some functions, each given by its nodes."""
    return {
        name: defaults_of(nodes[0])
        for name, nodes in units.items()
        if len(nodes) == 1 and isinstance(nodes[0], _Function)
    }
