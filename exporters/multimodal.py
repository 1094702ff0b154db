"""Steps of generation for a model that merges pictures or sound into its text.

In place of the prefill there are the parts of it, found by the model's own accessors: an encoder for each modality
(``get_image_features`` and its siblings), a projector between encoder and features, the embedding of tokens
(``get_input_embeddings``), the language model (``base_model``) on merged embeddings, and the head. The loop merges and
reckons positions between them (`exporters.runtime.prompts`). That the parts together give what the model gives is
checked before anything is exported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from exporters.dynamo.caches import cache_layers
from exporters.inputs import features_getter, rope_positions
from exporters.leaves import named_leaves
from exporters.registry import replaced
from exporters.runtime.prompts import Medium, Positions, merge_features, positions_of, without_placeholders

#: Modalities by the step that encodes them.
ENCODERS = {"vision_encoder": "image", "video_encoder": "video", "audio_encoder": "audio"}

#: Names of a modality's placeholder in configurations.
_TOKENS = ("{}_token_id", "{}_token_index")

#: Names of the module between encoder and language model; no accessor leads to it.
_PROJECTORS = ("multi_modal_projector", "connector", "aligner")

#: How far the logits of the parts together may lie from the model's.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Parts:
    """The steps in place of a prefill as (module, inputs), and what the loop needs to join them."""

    steps: dict[str, tuple[torch.nn.Module, dict[str, Any]]]
    media: tuple[Medium, ...]


def media_of(model: Any, inputs: Mapping[str, Any]) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """The encoders that ``inputs`` are for, by step: the getter of their features and its arguments."""
    found = {}
    for step, modality in ENCODERS.items():
        getter = features_getter(model, modality)
        if getter is None:
            continue
        taken = inspect.signature(getter).parameters
        given = {name: inputs[name] for name in taken if inputs.get(name) is not None}
        named = (each for each in taken.values() if each.kind is each.POSITIONAL_OR_KEYWORD)
        if given and all(each.name in given or each.default is not each.empty for each in named):
            found[step] = (getter, given)
    return found


class Part(torch.nn.Module):
    """A part of a model's forward as a module with parameters of the given names."""

    def __init__(self, model: Any, names: Collection[str]) -> None:
        super().__init__()
        self.exported_model = model
        run = self.forward

        def forward(**inputs: Any) -> dict[str, Any]:
            return run(**inputs)

        kinds = inspect.Parameter
        parameters = [kinds(name, kinds.KEYWORD_ONLY) for name in names]
        forward.__signature__ = inspect.Signature([*parameters, kinds("made", kinds.VAR_KEYWORD)])  # type: ignore[attr-defined]
        self.forward = forward
        self.eval()


class _Encoder(Part):
    """A modality's inputs to ``features`` (places, width), or to what its projector takes."""

    def __init__(self, model: Any, names: Collection[str], modality: str, projector: str | None) -> None:
        super().__init__(model, names)
        self.modality = modality
        self.projector = projector

    def forward(self, **inputs: Any) -> dict[str, Any]:
        getter = features_getter(self.exported_model, self.modality)
        assert getter is not None
        if self.projector is None:
            return {"features": packed(getter(**inputs))}
        reached: list[Any] = []

        def keep(value: Any) -> Any:
            reached.append(value)
            return value

        with replaced(getattr(self.exported_model.base_model, self.projector), "forward", keep):
            getter(**inputs)
        return {"hidden": reached[0]}


class _Projector(Part):
    """What an encoder gives to ``features`` (places, width)."""

    def __init__(self, model: Any, projector: str) -> None:
        super().__init__(model, ["hidden"])
        self.projector = projector

    def forward(self, hidden: torch.Tensor) -> dict[str, Any]:
        found = getattr(self.exported_model.base_model, self.projector)(hidden)
        return {"features": found.reshape(-1, found.shape[-1])}


class _Embedding(Part):
    """Token ids (batch, length) to ``inputs_embeds`` (batch, length, width)."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, ["input_ids"])

    def forward(self, input_ids: torch.Tensor) -> dict[str, Any]:
        return {"inputs_embeds": self.exported_model.get_input_embeddings()(input_ids)}


class _LanguageModel(Part):
    """Merged embeddings to ``last_hidden_state`` (batch, length, width) and a cache."""

    def forward(self, **inputs: Any) -> dict[str, Any]:
        found = self.exported_model.base_model(**inputs, use_cache=True, return_dict=True)
        caches = {name: value for name, value in found.items() if cache_layers(value)}
        return {"last_hidden_state": found.last_hidden_state, **caches}


class _Head(Part):
    """All of the forward that comes after the language model: (batch, tokens, width) to ``logits``."""

    def __init__(self, model: Any, output_class: type) -> None:
        super().__init__(model, ["last_hidden_state"])
        self.output_class = output_class

    def forward(self, last_hidden_state: torch.Tensor) -> dict[str, Any]:
        def given(*args: Any, **inputs: Any) -> Any:
            return self.output_class(last_hidden_state=last_hidden_state)

        with replaced(self.exported_model.base_model, "forward", given):
            found = self.exported_model(inputs_embeds=last_hidden_state, use_cache=False, return_dict=True)
        return {"logits": found.logits}


def packed(found: Any) -> torch.Tensor:
    """The features that a getter returned, whatever it wraps them in, as one tensor, [places, width]."""
    features = getattr(found, "pooler_output", found)
    parts = list(features) if isinstance(features, list | tuple) else [features]
    rows = [part.reshape(-1, part.shape[-1]) for part in parts]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def split_prefill(model: Any, inputs: Mapping[str, Any], prefill: Mapping[str, Any]) -> Parts:
    """The parts that together do what the model's prefill does.

    Args:
        inputs: what ``generate`` was given. prefill: the arguments of the model's first forward, and of no cache.

    Raises:
        ValueError: the parts together do not give the model's logits.
    """
    steps: dict[str, tuple[torch.nn.Module, dict[str, Any]]] = {}
    media = []
    fed: set[str] = set()
    features = {}
    for step, (getter, given) in media_of(model, inputs).items():
        modality = ENCODERS[step]
        with torch.no_grad():
            features[step] = packed(getter(**given))
        projector, hidden = _find_projector(model, getter, given, features[step])
        steps[step] = (_Encoder(model, list(given), modality, projector), dict(given))
        if projector is not None:
            steps["multi_modal_projector"] = (_Projector(model, projector), {"hidden": hidden})
        media.append(Medium(step, _placeholder(model, modality), "multi_modal_projector" if projector else None))
        fed |= given.keys()
    ids = prefill["input_ids"]
    steps["embedding"] = (_Embedding(model), {"input_ids": without_placeholders(ids, media)})
    merged = model.get_input_embeddings()(steps["embedding"][1]["input_ids"]).detach()
    for medium in media:
        merged = merge_features(merged, ids, medium.token, features[medium.step])
    left_out = fed | {"input_ids", "mm_encoder_outputs"}
    others = {name: value for name, value in prefill.items() if name not in left_out and named_leaves({name: value})}
    language = _LanguageModel(model, ["inputs_embeds", *others])
    output_class, hidden_state = _checked(model, language, {"inputs_embeds": merged, **others}, prefill, inputs)
    steps["language_model"] = (language, {"inputs_embeds": merged, **others})
    steps["lm_head"] = (_Head(model, output_class), {"last_hidden_state": hidden_state[:, -1:]})
    return Parts(steps, tuple(media))


def _placeholder(model: Any, modality: str) -> int:
    for name in _TOKENS:
        token = getattr(model.config, name.format(modality), None)
        if token is not None:
            return int(token)
    raise ValueError(f"the config of {type(model).__name__} names no token that stands for its {modality} features")


def _find_projector(
    model: Any, getter: Callable[..., Any], given: Mapping[str, Any], features: torch.Tensor
) -> tuple[str | None, Any]:
    """The name of the module that makes ``features`` of one tensor, as the last thing on their way, and that tensor."""
    for name in _PROJECTORS:
        module = getattr(model.base_model, name, None)
        if not isinstance(module, torch.nn.Module):
            continue
        with torch.no_grad(), _watched(module) as calls:
            getter(**given)
        if len(calls) == 1 and isinstance(calls[0][0], torch.Tensor) and isinstance(calls[0][1], torch.Tensor):
            hidden, found = calls[0]
            if torch.equal(found.reshape(-1, found.shape[-1]), features):
                return name, hidden
    return None, None


@contextmanager
def _watched(module: torch.nn.Module) -> Iterator[list[tuple[Any, Any]]]:
    """The only positional argument of each call, or None, with what was returned."""
    calls: list[tuple[Any, Any]] = []

    def keep(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> None:
        calls.append((args[0] if len(args) == 1 and not kwargs else None, found))

    hook = module.register_forward_hook(keep, with_kwargs=True)
    try:
        yield calls
    finally:
        hook.remove()


def _checked(
    model: Any,
    language: _LanguageModel,
    merged: Mapping[str, Any],
    prefill: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> tuple[type, torch.Tensor]:
    """The class of what the language model returns, and its hidden state; raises where the head makes other logits of
    it than the model's own."""
    classes: list[type] = []

    def keep(module: Any, args: Any, found: Any) -> None:
        classes.append(type(found))

    hook = model.base_model.register_forward_hook(keep)
    try:
        with torch.no_grad():
            found = language(**merged)
            hidden = found["last_hidden_state"]
            logits = _Head(model, classes[0])(last_hidden_state=hidden[:, -1:])["logits"][:, -1]
            whole = {**prefill, **{name: inputs[name] for name in media_names(model, inputs)}}
            whole.pop("mm_encoder_outputs", None)
            expected = model(**whole).logits[:, -1]
    finally:
        hook.remove()
    error = float((logits - expected).abs().max())
    if not error <= _TOLERANCE:
        raise ValueError(
            f"{type(model).__name__} does more with its prompts than encode, merge and read them: the logits of the "
            f"parts differ from its own by {error:.2g}; export its forward with export() instead"
        )
    return classes[0], hidden.detach()


def media_names(model: Any, inputs: Mapping[str, Any]) -> list[str]:
    """The inputs that encoders take."""
    return [name for _, given in media_of(model, inputs).values() for name in given]


def positions_for(model: Any, inputs: Mapping[str, Any], planes: int) -> Positions:
    """How the model counts positions of these inputs, for a first axis of ``planes`` (0: plain positions)."""
    if not planes:
        return Positions()
    mask = inputs.get("attention_mask")
    mask = torch.ones_like(inputs["input_ids"]) if mask is None else mask
    if not media_names(model, inputs):  # all text
        return Positions(planes, positions_of(mask, mask.shape[1]).expand(3, -1, -1), mask)
    try:
        rope = rope_positions(model, inputs)
    except Exception as error:  # the model's own code refuses what does not fit in any way it likes
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{type(model).__name__} cannot count positions of these inputs ({reason}); pass all that its processor "
            "makes, mm_token_type_ids among it"
        ) from error
    if rope is None:
        raise ValueError(f"{type(model).__name__} counts positions in its own way, which the loop does not know yet")
    return Positions(planes, rope, mask)
