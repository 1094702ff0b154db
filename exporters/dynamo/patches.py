"""Stage ``model_patches``: model code that torch.export cannot trace, replaced while it traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exporters.registry import register_patch, replaced


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


@register_patch(
    "dynamo",
    "transformers.models.nllb_moe.modeling_nllb_moe.NllbMoeExperts.forward",
    model_change="hand every token to every expert, weighted, in place of a loop over the experts that were hit",
)
def _patch_experts_hit(original: Callable[..., Any]) -> Callable[..., Any]:
    """The loop runs over the experts that were hit, and each takes its tokens: sizes that only the values tell."""

    def forward(self: Any, hidden_states: Any, router_mask: Any, router_probs: Any) -> Any:
        kept = 1 - self.moe_token_dropout
        total = hidden_states.new_zeros(hidden_states.shape)
        for expert in range(self.num_experts):
            share = (router_probs * (router_mask == expert)).sum(-1, keepdim=True) * kept
            total = total + (self[f"expert_{expert}"](hidden_states) * share).to(total.dtype)
        return total

    return forward


@register_patch(
    "dynamo",
    "transformers.integrations.moe.ExpertsInterface.get_interface",
    upstream="https://github.com/huggingface/transformers/issues/38518",
)
def _patch_eager_experts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Eager experts loop over those that were hit, which only the values tell; they multiply in groups instead."""

    def get_interface(self: Any, implementation: str | None, default: Callable[..., Any]) -> Callable[..., Any]:
        if implementation in (None, "eager"):
            implementation = "grouped_mm" if "grouped_mm" in self else "batched_mm"
        return original(self, implementation, default)

    return get_interface


@register_patch(
    "dynamo",
    "transformers.models.idefics3.modeling_idefics3.Idefics3Connector.pixel_shuffle",
    "transformers.models.smolvlm.modeling_smolvlm.SmolVLMConnector.pixel_shuffle",
    model_change="take the numbers of patches down and across from the picture, in place of int(patches**0.5)",
)
def _patch_pixel_shuffle(original: Callable[..., Any]) -> Callable[..., Any]:
    """int() of the square root of a size fixes the size, and with it the picture's; where each patch goes is
    reckoned in a tensor instead."""

    def pixel_shuffle(self: Any, x: torch.Tensor, scale_factor: int = 2) -> torch.Tensor:
        batch, patches, width = x.shape
        side = torch.full((1,), patches, dtype=torch.float32, device=x.device).sqrt().round().long()
        inner = torch.arange(scale_factor, device=x.device)
        block = torch.arange(patches // scale_factor**2, device=x.device)[:, None, None]
        across = side // scale_factor
        down = block // across * scale_factor + inner[:, None]
        along = block % across * scale_factor + inner[None, :]
        rows = x.index_select(1, (down * side + along).reshape(-1))
        return rows.reshape(batch, patches // scale_factor**2, width * scale_factor**2)

    return pixel_shuffle


@register_patch(
    "dynamo",
    "transformers.masking_utils._vmap_expansion_sdpa",
    upstream="https://github.com/pytorch/executorch/issues/13195",
)
def _patch_vmapped_masks(original: Callable[..., Any]) -> Callable[..., Any]:
    """A mask function under vmap leaves calls in the graph that no format holds; it is handed indices that broadcast,
    which gives the same for a function of indices."""

    def expansion(mask_function: Callable[..., Any]) -> Callable[..., Any]:
        def mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
            found = mask_function(batch[:, None, None, None], head[:, None, None], query[:, None], key)
            return found.expand(batch.shape[0], head.shape[0], query.shape[0], key.shape[0])

        return mask

    return expansion


@register_patch(
    "dynamo",
    "torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex.__torch_function__",
    upstream="https://github.com/pytorch/executorch/issues/13195",
)
def _patch_wrapped_indexing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Indexing inside a mask function is wrapped for vmap, which masks are made without here."""

    def index(self: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))

    return index


@register_patch(
    "dynamo",
    "transformers.models.gemma3.modeling_gemma3.Gemma3MultiModalProjector.forward",
    model_change="call contiguous() on the pooled patches before they are normed",
)
def _patch_pooled_patches(original: Callable[..., Any]) -> Callable[..., Any]:
    """Transposed patches are multiplied as if there were several pictures, also where there is one; laid out in their
    new order first, any number is alike."""

    def forward(self: Any, vision_outputs: torch.Tensor) -> torch.Tensor:
        norm = self.mm_soft_emb_norm.forward

        def normed(pooled: torch.Tensor) -> torch.Tensor:
            return norm(pooled.contiguous())

        with replaced(self.mm_soft_emb_norm, "forward", normed):
            return original(self, vision_outputs)

    return forward


@register_patch(
    "dynamo",
    "transformers.models.exaone4_5.modeling_exaone4_5.Exaone4_5_VisionModel.permute_input_for_window_attn",
    "transformers.models.qwen2_5_omni.modeling_qwen2_5_omni.Qwen2_5OmniVisionEncoder.permute_input_for_window_attn",
    "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel.permute_input_for_window_attn",
    model_change="unflatten and flatten the first axis, in place of reshape with -1 and the length",
)
def _patch_window_order(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reshaped to sizes that are divided and multiplied again, the length is an expression without an upper bound, and
    ExecuTorch plans memory for the traced one."""

    def permute(self: Any, input_tensor: torch.Tensor, window_index: torch.Tensor, seq_len: Any) -> torch.Tensor:
        unit, width = self.spatial_merge_unit, input_tensor.shape[1:].numel()
        merged = input_tensor.reshape(-1, unit * width).index_select(0, window_index)
        return merged.reshape(window_index.shape[0] * unit, width)

    return permute
