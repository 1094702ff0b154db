"""Stage ``node_fixes``: graph nodes whose translation to ONNX fails or gives other numbers, rewritten beforehand."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from exporters.registry import register_fx_node_fix

_aten = torch.ops.aten

_END = torch.iinfo(torch.int64).max


@register_fx_node_fix("onnx", upstream="https://github.com/microsoft/onnxscript/issues/2857")
def _fix_split_in_pieces(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """A split by the size of its pieces becomes a sequence, whose folding takes the pieces for equal, or fails.

    Pieces of known sizes are split by those sizes; those of symbolic sizes are sliced.
    """
    if node.target is not _aten.split.Tensor:
        return False
    source: Any = node.args[0]
    size: Any = node.args[1]
    axis: Any = (node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)) or 0
    pieces = node.meta["val"]
    sizes = [piece.shape[axis] for piece in pieces]
    if all(isinstance(length, int) for length in sizes):
        node.target, node.args, node.kwargs = _aten.split_with_sizes.default, (source, sizes, axis), {}
        return True
    if any(user.target is not operator.getitem for user in node.users):
        return False
    for user in list(node.users):
        index: Any = user.args[1]
        with module.graph.inserting_before(user):
            start = _times(module.graph, size, index)
            end = _END if index == len(pieces) - 1 else _times(module.graph, size, index + 1)
            piece = module.graph.call_function(_aten.slice.Tensor, (source, axis, start, end))
        piece.meta.update(user.meta)
        user.replace_all_uses_with(piece)
        module.graph.erase_node(user)
    module.graph.erase_node(node)
    return True


def _times(graph: torch.fx.Graph, size: Any, count: int) -> Any:
    """``size`` times ``count``: a number, or a node of the graph where ``size`` is one."""
    if not isinstance(size, torch.fx.Node) or count == 0:
        return 0 if count == 0 else size * count
    product = graph.call_function(operator.mul, (size, count))
    product.meta["val"] = size.meta["val"] * count
    return product


@register_fx_node_fix("onnx", upstream="https://github.com/huggingface/sentence-transformers/issues/3666")
def _fix_groups_of_one(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """From opset 23 on, attention in groups is refused where there are as many key heads as query heads."""
    if node.target is not _aten.scaled_dot_product_attention.default or not node.kwargs.get("enable_gqa"):
        return False
    heads = [getattr(arg, "meta", {})["val"].shape[1] for arg in node.args[:3]]
    if not all(statically_known_true(count == heads[0]) for count in heads):
        return False
    node.kwargs = {name: value for name, value in node.kwargs.items() if name != "enable_gqa"}
    return True
