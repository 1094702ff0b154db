"""Input preparers: values that a graph cannot compute, made outside it from the inputs that tell of them.

How many patches each image has, or where a window begins, decides sizes; a graph cannot decide sizes by values. The
models that need such values (position ids, ``cu_seqlens``, window indices, weights of an interpolation) compute them in
helpers that first look whether a caller has them already. A preparer asks the model for all that it would compute in
this way, and the graph then takes them as inputs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporters.registry import Hits, Workaround, register_export_input_preparer, replaced, workarounds


def prepare_export_inputs(
    model: Any, inputs: Mapping[str, Any], *, hits: Hits | None = None, disabled: Collection[str] = ()
) -> dict[str, Any]:
    """The inputs, and what the registered preparers add to them.

    Args:
        model: the model that was exported, or one of the same class and settings without weights.
        inputs: keyword arguments of its forward. What a preparer would make and is given already stays as it is.
        hits: where the preparers that added something are counted.
        disabled: ids of preparers to leave out.

    Raises:
        RuntimeError: a preparer failed. TypeError: it returned no mapping.
    """
    prepared = dict(inputs)
    for preparer in workarounds("dynamo", kind="input_preparer", disabled=disabled):
        if any(prepared.get(marker) is None for marker in preparer.targets):
            continue
        made = _made_by(preparer, model, prepared)
        # A value under the name of an input that is there takes its place, as numbers for a tensor of them.
        added = {name: value for name, value in made.items() if name in preparer.targets or prepared.get(name) is None}
        prepared.update(added)
        if hits is not None and added:
            hits.add(preparer)
    return prepared


def _made_by(preparer: Workaround, model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a preparer returns. It gets tensors of its own, in which it may write."""
    own = pytree.tree_map_only(torch.Tensor, torch.clone, dict(inputs))
    try:
        with torch.no_grad():
            made = preparer.function(model, own)
    except Exception as error:
        raise RuntimeError(f"input preparer {preparer.id} failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, Mapping):
        raise TypeError(f"input preparer {preparer.id} returned {made!r}, not a mapping of inputs")
    return made


def values_asked_for(model: torch.nn.Module, call: Callable[[], Any]) -> dict[str, Any]:
    """What the model's helpers compute, by the names under which they would take it from a caller, while ``call`` runs.

    Such a helper has a parameter ``kwargs``, the further arguments of its caller, from which it takes ("pops") what is
    there already. Without weights ``call`` gets as far as the first use of them, which comes after the helpers.
    """
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        for namespace, name, helper in _helpers(model):
            stack.enter_context(replaced(namespace, name, _recording(helper, found)))
        try:
            call()
        except Exception:
            if not found:
                raise
    return found


class _Asked(dict[str, Any]):
    """Arguments that remember what was taken, or looked for in vain."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.names: list[str] = []

    def pop(self, name: str, *default: Any) -> Any:
        self.names.append(name)
        return super().pop(name, *default)


def _helpers(model: torch.nn.Module) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """The helpers in the modules that define the model's classes: (module, name, function)."""
    namespaces = {sys.modules[type(module).__module__] for module in model.modules()}
    for namespace in sorted(namespaces, key=lambda each: each.__name__):
        for name, value in list(vars(namespace).items()):
            if inspect.isfunction(value) and _takes_from_caller(value):
                yield namespace, name, value


def _takes_from_caller(function: Callable[..., Any]) -> bool:
    parameter = inspect.signature(function).parameters.get("kwargs")
    return parameter is not None and parameter.kind is not inspect.Parameter.VAR_KEYWORD


def _recording(helper: Callable[..., Any], found: dict[str, Any]) -> Callable[..., Any]:
    signature = inspect.signature(helper)

    def recorded(*args: Any, **named: Any) -> Any:
        bound = signature.bind(*args, **named)
        given = bound.arguments.get("kwargs")
        asked = _Asked(given or {})
        bound.arguments["kwargs"] = asked
        value = helper(*bound.args, **bound.kwargs)
        names = list(dict.fromkeys(asked.names))
        values = value if isinstance(value, tuple) and len(names) > 1 else (value,)
        found.update({name: each for name, each in zip(names, values, strict=False) if each is not None})
        if given is not None:  # what was taken must not go on to where the arguments go next
            given.clear()
            given.update(asked)
        return value

    return recorded


def _of_encoder(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return values_asked_for(model, lambda: model(**inputs))


def _of_features(model: Any, inputs: Mapping[str, Any], modality: str) -> dict[str, Any]:
    """For an encoder inside a model, under the names that the model hands on to it: with the modality in front."""
    getter = features_getter(model, modality)
    if getter is None:
        return {}
    parameters = inspect.signature(getter).parameters
    given = {name: inputs[name] for name in parameters if inputs.get(name) is not None}
    open_ones = (name for name, each in parameters.items() if each.default is each.empty)
    needed = {name for name in open_ones if parameters[name].kind is not inspect.Parameter.VAR_KEYWORD}
    if not needed <= set(given):
        return {}  # a decode may still be handed the sizes of images that it does not see again
    found = values_asked_for(model, lambda: getter(**given))
    return {f"{modality}_{name}": value for name, value in found.items()}


def features_getter(model: Any, modality: str) -> Callable[..., Any] | None:
    """The model's own way to the features of an ``image``, a ``video`` or an ``audio``, or that of the model inside."""
    model = getattr(model, "exported_model", model)
    for owner in (getattr(model, "base_model", model), model):
        if callable(getter := getattr(owner, f"get_{modality}_features", None)):
            return getter
    return None


@register_export_input_preparer("grid_thw")
def _prepare_grid(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """A vision encoder of packed images: their lengths, positions and windows follow from the values of the grid."""
    return _of_encoder(model, inputs)


@register_export_input_preparer("image_grid_thw")
def _prepare_image_grid(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """As for a vision encoder, for the one inside a model that reads images."""
    return _of_features(model, inputs, "image")


@register_export_input_preparer("video_grid_thw")
def _prepare_video_grid(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """As for a vision encoder, for the one inside a model that reads videos."""
    return _of_features(model, inputs, "video")


@register_export_input_preparer("target_sizes")
def _prepare_target_sizes(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Images of their own sizes, packed: positions and windows follow from the values of the sizes."""
    if features_getter(model, "image") is not None:
        return _of_features(model, inputs, "image")
    return _of_encoder(model, inputs)


@register_export_input_preparer("image_sizes")
def _prepare_image_sizes(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Images are cut to sizes that are values of a tensor; as numbers the cuts are part of the graph."""
    sizes = inputs["image_sizes"]
    if not isinstance(sizes, torch.Tensor):
        return {}
    return {"image_sizes": [tuple(row) for row in sizes.tolist()]}


@register_export_input_preparer("input_features", "feature_lens")
def _prepare_audio_chunks(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """An audio encoder cuts recordings into chunks and packs them: how many there are follows from their lengths."""
    return _of_encoder(model, inputs)


@register_export_input_preparer("input_features", "input_features_mask")
def _prepare_masked_audio(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Recordings padded to one length, packed by an audio encoder: their lengths are values of the mask."""
    if features_getter(model, "audio") is not None:
        return _of_features(model, inputs, "audio")
    return _of_encoder(model, inputs)


@register_export_input_preparer("input_features", "feature_attention_mask")
def _prepare_audio_features(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """As for an audio encoder, for the one inside a model that listens."""
    return _of_features(model, inputs, "audio")


def rope_positions(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor | None:
    """Positions in time, height and width of every token, int64, [3, batch, length], as the model counts them; ``None``
    for a model that has no such way to count."""
    for owner in (model, getattr(model, "base_model", model)):
        if callable(getter := getattr(owner, "get_rope_index", None)):
            taken = inspect.signature(getter).parameters
            found: torch.Tensor = getter(**{name: inputs[name] for name in taken if inputs.get(name) is not None})[0]
            return found
    return None


def _positions(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    positions = rope_positions(model, inputs)
    return {} if positions is None else {"position_ids": positions}


@register_export_input_preparer("input_ids", "mm_token_type_ids", "image_grid_thw")
def _prepare_image_positions(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Positions of text and images in turn are counted in a loop over the values of the tokens' kinds."""
    return _positions(model, inputs)


@register_export_input_preparer("input_ids", "mm_token_type_ids", "video_grid_thw")
def _prepare_video_positions(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """As for images, for text and videos in turn."""
    return _positions(model, inputs)
