"""Stage ``node_fixes``: single nodes that ExecuTorch or its delegates get wrong, rewritten."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from exporters.registry import register_fx_node_fix

_aten = torch.ops.aten


@register_fx_node_fix("executorch", upstream="https://github.com/pytorch/executorch/pull/22851")
def _fix_gelu_tanh(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """XNNPACK ignores GELU's approximate="tanh" and computes the exact form, off by up to 4.7e-4.

    The approximation is written out: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    """
    if node.target is not _aten.gelu.default or node.kwargs.get("approximate") != "tanh":
        return False
    x = node.args[0]
    value = node.meta.get("val")

    def call(operator: Any, *args: Any) -> torch.fx.Node:
        made = module.graph.call_function(operator, args)
        made.meta.update({key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta})
        made.meta["val"] = value  # every step keeps the input's shape and dtype
        return made

    with module.graph.inserting_before(node):
        cube = call(_aten.mul.Tensor, call(_aten.mul.Tensor, x, x), x)
        inner = call(_aten.add.Tensor, x, call(_aten.mul.Scalar, cube, 0.044715))
        bent = call(_aten.tanh.default, call(_aten.mul.Scalar, inner, math.sqrt(2 / math.pi)))
        half = call(_aten.mul.Scalar, x, 0.5)
        result = call(_aten.add.Tensor, half, call(_aten.mul.Tensor, half, bent))
    node.replace_all_uses_with(result)
    module.graph.erase_node(node)
    return True


@register_fx_node_fix("executorch", upstream="https://github.com/pytorch/executorch/issues/11449")
def _fix_unsqueeze_of_dynamic_axes(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """XNNPACK takes an unsqueeze into its delegate and then refuses one with more than one dynamic axis.

    As a view of the same sizes it is left to the portable kernels.
    """
    if node.target is not _aten.unsqueeze.default or not _has_dynamic_axes(node):
        return False
    source: Any = node.args[0]
    axis: Any = node.args[1]
    with module.graph.inserting_before(node):
        sizes = _sizes_with_axis(module.graph, source, axis % node.meta["val"].dim())
    node.target, node.args = _aten.view.default, (source, sizes)
    return True


@register_fx_node_fix("executorch", upstream="https://github.com/pytorch/executorch/issues/11449")
def _fix_stack_of_dynamic_axes(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """A stack is lowered as unsqueezes, of which XNNPACK refuses those with more than one dynamic axis.

    Views are concatenated instead.
    """
    if node.target is not _aten.stack.default or not _has_dynamic_axes(node):
        return False
    tensors: Any = node.args[0]
    made: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    axis = made % node.meta["val"].dim()
    views = []
    with module.graph.inserting_before(node):
        for tensor in tensors:
            sizes = _sizes_with_axis(module.graph, tensor, axis)
            view = module.graph.call_function(_aten.reshape.default, (tensor, sizes))
            view.meta["val"] = tensor.meta["val"].unsqueeze(axis)
            views.append(view)
    node.target, node.args, node.kwargs = _aten.cat.default, (views, axis), {}
    return True


@register_fx_node_fix("executorch", upstream="https://github.com/pytorch/executorch/issues/11449")
def _fix_copy_into_place_of_dynamic_axes(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """``x[..., 0] = y`` is lowered with an unsqueeze of ``y``, of which XNNPACK refuses more than one dynamic axis.

    A view of ``y`` is copied into a slice of the same place instead.
    """
    if node.target is not _aten.copy_.default or node.users or not _has_dynamic_axes(node):
        return False
    place: Any = node.args[0]
    value: Any = node.args[1]
    if place.target is not _aten.select.int or value.meta["val"].dim() != place.meta["val"].dim():
        return False
    source, axis, index = place.args
    if not isinstance(index, int) or index < 0:
        return False
    axis %= source.meta["val"].dim()
    with module.graph.inserting_before(node):
        piece = module.graph.call_function(_aten.slice.Tensor, (source, axis, index, index + 1))
        piece.meta["val"] = place.meta["val"].unsqueeze(axis)
        view = module.graph.call_function(_aten.reshape.default, (value, _sizes_with_axis(module.graph, value, axis)))
        view.meta["val"] = value.meta["val"].unsqueeze(axis)
    node.args = (piece, view)
    node.meta["val"] = piece.meta["val"]
    return True


def _has_dynamic_axes(node: torch.fx.Node) -> bool:
    """Whether a node's value is of those that XNNPACK would take, and has more dynamic axes than it can reshape."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    return sum(isinstance(size, torch.SymInt) for size in value.shape) > 1


def _sizes_with_axis(graph: torch.fx.Graph, source: torch.fx.Node, axis: int) -> list[Any]:
    """The sizes of ``source``, nodes where they are dynamic, with a new axis of one."""
    sizes: list[Any] = []
    for index, size in enumerate(source.meta["val"].shape):
        if isinstance(size, torch.SymInt):
            symbolic = graph.call_function(_aten.sym_size.int, (source, index))
            symbolic.meta["val"] = size
            sizes.append(symbolic)
        else:
            sizes.append(size)
    sizes.insert(axis, 1)
    return sizes


_SPLITS = (_aten.split.Tensor, _aten.split_with_sizes.default, _aten.chunk.default)


@register_fx_node_fix("executorch", model_change="slice the tensor instead of splitting it")
def _fix_split_of_dynamic_tensor(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Lowering checks ``split_with_sizes_copy`` by running it on sizes it takes for fixed: the axes become static.

    Pieces of a fixed size are cut out by ``slice``, which keeps the other axes dynamic.
    """
    if node.target not in _SPLITS:
        return False
    source: Any = node.args[0]
    pieces: Any = node.meta["val"]
    axis: Any = (node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)) or 0
    sizes = [piece.shape[axis] for piece in pieces]
    dynamic = any(isinstance(size, torch.SymInt) for size in source.meta["val"].shape)
    taken = list(node.users)
    if not dynamic or any(isinstance(size, torch.SymInt) for size in sizes):
        return False
    if any(user.target is not operator.getitem for user in taken):
        return False
    for user in taken:
        index: Any = user.args[1]
        start = sum(sizes[:index])
        with module.graph.inserting_before(user):
            piece = module.graph.call_function(_aten.slice.Tensor, (source, axis, start, start + sizes[index]))
            piece.meta.update(user.meta)
        user.replace_all_uses_with(piece)
        module.graph.erase_node(user)
    module.graph.erase_node(node)
    return True


@register_fx_node_fix("executorch", model_change="take the maximum with ``amax``, which is all that is used of it")
def _fix_max_of_dynamic_axis(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """XNNPACK computes ``max`` along an axis by a pooling whose window is fixed, and of axes 2 and 3 of four only.

    Where only the values are used, ``amax`` computes them in the portable kernels.
    """
    if node.target is not _aten.max.dim:
        return False
    users = list(node.users)
    if any(user.target is not operator.getitem or (user.args[1] != 0 and user.users) for user in users):
        return False
    source, axis, *rest = node.args
    keep = rest[0] if rest else node.kwargs.get("keepdim", False)
    with module.graph.inserting_before(node):
        largest = module.graph.call_function(_aten.amax.default, (source, [axis], keep))
    for user in users:
        if user.args[1] == 0:
            largest.meta.update(user.meta)
            user.replace_all_uses_with(largest)
        module.graph.erase_node(user)
    module.graph.erase_node(node)
    return True


_LAYOUT_OPS = frozenset(
    {
        _aten.transpose.int,
        _aten.permute.default,
        _aten.view.default,
        _aten.reshape.default,
        _aten.unsqueeze.default,
        _aten.squeeze.dim,
        _aten.contiguous.default,
        _aten.clone.default,
    }
)


@register_fx_node_fix("executorch", upstream="https://github.com/pytorch/pytorch/issues/136543")
def _fix_view_after_attention(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Attention's decomposition gives another layout than the kernel, so a traced view of its output fails.

    A contiguous copy before the view gives it the layout it was traced with.
    """
    if node.target is not _aten.view.default:
        return False
    viewed: Any = node.args[0]
    source = viewed
    while isinstance(source, torch.fx.Node) and source.target in _LAYOUT_OPS:
        source = source.args[0]
    if not isinstance(source, torch.fx.Node) or source.target is not _aten.scaled_dot_product_attention.default:
        return False
    with module.graph.inserting_before(node):
        copy = module.graph.call_function(_aten.clone.default, (viewed,), {"memory_format": torch.contiguous_format})
        copy.meta.update(viewed.meta)
    node.args = (copy, *node.args[1:])
    return True


@register_fx_node_fix("executorch", model_change="concatenate tensors of one dtype")
def _fix_cat_of_mixed_dtypes(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """A concatenation promotes its tensors, and lowering refuses those that have another dtype than the result.

    They are cast before.
    """
    if node.target is not _aten.cat.default:
        return False
    tensors: Any = node.args[0]
    wanted = node.meta["val"].dtype
    if all(tensor.meta["val"].dtype is wanted for tensor in tensors):
        return False
    promoted = []
    with module.graph.inserting_before(node):
        for tensor in tensors:
            value = tensor.meta["val"]
            if value.dtype is wanted:
                promoted.append(tensor)
                continue
            cast = module.graph.call_function(_aten._to_copy.default, (tensor,), {"dtype": wanted})
            cast.meta["val"] = value.to(wanted)
            promoted.append(cast)
    node.args = (promoted, *node.args[1:])
    return True
