"""Where in the model a failure comes from that is told of a graph: no line of the model runs any more then, but its
nodes keep the stack they were traced from, and its sizes the line that fixed them. It is added to the error as a note,
which `exporters.stages` reads.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

_NODE = re.compile(r"%(\w+)")
#: ``aten.lgamma.default``, ``aten::lgamma.out``: a namespace and an operator's name.
_OPERATOR = re.compile(r"\b([a-z]\w*)(?:::|\.)([a-z_]\w*)")
#: What the name of an operator or node that a decomposition made has beside that of the operator it was made of.
_MADE_OF = re.compile(r"(_scatter|_copy|_?\d+|_)*$")
#: How ONNX Runtime names a node.
_RUNTIME_NODE = re.compile(r"node with name '([^']+)'|in node \((\w+)\)")
_TORCH = f"{Path(torch.__file__).parent}/"
#: The keys in torch's name of an input, ``L['states'][0]``.
_KEY = re.compile(r"\['?([^'\]]+)'?\]")
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
        model: the ``onnx_ir.Model`` that was loaded, None where there is only a file, which has no stacks.
    """
    named = {name for names in _RUNTIME_NODE.findall(str(error)) for name in names if name}
    for node in () if model is None else model.graph:
        if node.name in named and (stack := node.metadata_props.get(_STACK)):
            error.add_note(stack)
            return


def where_sizes_were_fixed(program: ExportedProgram) -> dict[tuple[str, int], str]:
    """The line, as a traceback has it, that made a size constant which could have varied, by placeholder and axis."""
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    envs = (getattr(getattr(value, "fake_mode", None), "shape_env", None) for value in values)
    sizes = next((env for env in envs if env is not None), None)
    fixed = getattr(sizes, "replacements_slocs", {})
    found: dict[tuple[str, int], str] = {}
    for symbol, sources in getattr(sizes, "var_to_sources", {}).items():
        frame = getattr(fixed.get(symbol), "framework_loc", None)
        if not isinstance(frame, traceback.FrameSummary) or frame.filename.startswith(_TORCH):
            continue  # a size that has to fit another, whose line is told
        for source in sources:
            base, axis = getattr(source, "base", None), getattr(source, "idx", None)
            if base is not None and axis is not None:
                placeholder = "_".join(_KEY.findall(_name_of(base)))
                found[placeholder, axis] = f'File "{frame.filename}", line {frame.lineno}, in {frame.name}'
    return found


def _name_of(source: Any) -> str:
    """torch's name of an input: a method in some versions, a property in others."""
    name = source.name
    return str(name() if callable(name) else name)
