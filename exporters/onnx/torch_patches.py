"""Stage ``torch_patches``: code whose operators ONNX, or its runtime, does not have, replaced while it traces."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from exporters.registry import register_patch


@register_patch(
    "onnx",
    "torch._check_tensor_all",
    model_change="check values where a processor makes them, not in forward",
)
def _patch_value_checks(original: Callable[..., Any]) -> Callable[..., Any]:
    """A check of values that only a run tells of: ONNX has no operator that raises."""

    def check(condition: Any, message: Any = None) -> None:
        return None

    return check


@register_patch(
    "onnx",
    "transformers.models.falcon.modeling_falcon.build_alibi_tensor",
    model_change="multiply the slopes of ALiBi in float32 and round the product",
)
def _patch_bfloat16_alibi(original: Callable[..., Any]) -> Callable[..., Any]:
    """Falcon multiplies ALiBi's slopes in bfloat16, for which ONNX Runtime has no kernel on the CPU.

    A product of bfloat16 numbers is one of float32 numbers, rounded.
    """

    def build_alibi_tensor(attention_mask: torch.Tensor, num_heads: int, dtype: torch.dtype) -> torch.Tensor:
        """attention_mask: (batch, length). Returns (batch * heads, 1, length)."""
        slopes = torch.tensor(_slopes(num_heads), device=attention_mask.device)
        positions = (attention_mask.cumsum(-1) - 1) * attention_mask
        product = _rounded(slopes)[:, None] * _rounded(positions)[:, None, :]
        return _rounded(product).flatten(0, 1)[:, None, :].to(dtype)

    return build_alibi_tensor


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.bfloat16).to(torch.float32)


def _slopes(heads: int) -> list[float]:
    """The slope of each head: powers of one base, then every other power of its root for heads beyond a power of 2."""
    whole = 2 ** math.floor(math.log2(heads))
    base = 2.0 ** -(8 / whole)
    root = 2.0 ** -(4 / whole)
    return [base**power for power in range(1, whole + 1)] + [root ** (2 * n + 1) for n in range(heads - whole)]
