"""Stage ``torch_patches``: torch code whose operators ONNX does not have, replaced while it traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
