"""In a repository of its own models: which classes a configuration is for, where their code does not name it.

Transformers finds a configuration's models by what registers them, by the ``auto_map`` of a ``config.json``, and their
authors by a type hint: none of these is a use of the configuration by the model.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hfexport_bot.changes.graph import Graph
from hfexport_bot.changes.layout import is_modeling_file
from hfexport_bot.changes.modeling import SourceError, parse
from hfexport_bot.changes.modules import Target
from hfexport_bot.changes.named import auto_maps
from hfexport_bot.changes.search import Node
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Layout

#: From a configuration to the classes that it is for.
Edges = Mapping[Node, Sequence[Node]]


def configuration_edges(graph: Graph, trees: Iterable[Tree]) -> Edges:
    """Find them in both sides' files."""
    found: dict[Node, list[Node]] = {}
    for tree in trees:
        for path in tree.files():
            source = tree.read(path) if path.endswith(".py") and path in graph.modules.facts else None
            pairs = _pairs(source, path, is_modeling_file(path, Layout.MODELING)) if source else ()
            for config, model in pairs:
                _add(found, graph.resolve(path, config), graph.resolve(path, model))
        for folder, names in auto_maps(tree, tree.files()):
            inside = f"{folder}/" if folder else ""
            targets = {key: _target(graph, inside, value) for key, value in names.items()}
            for key, target in targets.items():
                if key != "AutoConfig":
                    _add(found, targets.get("AutoConfig", ()), target)
    return found


def _add(found: dict[Node, list[Node]], configs: Iterable[Target], models: Iterable[Target]) -> None:
    for config in configs:
        for model in models:
            if config[1] and model[1] and config != model:
                nodes = found.setdefault(Node(config[0], config[1]), [])
                node = Node(model[0], model[1])
                if node not in nodes:
                    nodes.append(node)


def _target(graph: Graph, inside: str, name: str) -> tuple[Target, ...]:
    """What ``modeling_x.XModel``, or ``owner/repository--modeling_x.XModel``, of an ``auto_map`` names."""
    module, _, class_name = name.rpartition("--")[2].rpartition(".")
    path = f"{inside}{module.replace('.', '/')}.py"
    return graph.modules.local(path, class_name) if path in graph.modules.facts else ()


def _pairs(source: bytes, path: str, modeling: bool) -> Iterator[tuple[str, str]]:
    """Names of a configuration and of a class that it is for, as a file writes them."""
    if not modeling and b".register(" not in source:
        return
    try:
        module = parse(source)
    except SourceError:
        return
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "register":
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            values = [*node.args, *(given[name] for name in ("config_class", "model_class") if name in given)]
            names = [_name(value) for value in values[:2]]
            if len(names) == 2 and all(names):
                yield names[0], names[1]
        elif modeling and isinstance(node, ast.ClassDef):
            yield from ((hint, node.name) for hint in _hints(node))


def _hints(node: ast.ClassDef) -> Iterator[str]:
    """What a class says of the type of a ``config``, in its own annotations and in those of its functions."""
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            name, hint = each.arg, each.annotation
        elif isinstance(each, ast.AnnAssign):
            name, hint = _name(each.target), each.annotation
        else:
            continue
        if hint is not None and name in ("config", "config_class", "self.config"):
            yield from _names(hint)


def _names(annotation: ast.expr) -> Iterator[str]:
    """The names in a type hint, those written as strings too: ``"XConfig | None"``."""
    for each in ast.walk(annotation):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            try:
                yield from _names(ast.parse(each.value, mode="eval").body)
            except SyntaxError:
                continue
        elif name := _name(each):
            yield name


def _name(node: ast.AST) -> str:
    """``a.b.C`` of a name or an attribute of one, otherwise nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (start := _name(node.value)):
        return f"{start}.{node.attr}"
    return ""
