"""Stage ``program_fixes``: patterns of several nodes that ExecuTorch cannot hold, rewritten in the traced program."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from exporters.registry import register_fx_program_fix

_aten = torch.ops.aten


@register_fx_program_fix("executorch", model_change="index the last end-of-sequence position of each row")
def _fix_last_marked_position(program: ExportedProgram) -> int:
    """``x[mask].view(batch, -1, width)[:, -1]`` has a size that only the values tell, and so has the check before it.

    Both go: each row's last marked position is computed and indexed. Rows with unequal counts, which eager refuses,
    give their last one too, and a row without any its first position.
    """
    graph = program.graph_module.graph
    found = 0
    for node in list(graph.nodes):
        gathered = _gathered_by_mask(node)
        if gathered is None:
            continue
        value, mask = gathered.args[0], gathered.args[1][0]
        with graph.inserting_before(node):
            rows = _emit(graph, _aten.arange.default, _size(graph, mask, 0))
            places = _emit(graph, _aten.arange.default, _size(graph, mask, 1))
            marked = _emit(graph, _aten.mul.Tensor, mask, places)
            last = _emit(graph, _aten.amax.default, marked, [1])
            selected = _emit(graph, _aten.index.Tensor, value, [rows, last])
        node.replace_all_uses_with(selected)
        checks = [user for summed in mask.users for user in summed.users if user.target in _COUNTS]
        for root in (gathered, *checks):
            _erase_with_users(graph, root)
        found += 1
    if found:
        graph.lint()
        program.graph_module.recompile()
    return found


_COUNTS = (_aten.unique_consecutive.default,)


def _gathered_by_mask(node: torch.fx.Node) -> Any:
    """The node ``x[mask]`` if ``node`` selects the last of its rows, ``mask`` being (batch, length)."""
    if node.target is not _aten.select.int or node.args[1:] != (1, -1):
        return None
    viewed: Any = node.args[0]
    while viewed.target is _aten.slice.Tensor and viewed.args[1:] == (0, 0, _END):
        viewed = viewed.args[0]
    source: Any = viewed.args[0] if viewed.target is _aten.view.default else None
    if source is None or source.target is not _aten.index.Tensor or len(source.args[1]) != 1:
        return None
    value, mask = source.args[0].meta["val"], source.args[1][0].meta["val"]
    fits = mask.dtype is torch.bool and mask.dim() == 2 and value.dim() == 3 and node.meta["val"].dim() == 2
    return source if fits else None


_END = torch.iinfo(torch.int64).max


@register_fx_program_fix("executorch", model_change="remove the weight norm's parametrization before the export")
def _fix_weight_norm(program: ExportedProgram) -> int:
    """A weight that is computed from its norm and direction in every call is none that a delegate takes.

    It is computed here, once, and takes its direction's place.
    """
    parameters = program.graph_signature.inputs_to_parameters
    found = 0
    for node in program.graph.find_nodes(op="call_function", target=_aten._weight_norm.default):
        direction, norm = node.args[:2]
        if direction.name in parameters and norm.name in parameters and len(direction.users) == 1:
            names = [parameters[part.name] for part in (direction, norm)]
            weight = torch._weight_norm(*(program.state_dict[name].detach() for name in names), *node.args[2:])
            program.state_dict[names[0]] = torch.nn.Parameter(weight, requires_grad=False)
            node.replace_all_uses_with(direction)
            program.graph.erase_node(node)
            found += 1
    if found:
        program.graph_module.recompile()
    return found


@register_fx_program_fix("executorch", upstream="https://github.com/pytorch/executorch/issues/11449")
def _fix_conv1d_of_dynamic_axes(program: ExportedProgram) -> int:
    """XNNPACK makes a one-dimensional convolution two-dimensional by reshapes, and takes one dynamic axis in those.

    The convolution gets its second dimension here, between views that are left to the portable kernels.
    """
    graph = program.graph_module.graph
    parameters = program.graph_signature.inputs_to_parameters
    moving = [node for node in graph.find_nodes(op="call_function", target=_aten.conv1d.default) if _moves(node)]
    weights = [
        weight
        for weight in dict.fromkeys(_conv1d_argument(node, 1) for node in moving)
        if weight.name in parameters and weight.users.keys() <= set(moving)
    ]
    found = [node for node in moving if _conv1d_argument(node, 1) in weights]
    for weight in weights:
        name = parameters[weight.name]
        program.state_dict[name] = torch.nn.Parameter(program.state_dict[name].unsqueeze(2), requires_grad=False)
        weight.meta["val"] = weight.meta["val"].unsqueeze(2)
    for node in found:
        x, weight, bias, stride, padding, dilation, groups = (_conv1d_argument(node, index) for index in range(7))
        with graph.inserting_before(node):
            batch, channels, length = (_size(graph, x, axis) for axis in range(3))
            row = _emit(graph, _aten.view.default, x, [batch, channels, 1, length])
            window = ([1, *stride], [0, *padding], [1, *dilation])
            convolved = _emit(graph, _aten.conv2d.default, row, weight, bias, *window, groups)
            length = _size(graph, convolved, 3)
            result = _emit(graph, _aten.view.default, convolved, [batch, weight.meta["val"].shape[0], length])
        node.replace_all_uses_with(result)
        graph.erase_node(node)
    if found:
        graph.lint()
        program.graph_module.recompile()
    return len(found)


_CONV1D_DEFAULTS = (None, None, None, [1], [0], [1], 1)


def _conv1d_argument(node: torch.fx.Node, index: int) -> Any:
    """An argument of a one-dimensional convolution as the trace wrote it, or what it is where it was left out."""
    return node.args[index] if index < len(node.args) else _CONV1D_DEFAULTS[index]


def _moves(node: torch.fx.Node) -> bool:
    """Whether a convolution's input is (batch, channels, length) with more than one dynamic axis."""
    shape = _conv1d_argument(node, 0).meta["val"].shape
    return len(shape) == 3 and sum(isinstance(size, torch.SymInt) for size in shape) > 1


def _emit(graph: torch.fx.Graph, operator: Any, *args: Any) -> torch.fx.Node:
    """Call ``operator`` on nodes, with the fake value that later stages read."""
    node = graph.call_function(operator, args)
    with _fake_mode(graph):
        node.meta["val"] = operator(*torch.fx.node.map_arg(args, lambda arg: arg.meta["val"]))
    return node


def _size(graph: torch.fx.Graph, node: torch.fx.Node, axis: int) -> torch.fx.Node | int:
    size = node.meta["val"].shape[axis]
    if isinstance(size, int):
        return size
    made = graph.call_function(_aten.sym_size.int, (node, axis))
    made.meta["val"] = size
    return made


def _fake_mode(graph: torch.fx.Graph) -> Any:
    return next(n.meta["val"].fake_mode for n in graph.nodes if hasattr(n.meta.get("val"), "fake_mode"))


def _erase_with_users(graph: torch.fx.Graph, root: torch.fx.Node) -> None:
    """Erase a node and all that is computed from it; nothing where an output is."""
    reached: dict[torch.fx.Node, None] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        reached[node] = None
        waiting += [user for user in node.users if user not in reached]
    if any(node.op == "output" for node in reached):
        return
    for node in reversed([node for node in graph.nodes if node in reached]):
        graph.erase_node(node)
