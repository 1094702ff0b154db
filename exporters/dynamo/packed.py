"""Images packed into one sequence: attention within each of them, and features that stay packed.

Model patches, since what they replace hangs on the model at hand.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from exporters.registry import register_model_patch, register_patch, replaced

#: transformers hands ``cu_seqlens`` to an attention function whose name has "flash" in it, and else splits by them.
_PACKED = "flash_packed_by_mask"

_FEATURES = re.compile(r"get_(image|video|audio)_features")


@register_model_patch(
    "dynamo", model_change="attend once, under a mask made from cu_seqlens, in place of a loop over torch.split"
)
@contextmanager
def _patch_packed_attention(model: torch.nn.Module) -> Iterator[int]:
    """Packed sequences are split by the values of cu_seqlens: how many parts there are is no size of a tensor."""
    modules = [module for module in model.modules() if _takes_lengths(module)]
    configs = {id(module.config): module.config for module in modules}
    if not modules:
        yield 0
        return
    from transformers.modeling_utils import AttentionInterface

    namespaces = {sys.modules[type(module).__module__] for module in model.modules()}
    namespaces.add(sys.modules.get("transformers.vision_utils", sys.modules[AttentionInterface.__module__]))
    with ExitStack() as stack:
        stack.enter_context(_registered(AttentionInterface, _attend_packed))
        for config in configs.values():
            stack.enter_context(replaced(config, "_attn_implementation_internal", _PACKED))
        for namespace in namespaces:
            if hasattr(namespace, "get_max_seqlen"):  # a mask needs no longest length, and the value is no constant
                stack.enter_context(replaced(namespace, "get_max_seqlen", _no_longest))
        yield len(modules)


def _takes_lengths(module: torch.nn.Module) -> bool:
    return "cu_seqlens" in inspect.signature(module.forward).parameters and hasattr(
        getattr(module, "config", None), "_attn_implementation_internal"
    )


@contextmanager
def _registered(interface: Any, function: Callable[..., Any]) -> Iterator[None]:
    interface.register(_PACKED, function)
    try:
        yield
    finally:
        interface._global_mapping.pop(_PACKED, None)


def _no_longest(cu_seqlens: Any, config: Any, kwargs: Any = None, kwarg_name: str = "max_seqlen") -> None:
    if kwargs is not None:
        kwargs.pop(kwarg_name, None)


def _attend_packed(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of packed sequences, each within itself.

    Shapes: query [1, heads, length, width], key and value [1, key heads, length, width], ``cu_seq_lens_q`` int [n + 1],
    where each of the n sequences begins and the last one ends. Returns [1, length, heads, width].
    """
    if cu_seq_lens_q is not None:
        attention_mask = same_sequence(cu_seq_lens_q, query.shape[2])
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    found = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling)
    return found.transpose(1, 2).contiguous(), None


def same_sequence(cu_seqlens: torch.Tensor, length: int) -> torch.Tensor:
    """Which of ``length`` packed positions belong together, bool, [1, 1, length, length].

    ``cu_seqlens``, int [n + 1]: where each of n sequences begins, and the last one ends.
    """
    positions = torch.arange(length, device=cu_seqlens.device)
    # All of cu_seqlens counts, the leading 0 too: without it, a single sequence would be a case of its own.
    sequence = (positions[:, None] >= cu_seqlens[None, :]).sum(-1)
    return (sequence[:, None] == sequence[None, :])[None, None]


@register_model_patch("dynamo", model_change="return the features of all images as one packed tensor")
@contextmanager
def _patch_packed_features(model: torch.nn.Module) -> Iterator[int]:
    """Features are cut into a list with an entry an image: as many outputs as there are images, which a graph cannot
    vary. They stay one tensor, the list's only entry."""
    owners = {
        (owner, name)
        for module in model.modules()
        for owner in type(module).__mro__
        for name in vars(owner)
        if _FEATURES.fullmatch(name)
    }
    with ExitStack() as stack:
        for owner, name in sorted(owners, key=lambda each: (each[0].__module__, each[0].__qualname__, each[1])):
            stack.enter_context(replaced(owner, name, _staying_packed(getattr(owner, name))))
        yield len(owners)


def _staying_packed(getter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(getter)
    def packed(*args: Any, **named: Any) -> Any:
        with ExitStack() as stack:
            for owner, name, make in _CUTS:
                stack.enter_context(replaced(owner, name, make(getattr(owner, name))))
            return getter(*args, **named)

    return packed


def _in_getter() -> bool:
    """Whether the caller's caller is the code of a features getter itself, not of a module that it calls."""
    return _FEATURES.fullmatch(sys._getframe(2).f_code.co_name) is not None


def _uncut(original: Callable[..., Any]) -> Callable[..., Any]:
    def split(tensor: torch.Tensor, sizes: Any, dim: int = 0) -> Any:
        if _in_getter() and dim == 0:
            return (tensor.reshape(-1, tensor.shape[-1]),)
        return original(tensor, sizes, dim)

    return split


def _whole(original: Callable[..., Any]) -> Callable[..., Any]:
    def iterate(tensor: torch.Tensor) -> Any:
        if _in_getter() and tensor.dim() > 2:
            return iter((tensor.reshape(-1, tensor.shape[-1]),))
        return original(tensor)

    return iterate


def _one(original: Callable[..., Any]) -> Callable[..., Any]:
    """``list(tensor)`` asks for the length first, which must be a number."""

    def length(tensor: torch.Tensor) -> int:
        return 1 if _in_getter() and tensor.dim() > 2 else original(tensor)

    return length


class _Size(tuple[Any, ...]):
    """A tensor's sizes, whose product may be symbolic: ``torch.Size.numel`` makes a number of it."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _Size(found) if isinstance(index, slice) else found

    def numel(self) -> Any:
        return math.prod(self)


def _symbolic(original: Any) -> Any:
    def sizes(tensor: torch.Tensor) -> Any:
        found = original.__get__(tensor)
        return _Size(found) if _in_getter() else found

    return property(sizes)


def _unread(original: Callable[..., Any]) -> Callable[..., Any]:
    def tolist(tensor: torch.Tensor) -> Any:
        return tensor if _in_getter() else original(tensor)

    return tolist


#: How getters cut: ``torch.split`` by sizes that ``tolist`` reads, and ``list(tensor)``.
_CUTS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (torch, "split", _uncut),
    (torch.Tensor, "split", _uncut),
    (torch.Tensor, "tolist", _unread),
    (FakeTensor, "tolist", _unread),
    (torch.Tensor, "__iter__", _whole),
    (torch.Tensor, "__len__", _one),
    (torch.Tensor, "shape", _symbolic),
)


@register_patch(
    "dynamo",
    "torch.Tensor.masked_scatter",
    model_change="gather features by how many placeholders come before each token, and choose with torch.where",
)
def _patch_masked_scatter(original: Callable[..., Any]) -> Callable[..., Any]:
    """How many features are used is told by values, and the runtimes copy them element by element; a gather of whole
    rows does the same."""

    def masked_scatter(tensor: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 2 or not statically_known_true(mask.stride(-1) == 0 or mask.shape[-1] == 1):
            return original(tensor, mask, source)
        return merged_rows(tensor, mask[..., 0], source)

    return masked_scatter


def merged_rows(tensor: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """``tensor`` [..., width] with the rows of ``source``, in their order, wherever ``mask`` (bool, [...]) is true."""
    width = tensor.shape[-1]
    mask = mask.expand(tensor.shape[:-1]).reshape(-1)
    place = (mask.long().cumsum(0) - 1).clamp(min=0)
    rows = source.reshape(-1, width)
    # A place past the last row belongs to no placeholder: the model checks that there are as many as features.
    found = rows.index_select(0, place.clamp(max=rows.shape[0] - 1))
    return torch.where(mask[:, None], found.to(tensor.dtype), tensor.reshape(-1, width)).reshape(tensor.shape)
