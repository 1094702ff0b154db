"""Where in the model a failure comes from that is told of a graph: no line of the model runs any more then, but its
nodes keep the stack they were traced from. It is added to the error as a note, which `exporters.stages` reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_NODE = re.compile(r"%(\w+)")
#: ``aten.lgamma.default``, ``aten::lgamma.out``: a namespace and an operator's name.
_OPERATOR = re.compile(r"\b([a-z]\w*)(?:::|\.)([a-z_]\w*)")
#: What the name of an operator or node that a decomposition made has beside that of the operator it was made of.
_MADE_OF = re.compile(r"(_scatter|_copy|_?\d+|_)*$")
#: How ONNX Runtime names a node.
_RUNTIME_NODE = re.compile(r"node with name '([^']+)'|in node \((\w+)\)")
#: Where torch.onnx keeps a node's stack.
_STACK = "pkg.torch.onnx.stack_trace"


@contextmanager
def telling_where(graphs: list[torch.fx.Graph]) -> Iterator[None]:
    """Add to an error that names a node or an operator of one of the graphs, the later ones first, where that is from.

    ``graphs`` may grow meanwhile.
    """
    try:
        yield
    except Exception as error:
        if not _has_frames(error) and (stack := _stack_in_graphs(str(error), graphs)):
            error.add_note(stack)
        raise


def _has_frames(error: BaseException) -> bool:
    return 'File "' in "\n".join((str(error), *getattr(error, "__notes__", ())))


def _stack_in_graphs(text: str, graphs: Iterable[torch.fx.Graph]) -> str | None:
    nodes = [node for graph in reversed(list(graphs)) for node in graph.nodes if node.stack_trace]
    by_name: dict[str, str] = {}
    by_operator: dict[tuple[str, str], str] = {}
    stacks_of: dict[str, set[str]] = {}
    for node in nodes:
        by_name.setdefault(node.name, node.stack_trace)
        schema = getattr(node.target, "_schema", None)  # operators of torch and of ExecuTorch's edge dialect
        if isinstance(schema, torch.FunctionSchema):
            namespace, _, name = schema.name.partition("::")
            by_operator.setdefault((namespace, name), node.stack_trace)
            stacks_of.setdefault(name.removesuffix("_"), set()).add(node.stack_trace)
    # What an error is about it names before the node's arguments, and whatever else it lists.
    names, operators = _NODE.findall(text), _OPERATOR.findall(text)
    exact = (*map(by_name.get, names), *map(by_operator.get, operators))
    # A node that a decomposition made is not in these graphs; the only one of its kind there is what it was made of.
    kinds = [_MADE_OF.sub("", name) for name in (*names, *(name for _, name in operators))]
    only = (next(iter(stacks)) for kind in kinds if len(stacks := stacks_of.get(kind, set())) == 1)
    return next((stack for stack in (*exact, *only) if stack), None)


def tell_where_in_onnx(error: BaseException, model: Any) -> None:
    """Add to ONNX Runtime's error on a node where that is from.

    Args:
        model: the ``onnx_ir.Model`` that was loaded.
    """
    named = {name for names in _RUNTIME_NODE.findall(str(error)) for name in names if name}
    for node in model.graph:
        if node.name in named and (stack := node.metadata_props.get(_STACK)):
            error.add_note(stack)
            return
