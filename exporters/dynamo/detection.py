"""Stage ``model_patches``: torch's own modules that detection and image-text models are built of."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.functional import linear

from exporters.registry import register_patch


@register_patch(
    "dynamo",
    "torch.nn.functional.multi_head_attention_forward",
    model_change="attend by the attention interface, tokens after batch, instead of by nn.MultiheadAttention",
)
def _patch_multi_head_attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """nn.MultiheadAttention puts tokens before the batch; to fold both for a projection the trace asks whether the
    batch is one, and the graph keeps the answer.

    What is computed is the same, on the batch first. Masks, dropout and further keys are left to torch.
    """
    signature = inspect.signature(original)

    def attend(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        extras = ("key_padding_mask", "attn_mask", "bias_k", "bias_v", "static_k", "static_v")
        dropped = given["training"] and given["dropout_p"] > 0
        further = given["add_zero_attn"] or given["use_separate_proj_weight"] or given["query"].dim() != 3
        if dropped or further or any(given[name] is not None for name in extras):
            return original(*args, **kwargs)
        return _attend_batch_first(given)

    return attend


def _attend_batch_first(given: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """Outputs (queries, batch, width) and, if wanted, weights (batch, (heads,) queries, keys).

    ``given`` are the arguments of ``multi_head_attention_forward``: query, key and value (tokens, batch, width).
    """
    heads = given["num_heads"]
    width = given["query"].shape[-1]

    def project(part: int, tokens: Tensor) -> Tensor:
        rows = slice(part * width, (part + 1) * width)
        bias = given["in_proj_bias"]
        projected = linear(tokens.transpose(0, 1), given["in_proj_weight"][rows], None if bias is None else bias[rows])
        return projected.unflatten(-1, (heads, -1)).transpose(1, 2)

    query, key, value = (project(part, given[name]) for part, name in enumerate(("query", "key", "value")))
    weights = (query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)).softmax(-1)
    attended = (weights @ value).transpose(1, 2).flatten(2)
    outputs = linear(attended, given["out_proj_weight"], given["out_proj_bias"]).transpose(0, 1)
    if not given["need_weights"]:
        return outputs, None
    return outputs, weights.mean(1) if given["average_attn_weights"] else weights
