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
