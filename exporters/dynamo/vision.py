"""Stage ``model_patches`` for images: branches on an image's size, which would keep the graph at the traced size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import infer_size, is_contiguous_or_false, make_contiguous_strides_for
from torch.overrides import TorchFunctionMode

from exporters.registry import register_patch, replaced


def _paths(template: str, modules: dict[str, str]) -> tuple[str, ...]:
    """``template`` with the class prefix of each ``module: prefix`` put in, below ``transformers.models``."""
    return tuple(f"transformers.models.{module}.{template.format(prefix)}" for module, prefix in modules.items())


#: Networks that attend in windows, by module: the prefix of their classes.
_SWIN = {
    "swin.modeling_swin": "Swin",
    "swinv2.modeling_swinv2": "Swinv2",
    "swin2sr.modeling_swin2sr": "Swin2SR",
    "donut.modeling_donut_swin": "DonutSwin",
    "maskformer.modeling_maskformer_swin": "MaskFormerSwin",
    "clap.modeling_clap": "ClapAudio",
}
_WINDOW_LAYERS = {**_SWIN, "dinat.modeling_dinat": "Dinat"}
_PATCHED = {module: prefix for module, prefix in _SWIN.items() if prefix not in ("Swin2SR", "ClapAudio")}
_EMBEDDINGS = {
    "beit.modeling_beit": "Beit",
    "blip.modeling_blip": "BlipVision",
    "blip_2.modeling_blip_2": "Blip2Vision",
    "clip.modeling_clip": "CLIPVision",
    "clipseg.modeling_clipseg": "CLIPSegVision",
    "deit.modeling_deit": "DeiT",
    "dinov2.modeling_dinov2": "Dinov2",
    "dinov2_with_registers.modeling_dinov2_with_registers": "Dinov2WithRegisters",
    "instructblip.modeling_instructblip": "InstructBlipVision",
    "owlvit.modeling_owlvit": "OwlViTVision",
    "owlv2.modeling_owlv2": "Owlv2Vision",
    "siglip.modeling_siglip": "SiglipVision",
    "vit.modeling_vit": "ViT",
    "vit_mae.modeling_vit_mae": "ViTMAE",
    "vit_msn.modeling_vit_msn": "ViTMSN",
    "vivit.modeling_vivit": "Vivit",
    **_PATCHED,
}


def _vary(*sizes: Any) -> bool:
    """Whether any of ``sizes`` is a symbol of the trace."""
    return any(isinstance(size, torch.SymInt) for size in sizes)


@register_patch(
    "dynamo",
    *_paths("{}Embeddings.interpolate_pos_encoding", _EMBEDDINGS),
    model_change="interpolate position embeddings at every size while torch.compiler.is_exporting()",
)
def _patch_position_interpolation(original: Callable[..., Any]) -> Callable[..., Any]:
    """At its own image size a model skips the interpolation, and a graph traced there fits no other size.

    The models know one kind of trace, ``torch.jit``'s, in which they interpolate always; at the own size that is the
    identity.
    """

    def interpolate(self: Any, embeddings: Any, height: Any, width: Any) -> Any:
        if not _vary(height, width):
            return original(self, embeddings, height, width)
        with replaced(torch.jit, "is_tracing", lambda: True):
            return original(self, embeddings, height, width)

    return interpolate


def _padded(tensor: torch.Tensor, height: Any, width: Any, multiples: tuple[int, int], last: bool) -> torch.Tensor:
    """``tensor`` with zeros below and to the right, up to ``multiples`` of height and width, which are its two axes
    before the last where ``last`` is set, else its last two. No branch depends on whether there is anything to pad."""
    below, right = ((size + of - 1) // of * of - size for size, of in zip((height, width), multiples, strict=True))
    return torch.nn.functional.pad(tensor, (0, 0, 0, right, 0, below) if last else (0, right, 0, below))


@register_patch(
    "dynamo",
    *_paths("{}Layer.maybe_pad", _WINDOW_LAYERS),
    model_change="cut a window layer's output to its input's size without asking whether it was padded",
)
def _patch_window_padding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whether windows need padding is a branch that keeps the graph at sizes which need it, or at those which don't.

    Says that they do, so that the padding, of zero or more positions, is always cut off again.
    """

    def maybe_pad(self: Any, hidden_states: Any, height: Any, width: Any) -> Any:
        if not _vary(height, width):
            return original(self, hidden_states, height, width)
        window = self.window_size
        return _padded(hidden_states, height, width, (window, window), last=True), (0, 0, 0, 1, 0, 1)

    return maybe_pad


@register_patch(
    "dynamo",
    *_paths("{}Layer.forward", _WINDOW_LAYERS),
    model_change="none needed: torch takes minutes, and keeps the graph at sizes it need not keep",
)
def _patch_window_layer(original: Callable[..., Any]) -> Callable[..., Any]:
    """Cutting the padding off keeps the graph at sizes without any, and torch reasons about each view for seconds.

    A cut-out is contiguous where nothing is cut off, which torch's trace takes for a branch: the rows and columns to
    keep are gathered instead. Views of contiguous tensors are not matched size by size.
    """

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # a strict trace would have to trace what is put in place here
            return original(self, *args, **kwargs)
        with (
            Gathering(),
            replaced(torch._refs, "_reshape_view_helper", _viewing(torch._refs._reshape_view_helper)),
        ):
            return original(self, *args, **kwargs)

    return forward


def _viewing(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch's rule for the sizes and strides of a view, but a contiguous tensor takes any shape of as many elements."""

    def view(tensor: torch.Tensor, *shape: Any, allow_copy: bool) -> Any:
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, torch.SymInt)) else shape
        if not _vary(*sizes, *tensor.shape) or tensor.dim() == 0 or not is_contiguous_or_false(tensor):
            return original(tensor, *shape, allow_copy=allow_copy)
        sizes = infer_size(sizes, tensor.numel())
        torch._check(tensor.numel() == math.prod(sizes))
        return torch.as_strided(tensor, sizes, make_contiguous_strides_for(sizes))

    return view


class Gathering(TorchFunctionMode):
    """While entered, slices of a tensor up to a varying size become gathers.

    Not by a replaced ``Tensor.__getitem__``: that makes a sequence of the type for good, and then ``torch.tensor`` asks
    the numbers in a list for their length.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.__getitem__:
            args = _gathered(*args)
        return func(*args, **(kwargs or {}))


def _gathered(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """``tensor`` and ``index``, after the slices of ``index`` up to a varying size."""
    if not (isinstance(index, tuple) and all(isinstance(part, slice) for part in index)):
        return tensor, index
    kept: list[slice] = []
    for axis, part in enumerate(index):
        stop: Any = part.stop
        if _vary(stop) and part.start is None and part.step is None:
            tensor = tensor.index_select(axis, torch.arange(stop, device=tensor.device))
            kept.append(slice(None))
        else:
            kept.append(part)
    return tensor, tuple(kept)


@register_patch(
    "dynamo",
    *_paths("{}PatchMerging.maybe_pad", _SWIN),
    model_change="pad an odd height or width without asking whether it is odd",
)
def _patch_merging_padding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whether a side is odd is a branch that keeps the graph at sizes of one parity."""

    def maybe_pad(self: Any, input_feature: Any, height: Any, width: Any) -> Any:
        if not _vary(height, width):
            return original(self, input_feature, height, width)
        return _padded(input_feature, height, width, (2, 2), last=True)

    return maybe_pad


@register_patch(
    "dynamo",
    *_paths("{}PatchEmbeddings.maybe_pad", {**_PATCHED, "focalnet.modeling_focalnet": "FocalNet"}),
    model_change="pad images to whole patches without asking whether they need it",
)
def _patch_patch_padding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whether an image has only whole patches is a branch that keeps the graph at images which do, or don't."""

    def maybe_pad(self: Any, pixel_values: Any, height: Any, width: Any) -> Any:
        if not _vary(height, width):
            return original(self, pixel_values, height, width)
        return _padded(pixel_values, height, width, self.patch_size, last=False)

    return maybe_pad


@register_patch(
    "dynamo",
    *_paths("window_partition", dict.fromkeys(_SWIN, "")),
    model_change="give the view every size in place of -1",
)
def _patch_window_partition(original: Callable[..., Any]) -> Callable[..., Any]:
    """The number of windows as a quotient of products takes sympy minutes to simplify; as a product it is there."""

    def window_partition(input_feature: Any, window_size: int) -> Any:
        batch, height, width, channels = input_feature.shape
        if not _vary(height, width):
            return original(input_feature, window_size)
        down, across = height // window_size, width // window_size
        split = input_feature.view(batch, down, window_size, across, window_size, channels)
        return split.transpose(2, 3).reshape(batch * down * across, window_size, window_size, channels)

    return window_partition


@register_patch(
    "dynamo",
    *_paths("window_reverse", dict.fromkeys(_SWIN, "")),
    model_change="give the view every size in place of -1",
)
def _patch_window_reverse(original: Callable[..., Any]) -> Callable[..., Any]:
    """The batch as a quotient of products takes sympy minutes to simplify, in each view anew; here it is done once."""

    def window_reverse(windows: Any, window_size: int, height: Any, width: Any) -> Any:
        if not _vary(height, width):
            return original(windows, window_size, height, width)
        channels = windows.shape[-1]
        down, across = height // window_size, width // window_size
        batch = windows.shape[0] // (down * across)
        split = windows.view(batch, down, across, window_size, window_size, channels)
        return split.transpose(2, 3).reshape(batch, down * window_size, across * window_size, channels)

    return window_reverse


# An image no larger than a window is not shifted. In its place a shift of zero: the number of positions is computed in
# the graph, an int64 tensor of one element.


@register_patch(
    "dynamo",
    "transformers.models.swin.modeling_swin.SwinLayer.set_shift_and_window_size",
    model_change="compute the shift from the image's size without a branch",
)
def _patch_shift_and_window(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whether the image is larger than a window, and which side is shorter, are branches that keep the graph there.

    The window keeps its size: eager refuses smaller images.
    """

    def set_shift_and_window_size(self: Any, input_resolution: Any) -> None:
        if not _vary(*input_resolution):
            original(self, input_resolution)
        elif isinstance(self.shift_size, int) and self.shift_size > 0:
            height, width = (torch.arange(size)[-1:] for size in input_resolution)
            larger = (height >= self.window_size) & (width >= self.window_size)
            self.shift_size = larger.long() * self.shift_size

    return set_shift_and_window_size


@register_patch(
    "dynamo",
    "transformers.models.swin.modeling_swin.SwinLayer.cyclic_shift",
    model_change="compute the shift from the image's size without a branch",
)
def _patch_cyclic_shift(original: Callable[..., Any]) -> Callable[..., Any]:
    """Positions are gathered where the graph computes by how many they are shifted."""

    def cyclic_shift(self: Any, hidden_states: Any, reverse: bool = False) -> Any:
        if isinstance(self.shift_size, int):
            return original(self, hidden_states, reverse=reverse)
        for axis in (1, 2):
            size = hidden_states.shape[axis]
            places = torch.arange(size)
            places = places + (size - self.shift_size if reverse else self.shift_size)
            hidden_states = hidden_states.index_select(axis, torch.where(places >= size, places - size, places))
        return hidden_states

    return cyclic_shift


@register_patch(
    "dynamo",
    "transformers.models.swin.modeling_swin.SwinLayer.get_attn_mask",
    model_change="compute the shift from the image's size without a branch",
)
def _patch_shifted_mask(original: Callable[..., Any]) -> Callable[..., Any]:
    """The mask of a shift that the graph computes; without one it is all zeros."""

    def get_attn_mask(self: Any, height: Any, width: Any, dtype: Any, device: Any) -> Any:
        if isinstance(self.shift_size, int):
            return original(self, height, width, dtype, device)
        window = self.window_size
        regions = []
        for size in (height, width):
            places = torch.arange(size, device=device)
            regions.append((places >= size - window).long() + (places >= size - self.shift_size).long())
        image = regions[0][:, None] * 3 + regions[1][None, :]
        windows = image.view(height // window, window, width // window, window).transpose(1, 2)
        windows = windows.reshape(-1, window * window)
        return torch.where(windows.unsqueeze(1) == windows.unsqueeze(2), 0.0, -100.0).to(dtype)

    return get_attn_mask
