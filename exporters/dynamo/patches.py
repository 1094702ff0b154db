"""Stage ``model_patches``: model code that torch.export cannot trace, replaced while it traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exporters.registry import register_patch


@register_patch(
    "dynamo",
    "transformers.models.nllb_moe.modeling_nllb_moe.NllbMoeTop2Router._cast_classifier",
    model_change="cast the router's classifier once, at load",
)
def _patch_classifier_cast(original: Callable[..., Any]) -> Callable[..., Any]:
    """The router replaces its classifier's weights inside forward, which a trace refuses."""

    def keep_classifier(self: Any) -> None:
        return None

    return keep_classifier
