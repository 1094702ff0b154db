"""Which processors of logits greedy decoding builds: those that a default setting turns on, or that the configuration
of a model may."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from hfexport_bot.changes import policy
from hfexport_bot.changes.graph import Graph
from hfexport_bot.changes.modeling import SourceError, parse
from hfexport_bot.changes.tree import Tree

#: The method that builds them, from what, and what says how that is set by default.
BUILDS = "_get_logits_processor"
_SETTINGS = "generation_config"
_DEFAULTS = "_get_default_generation_params"
#: Comparisons that hold where a setting is on.
_ON = (ast.IsNot, ast.NotEq, ast.Gt, ast.GtE, ast.Lt, ast.LtE)


class Processors:
    """What both sides say of them."""

    def __init__(self, graph: Graph, trees: Sequence[Tree]) -> None:
        self._graph = graph
        self._trees = trees

    def is_optional(self, name: str) -> bool:
        """Whether default settings do not build a processor."""
        found = self._needs.get(name, ())
        return bool(found) and all(found)

    def asked_for_by(self, path: str, name: str) -> Iterator[tuple[str, str]]:
        """The configurations of models that have the settings by which a processor is built."""
        if self.is_optional(name) and any(use.part == BUILDS for use in self._graph.users(path, name)):
            for file, versions in self._graph.modules.facts.items():
                for owner, row in ((owner, row) for facts in versions for owner, row in facts.rows.items()):
                    named = row[0] == "class" and file.startswith(policy.MODELS) and owner.endswith("Config")
                    if named and any(settings <= row[3].keys() for settings in self._needs[name]):
                        yield file, owner

    @cached_property
    def _needs(self) -> Mapping[str, Sequence[frozenset[str]]]:
        """Each name that the method uses, and the settings that are off by default and must be on, at each place."""
        found: dict[str, list[frozenset[str]]] = {}
        for tree in self._trees:
            off = {name for name, value in _defaults(tree).items() if value in (None, 0, 1) and value is not True}
            for method in _functions(tree, "generation/utils.py", BUILDS):
                for name, settings in _built(method.body, frozenset()):
                    found.setdefault(name, []).append(settings & off)
        return found


def _functions(tree: Tree, inside: str, name: str) -> Iterator[ast.FunctionDef]:
    source = tree.read(policy.PACKAGE + inside)
    try:
        module = parse(source) if source else ast.Module([], [])
    except SourceError:
        return
    yield from (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == name)


def _built(body: Sequence[ast.stmt], settings: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """The names that statements use, each with the settings that must be on for it."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _built(statement.body, settings | set(_asked(statement.test)))
            yield from _built(statement.orelse, settings)
        else:
            yield from ((node.id, settings) for node in ast.walk(statement) if isinstance(node, ast.Name))


def _asked(test: ast.expr) -> Iterator[str]:
    """The settings that must be on where a condition holds."""
    for each in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
        terms: list[ast.expr] = [each]
        if isinstance(each, ast.Compare):
            true = isinstance(each.ops[0], ast.Is) and getattr(each.comparators[0], "value", None) is True
            terms = [each.left, *each.comparators] if true or isinstance(each.ops[0], _ON) else []
        for term in terms:
            if isinstance(term, ast.Attribute) and isinstance(term.value, ast.Name) and term.value.id == _SETTINGS:
                yield term.attr


def _defaults(tree: Tree) -> Mapping[str, object]:
    """The settings of generation that are known, each with its default."""
    found: dict[str, object] = {}
    inside = "generation/configuration_utils.py"
    for method in _functions(tree, inside, "__init__"):
        for node in ast.walk(method):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pop":
                name, *default = (_value(each) for each in node.args)
                found[str(name)] = default[0] if default else None
    for method in _functions(tree, inside, _DEFAULTS):
        for node in ast.walk(method):
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                found.update((str(_value(key)), _value(value)) for key, value in pairs if key is not None)
    return found


def _value(node: ast.expr) -> object:
    """The value of a constant; of anything else a text, which is on."""
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)
