"""Stage ``torch_patches``: torch and model code whose operators ExecuTorch does not have, replaced while it traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from exporters.registry import register_patch


@register_patch(
    "executorch",
    "transformers.integrations.moe.ExpertsInterface.get_interface",
    model_change="compute experts without sorting tokens by expert: no kernel sorts, counts or multiplies in groups",
)
def _patch_experts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Tokens are not sorted by expert: ExecuTorch has no kernel for it, nor for a multiplication in groups.

    Every token goes through all experts, as through one wide layer, and takes its own with their routing weights.
    Fewer tokens than experts, as when decoding, gather the weights of their experts instead.
    """

    def get_interface(self: Any, implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        gathered = original(self, "batched_mm", default)

        def experts(module: Any, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            few = statically_known_true(index.shape[0] * index.shape[1] <= module.num_experts)
            if few or module.has_post_expert_norm:
                return gathered(module, hidden, index, weights)
            return _all_experts(module, hidden, index, weights)

        return experts

    return get_interface


def _all_experts(module: Any, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Outputs (tokens, width) of experts held as stacked weights.

    Args:
        hidden: (tokens, width). index, weights: (tokens, experts per token), which experts and how much of each. An
            index beyond the experts counts nothing.
    """
    experts = torch.arange(module.num_experts, device=index.device)
    routing = ((index.unsqueeze(-1) == experts).to(weights.dtype) * weights.unsqueeze(-1)).sum(1)
    name = "gate_up_proj" if module.has_gate else "up_proj"
    into, out_of = getattr(module, name), module.down_proj
    if module.is_transposed:
        into, out_of = into.transpose(1, 2), out_of.transpose(1, 2)
    bias = getattr(module, f"{name}_bias").flatten() if module.has_bias else None
    inner = torch.nn.functional.linear(hidden, into.flatten(0, 1), bias).unflatten(-1, (module.num_experts, -1))
    inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
    inner = inner * routing.unsqueeze(-1).to(inner.dtype)
    outputs = torch.nn.functional.linear(inner.flatten(1), out_of.transpose(0, 1).flatten(1))
    if module.has_bias:
        outputs = outputs + routing.to(outputs.dtype) @ module.down_proj_bias
    return outputs.to(hidden.dtype)


@register_patch(
    "executorch",
    "torch._check_tensor_all",
    model_change="check values where a processor makes them, not in forward",
)
def _patch_value_checks_left_out(original: Callable[..., Any]) -> Callable[..., Any]:
    """A check of values that only a run tells of: ExecuTorch has no kernel that raises."""

    def check(condition: Any, message: Any = None) -> None:
        return None

    return check


@register_patch("executorch", "torch.bucketize", model_change="count the boundaries below each value")
def _patch_bucketize(original: Callable[..., Any]) -> Callable[..., Any]:
    """ExecuTorch has no kernel for it; the bucket of a value is how many boundaries lie below."""

    def bucketize(values: torch.Tensor, boundaries: torch.Tensor, *, right: bool = False, **others: Any) -> Any:
        if others or not isinstance(values, torch.Tensor):
            return original(values, boundaries, right=right, **others)
        below = values[..., None] >= boundaries if right else values[..., None] > boundaries
        return below.long().sum(-1)

    return bucketize


@register_patch("executorch", "torch.argsort", model_change="take the inverse of a permutation from where it is made")
def _patch_argsort(original: Callable[..., Any]) -> Callable[..., Any]:
    """ExecuTorch has no kernel that sorts; a few integers are ranked by comparing all with all."""

    def argsort(values: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
        if values.dim() != 1 or values.is_floating_point() or descending:
            return original(values, dim=dim, descending=descending, stable=stable)
        places = torch.arange(values.shape[0], device=values.device)
        before = (values[:, None] > values) | ((values[:, None] == values) & (places[:, None] > places))
        rank = before.long().sum(-1)
        return ((rank[None, :] == places[:, None]).long() * places).sum(-1)

    return argsort
