"""What a caller and a runtime notice of an exported program: its tensors, what it writes into, the operators it needs;
the dtypes it computes in, and its size in nodes, delegates and bytes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.export.graph_signature import OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from exporters import Artifact
from hfexport_bot.schema import MAX_NAME_CHARS, MAX_OPERATORS, Backend, TensorType

#: ExecuTorch's names of dtypes that are not torch's in small letters.
_EXECUTORCH_DTYPES = {
    "BYTE": "uint8",
    "CHAR": "int8",
    "SHORT": "int16",
    "INT": "int32",
    "LONG": "int64",
    "HALF": "float16",
    "FLOAT": "float32",
    "DOUBLE": "float64",
}


def interface(artifact: Artifact) -> dict[str, Any]:
    """The fields of `hfexport_bot.schema.Component` that tell of the program alone."""
    of_backend = {Backend.ONNX: _onnx, Backend.EXECUTORCH: _executorch}.get(Backend(artifact.backend), _dynamo)
    return {
        "inputs": _names(artifact.input_paths),
        "input_dtypes": _names(artifact.input_dtypes),
        **of_backend(artifact),
    }


def _dynamo(artifact: Artifact) -> dict[str, Any]:
    program = artifact.program
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    calls = [node for graph in graphs for node in graph.nodes if node.op == "call_function"]
    overloads = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    made = (leaf for node in calls for leaf in pytree.tree_leaves(node.meta.get("val")))
    held = pytree.tree_leaves([dict(program.state_dict), dict(program.constants)])
    storages = {each.untyped_storage().data_ptr(): each for each in held if isinstance(each, torch.Tensor)}
    return {
        **_tensors(artifact, program),
        **_operators(str(node.target) for node in calls if isinstance(node.target, overloads)),
        "computed": _dtypes(str(each.dtype) for each in made if isinstance(each, torch.Tensor)),
        "nodes": len(program.graph.nodes),
        "size_bytes": sum(each.numel() * each.element_size() for each in storages.values()),
    }


def _onnx(artifact: Artifact) -> dict[str, Any]:
    import onnx

    proto = artifact.program.model_proto
    returns = []
    for value in proto.graph.output:
        kind = value.type.tensor_type
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)) if kind.elem_type else ""
        returns.append((value.name, dtype, len(kind.shape.dim) if kind.HasField("shape") else None))
    nodes = [*_nested(proto.graph), *(inner for function in proto.functions for inner in _nested(function))]
    read = {name for node in nodes for name in node.input}
    given = [value.name for value in proto.graph.input]
    paths = artifact.input_paths if len(artifact.input_paths) == len(given) else given
    made = (each.dtype for node in artifact.program.model.graph.all_nodes() for each in node.outputs)
    return {
        "returns": _returns(artifact, returns),
        "unread": _names(path for name, path in zip(given, paths, strict=True) if name not in read),
        "computed": _dtypes(str(each.numpy()) for each in made if each is not None),
        **_operators(f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes),
        "nodes": len(proto.graph.node),
        "size_bytes": proto.ByteSize(),
        "opset": next((each.version for each in proto.opset_import if each.domain in ("", "ai.onnx")), None),
    }


def _nested(graph: Any) -> Iterator[Any]:
    """The nodes of an ONNX graph or function, and of the graphs in their attributes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
                yield from _nested(inner)


def _executorch(artifact: Artifact) -> dict[str, Any]:
    program = artifact.program
    plan = next(each for each in program.executorch_program.execution_plan if each.name == "forward")
    return {
        **_tensors(artifact, program.exported_program("forward")),
        **_operators(f"{each.name}.{each.overload}".rstrip(".") for each in plan.operators),
        "computed": _dtypes(_planned_dtypes(plan)),
        "delegated_to": _names(sorted({delegate.id for delegate in plan.delegates})),
        "nodes": sum(len(chain.instructions) for chain in plan.chains),
        "delegates": len(plan.delegates),
        "size_bytes": len(program.buffer),
    }


def _tensors(artifact: Artifact, program: torch.export.ExportedProgram) -> dict[str, Any]:
    """What an exported program returns and writes into."""
    signature = program.graph_signature
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    returned = [
        (spec.arg.name, values.get(spec.arg.name))
        for spec in signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
    ]
    described = [
        (name, str(value.dtype).removeprefix("torch."), value.dim())
        if isinstance(value, torch.Tensor)
        else (name, "", None)
        for name, value in returned
    ]
    inputs = signature.user_inputs
    paths = dict(zip(inputs, artifact.input_paths, strict=True)) if len(inputs) == len(artifact.input_paths) else {}
    buffers = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    written = {
        *signature.buffers_to_mutate.values(),
        *(paths.get(name, name) for name in signature.user_inputs_to_mutate.values()),
        *(buffers.get(name) or paths.get(name, name) for name in _written_in_place(program.graph)),
    }
    used = _used(program.graph)
    return {
        "returns": _returns(artifact, described),
        "mutated": _names(sorted(written)),
        "unread": _names(path for name, path in paths.items() if name not in used),
    }


def _used(graph: torch.fx.Graph) -> set[str]:
    """The nodes that something is made of which the graph returns or writes."""
    used: set[str] = set()
    for node in reversed(graph.nodes):
        writes = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        if node.op == "output" or writes or node.name in used:
            used |= {node.name, *(each.name for each in node.all_input_nodes)}
    return used


def _written_in_place(graph: torch.fx.Graph) -> Iterator[str]:
    """The placeholders that operators of a graph before its functionalisation write into, directly or by a view."""
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        arguments = node.target._schema.arguments
        given = {**dict(zip((each.name for each in arguments), node.args, strict=False)), **node.kwargs}
        for argument in arguments:
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = given.get(argument.name)
            for each in value if isinstance(value, list | tuple) else [value]:
                root = _root(each)
                if root is not None and root.op == "placeholder":
                    yield root.name


def _root(node: Any) -> torch.fx.Node | None:
    """The node whose memory ``node`` shows."""
    while isinstance(node, torch.fx.Node) and node.op == "call_function":
        shows = node.target is operator.getitem or (
            isinstance(node.target, torch._ops.OpOverload)
            and any(returned.alias_info is not None for returned in node.target._schema.returns)
        )
        if not shows or _casts(node):
            return None
        node = node.args[0]
    return node if isinstance(node, torch.fx.Node) else None


def _casts(node: torch.fx.Node) -> bool:
    """Whether a node that may show its argument's memory makes a copy of another dtype."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.overloadpacket is not torch.ops.aten.to:
        return False
    values = [each.meta.get("val") for each in (node, node.args[0]) if isinstance(each, torch.fx.Node)]
    return len({value.dtype for value in values if isinstance(value, torch.Tensor)}) > 1


def _returns(artifact: Artifact, found: Sequence[tuple[str, str, int | None]]) -> tuple[TensorType, ...]:
    """Tensors by their paths in the model's outputs, where the program has as many."""
    paths = artifact.output_paths
    names = paths if len(paths) == len(found) else [name for name, _, _ in found]
    return tuple(
        TensorType(name=name[:MAX_NAME_CHARS], dtype=dtype, rank=rank)
        for name, (_, dtype, rank) in zip(names, found, strict=True)
    )


def _planned_dtypes(plan: Any) -> Iterator[str]:
    """The dtypes of the tensors that an ExecuTorch plan has memory for, constants left out."""
    for value in plan.values:
        if (kind := getattr(value.val, "scalar_type", None)) is not None and not value.val.data_buffer_idx:
            yield str(_EXECUTORCH_DTYPES.get(kind.name, kind.name.lower()))


def _dtypes(found: Iterable[str]) -> tuple[str, ...]:
    return _names(sorted({each.removeprefix("torch.") for each in found}))


def _operators(found: Iterable[str]) -> dict[str, Any]:
    names = sorted(set(_names(found)))
    return {"operators": tuple(names[:MAX_OPERATORS]), "operators_left_out": max(0, len(names) - MAX_OPERATORS)}


def _names(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(name[:MAX_NAME_CHARS] for name in found)
