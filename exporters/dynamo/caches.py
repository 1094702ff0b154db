"""Stage ``pytree``, cache layers: what of a layer goes into a graph, and layer code that bakes no length in.

Most layers hold nothing but tensors, which are the leaves. Three things do not fit:

- a Python counter (how many tokens a sliding window has seen) would be baked in; it becomes a 0-d int64 leaf,
- a tensor that repeats a plain attribute is no state; it is made anew,
- code that asks whether a window is full takes one branch for good; it is replaced by code that is right for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from exporters.registry import register_patch

#: Attributes that count tokens in a Python int, by the class of layer that has them.
_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "DynamicSlidingWindowLayer": ("cumulative_length",),
    "StaticSlidingWindowLayer": ("cumulative_length_int",),
}

#: Tensor attributes that repeat a plain one of the same layer, and which.
_REPEATED: Mapping[str, str] = {"_sliding_window_tensor": "sliding_window"}

#: Classes of layers that write into their tensors instead of replacing them.
_WRITTEN_IN_PLACE = ("StaticLayer", "LinearAttentionCacheLayerMixin")


def cache_layers(value: Any) -> list[Any]:
    """The layers of a transformers cache, both halves' of an encoder-decoder's; none for anything else."""
    from transformers.cache_utils import Cache

    if not isinstance(value, Cache):
        return []
    halves = [half for half in vars(value).values() if isinstance(half, Cache)]
    return [layer for half in halves for layer in cache_layers(half)] if halves else list(value.layers)


def counters(kind: type[Any]) -> tuple[str, ...]:
    """The attributes of a class of cache layers that count tokens."""
    return tuple(name for base in kind.__mro__ for name in _COUNTERS.get(base.__name__, ()))


def layer_attributes(value: Any) -> dict[str, Any]:
    """The attributes that describe an object; of a cache layer without those that repeat others."""
    return {name: item for name, item in vars(value).items() if name not in _REPEATED}


def complete_layer(layer: Any) -> None:
    """Make the attributes again that `layer_attributes` left out."""
    for name, source in _REPEATED.items():
        if hasattr(layer, source):
            setattr(layer, name, torch.tensor(getattr(layer, source)))


def counter_leaf(counter: int | torch.Tensor) -> torch.Tensor:
    """A counter as a leaf: 0-d, int64."""
    return counter if isinstance(counter, torch.Tensor) else torch.tensor(counter)


def counter_from_leaf(leaf: torch.Tensor) -> int | torch.Tensor:
    """The inverse of `counter_leaf`; inside a trace the counter stays a tensor."""
    return int(leaf) if type(leaf) is torch.Tensor and leaf.dim() == 0 else leaf


def axis_limits(cache: Any) -> dict[int, dict[int, Any]]:
    """What a cache's layers say of their axes: an upper bound, or ``Dim.STATIC``; by the id of a tensor and axis.

    A sliding window keeps one token less than it is wide; the sizes of a state and of a static cache never change.
    """
    limits: dict[int, dict[int, Any]] = {}
    for layer in cache_layers(cache):
        kinds = {base.__name__ for base in type(layer).__mro__}
        states = (getattr(layer, "conv_states", None), getattr(layer, "recurrent_states", None))
        fixed = states if "DynamicLayer" in kinds else layer_attributes(layer)
        for tensor in pytree.tree_leaves(fixed):
            if isinstance(tensor, torch.Tensor):
                limits[id(tensor)] = dict.fromkeys(range(1, tensor.dim()), Dim.STATIC)
        if "DynamicSlidingWindowLayer" in kinds:
            limits |= {id(tensor): {2: layer.sliding_window - 1} for tensor in (layer.keys, layer.values)}
    return limits


def kept_apart(value: Any) -> Any:
    """A cache whose layers write into their tensors with copies of them, so that a graph leaves its inputs alone."""
    in_place = any(base.__name__ in _WRITTEN_IN_PLACE for layer in cache_layers(value) for base in type(layer).__mro__)
    return pytree.tree_map_only(torch.Tensor, torch.clone, value) if in_place else value


def _last(tensor: torch.Tensor, length: Any) -> torch.Tensor:
    """The last ``length`` entries of axis 2.

    By index, since a slice has strides that torch.export compares, and so fixes the length.
    """
    index = torch.arange(length, device=tensor.device) + (tensor.shape[2] - length)
    return tensor.index_select(2, index)


@register_patch(
    "dynamo",
    "transformers.cache_utils.DynamicSlidingWindowLayer.update",
    model_change="count a sliding layer's tokens in a tensor, and cut its window without asking whether it is full",
)
def _patch_sliding_update(original: Callable[..., Any]) -> Callable[..., Any]:
    """A sliding layer's counter is baked in, and its window is cut as the traced length asks for."""

    def update(self: Any, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.record_past:
            return original(self, keys, values, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        self.cumulative_length = self.cumulative_length + torch.full((), keys.shape[2], device=keys.device)
        keys = torch.cat([self.keys, keys], dim=2)
        values = torch.cat([self.values, values], dim=2)
        kept = torch.sym_min(keys.shape[2], self.sliding_window - 1)
        self.keys, self.values = _last(keys, kept), _last(values, kept)
        return keys, values

    return update


@register_patch(
    "dynamo",
    "transformers.cache_utils.DynamicSlidingWindowLayer.get_mask_sizes",
    model_change="take the mask's length from the cached keys",
)
def _patch_sliding_mask_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The mask's length and offset depend on whether the window is full, which a trace decides for good."""

    def get_mask_sizes(self: Any, query_length: int) -> tuple[Any, Any]:
        if not isinstance(self.cumulative_length, torch.Tensor):
            return tuple(original(self, query_length))
        cached = self.keys.shape[2]
        return cached + query_length, self.cumulative_length - cached

    return get_mask_sizes


@register_patch(
    "dynamo",
    "transformers.masking_utils.prepare_padding_mask",
    model_change="let the padding mask be as long as the tokens that were seen",
)
def _patch_padding_mask(original: Callable[..., Any]) -> Callable[..., Any]:
    """Asking whether the mask is too short bounds the lengths, and cannot be asked where the offset is a tensor."""

    def prepare_padding_mask(attention_mask: Any, kv_length: Any, kv_offset: Any) -> Any:
        if attention_mask is None or isinstance(kv_offset, torch.Tensor):
            return attention_mask
        missing = kv_length + kv_offset - attention_mask.shape[-1]
        if isinstance(missing, torch.SymInt) and missing.node.hint == 0:
            return attention_mask  # a shorter mask than the sample's then fails, as one that leaves out tokens
        return original(attention_mask, kv_length, kv_offset)

    return prepare_padding_mask


@register_patch(
    "dynamo",
    "transformers.masking_utils._ignore_causal_mask_sdpa",
    upstream="https://github.com/pytorch/pytorch/issues/108108",
)
def _patch_causal_skip(original: Callable[..., Any]) -> Callable[..., Any]:
    """Leaving a mask away is right for the traced lengths only, and asking for it compares lengths."""

    def ignore_causal_mask_sdpa(*args: Any, **kwargs: Any) -> bool:
        return False

    return ignore_causal_mask_sdpa


@register_patch(
    "dynamo",
    "transformers.cache_utils.LinearAttentionLayer.update_conv_state",
    model_change="pad the state of a convolution without asking whether the prompt is shorter",
)
def _patch_conv_state(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whether a prompt is shorter than the convolution is asked at the traced length, and the answer kept."""

    def update_conv_state(
        self: Any, conv_states: torch.Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **kwargs: Any
    ) -> Any:
        """conv_states: (batch, channels, tokens)."""
        if conv_kernel_size is None or self.record_past or self.has_previous_state[state_idx]:
            return original(self, conv_states, state_idx, conv_kernel_size=conv_kernel_size, **kwargs)
        if not self.is_conv_states_initialized[state_idx]:
            self.lazy_initialization(conv_states=conv_states, state_idx=state_idx, conv_kernel_size=conv_kernel_size)
        self.has_previous_state[state_idx] = True
        padded = torch.nn.functional.pad(conv_states, (conv_kernel_size, 0))
        self.conv_states[state_idx] = _last(padded, conv_kernel_size)
        return conv_states  # zeros before the first token change nothing that a causal convolution gives for it

    return update_conv_state


@register_patch(
    "dynamo",
    "transformers.cache_utils.StaticSlidingWindowLayer.update",
    upstream="https://github.com/huggingface/transformers/issues/44609",
)
def _patch_static_sliding_update(original: Callable[..., Any]) -> Callable[..., Any]:
    """A static sliding layer counts in an int and takes one branch for good.

    One token goes to the end of the window, after the others moved up if it is full. Several are taken for a prompt:
    the window is empty before them.
    """

    def update(self: Any, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen, window, tokens = self.cumulative_length_int, self.max_cache_len, keys.shape[2]
        if not isinstance(seen, torch.Tensor):
            return original(self, keys, values, *args, **kwargs)
        self.cumulative_length_int = seen + tokens
        fits = self.cumulative_length_int <= window
        self.cumulative_length = torch.where(fits, self.cumulative_length + tokens, self.cumulative_length)
        if isinstance(tokens, int) and tokens == 1:
            place = seen.clamp(max=window - 1).reshape(1)
            for name, new in (("keys", keys), ("values", values)):
                cached = getattr(self, name)
                moved = torch.where(fits, cached, cached.roll(-1, 2))
                setattr(self, name, moved.index_copy(2, place, new))
            return self.keys, self.values
        dropped = tokens - torch.sym_min(tokens, window)
        index = torch.arange(window, device=keys.device) + dropped
        for name, new in (("keys", keys), ("values", values)):
            room = torch.zeros_like(getattr(self, name))
            setattr(self, name, torch.cat([new, room], dim=2).index_select(2, index))
        return keys, values

    return update


@register_patch(
    "dynamo",
    "transformers.cache_utils.StaticSlidingWindowLayer.get_mask_sizes",
    upstream="https://github.com/huggingface/transformers/issues/44609",
)
def _patch_static_sliding_mask_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The mask's length and offset depend on whether the window is full, which a trace decides for good."""

    def get_mask_sizes(self: Any, query_length: Any) -> tuple[Any, Any]:
        seen = self.cumulative_length_int
        if not isinstance(seen, torch.Tensor):
            return tuple(original(self, query_length))
        if isinstance(query_length, int) and query_length == 1:
            return self.max_cache_len, (seen - self.max_cache_len + 1).clamp(min=0)
        return query_length, torch.zeros_like(seen)

    return get_mask_sizes
