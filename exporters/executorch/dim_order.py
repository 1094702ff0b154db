"""Stage ``executorch_patches``: the order of a tensor's axes in memory, where sizes are values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from exporters.registry import register_patch


@register_patch(
    "executorch",
    "executorch.exir.tensor.dim_order_from_stride",
    "executorch.exir.tensor_layout.dim_order_from_stride",
    "executorch.exir.emit._emitter.dim_order_from_stride",
    "executorch.exir.passes.replace_view_copy_with_view_pass.dim_order_from_stride",
    model_change="keep every picture in its place, and mask those that are padding, in place of indexing by a mask",
)
def _patch_dim_order(original: Callable[..., Any]) -> Callable[..., Any]:
    """Strides that a value decides cannot be compared; they are ordered as for a size of two, which holds for any."""

    def dim_order_from_stride(stride: Any) -> Any:
        try:
            return original(stride)
        except GuardOnDataDependentSymNode:
            return original(tuple(_for_two(each) for each in stride))

    return dim_order_from_stride


def _for_two(stride: Any) -> int:
    """A stride with 2 for every symbol in it."""
    if isinstance(stride, int):
        return stride
    expression = stride.node.expr
    return int(expression.subs(dict.fromkeys(expression.free_symbols, 2)))
