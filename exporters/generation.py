"""Stages of generation: the forward calls that ``generate`` really makes, as modules and inputs to export.

``generate`` is run once for a few tokens and its calls are recorded. A decoder-only model gives a prefill (the whole
prompt, no cache) and a decode (one token and a cache); an encoder-decoder an encoder before them. Each is exported with
the arguments it was called with. `exporters.runtime.generation` makes the same calls again. Of a model that merges
pictures or sound into its text, the prefill is split (`exporters.multimodal`). A model that leaves generation to one
inside it has that one's steps, after one that makes its prompt (`exporters.delegation`).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporters.delegation import Delegation, PromptEncoder, delegation_of, grows_with_text, unprompted_tokens
from exporters.dynamo.caches import cache_layers
from exporters.dynamo.pytree import register_cache_pytrees
from exporters.generation_settings import require_language, require_plain_greedy, settled
from exporters.leaves import named_leaves
from exporters.multimodal import media_of, positions_for, split_prefill
from exporters.registry import replaced
from exporters.runtime.generation import PROMPT_ENCODER
from exporters.runtime.prompts import Medium, Positions, filled_up

#: Arguments of the recorded calls that the loop can make again, besides caches.
_KNOWN = {"input_ids", "decoder_input_ids", "attention_mask", "position_ids", "encoder_outputs"}

#: The token arguments, which grow from step to step along their last axis.
_TOKENS = ("input_ids", "decoder_input_ids", "position_ids")

#: What a call reads tokens from.
_PROMPTS = ("decoder_input_ids", "input_ids", "inputs_embeds")

#: Arguments of generate that hold pictures or sound for an encoder to read.
_MEDIA = ("input_features", "input_values", "pixel_values")

#: Tokens that are generated to record the calls for them.
_RECORDED = 4

#: How far logits of several tokens decoded in one call may lie from those of one after the other.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Step:
    """One forward of generation: a module and the keyword arguments it is called with."""

    module: Any
    inputs: dict[str, Any]


@dataclass(frozen=True)
class Steps:
    """All steps by name, in the order they run, and what the loop needs beside them.

    Attributes:
        decoder: the model that makes the tokens: the model itself, or one inside it.
        settings: the ``generation_config`` of its ``generate``, None for its own.
        media: what the loop merges. planes: the first axis of positions in several planes (0: plain ones).
        start, unprompted: as in `exporters.runtime.generation.Ending`.
    """

    steps: dict[str, Step]
    decoder: Any
    settings: Any = None
    media: tuple[Medium, ...] = ()
    planes: int = 0
    start: tuple[int, ...] | None = None
    unprompted: tuple[int, ...] | None = None


def capture_steps(
    model: Any, inputs: Mapping[str, Any], generation_config: Any = None, *, multi_token_decode: bool = False
) -> Steps:
    """The forward calls of ``generate``: ``prefill`` and ``decode``, before them the ``encoder`` of an encoder-decoder.

    With pictures or sound for a decoder-only model, in place of the prefill: ``vision_encoder`` or ``audio_encoder``,
    ``multi_modal_projector`` where there is one, ``embedding``, ``language_model`` and ``lm_head``.

    Args:
        model: in eval mode.
        inputs: arguments of ``generate``: ``input_ids`` of at least two prompts of at least two tokens, with what a
            processor makes beside them; or what an encoder reads in their place.
        generation_config: settings of ``generate``, the model's own by default. With ``cache_implementation="static"``
            the cache has ``max_length`` places, which must be set.
        multi_token_decode: let ``decode`` take several tokens, not just one.

    Raises:
        ValueError: the model does not generate, its settings ask for more than the best token, or it decodes in a way
            that the loop cannot repeat.
    """
    if not callable(getattr(model, "generate", None)) or not model.can_generate():
        raise ValueError(f"{type(model).__name__} cannot generate; export its forward with export() instead")
    if settings := sorted(name for name, value in inputs.items() if not named_leaves({name: value})):
        raise ValueError(f"inputs hold {', '.join(settings)}, no tensor; settings go into the generation_config")
    with torch.no_grad():
        delegation = delegation_of(model, inputs)
    if delegation is not None:
        return _delegated(model, inputs, delegation, generation_config, multi_token_decode)
    config = settled(model, generation_config)
    require_plain_greedy(config)
    require_language(model, config)
    _require_prompts(model, inputs)
    return _captured(model, inputs, generation_config, config, multi_token_decode)


def _delegated(
    model: Any, inputs: Mapping[str, Any], delegation: Delegation, generation_config: Any, multi_token_decode: bool
) -> Steps:
    """The steps of the model that is handed on to, after one that makes its prompt."""
    decoder, prompt = delegation.delegate, delegation.prompt
    config = settled(decoder, generation_config)
    for name, value in delegation.settings.items():
        setattr(config, name, value)
    require_plain_greedy(config)
    if config.cache_implementation is not None:
        raise ValueError(f"{type(model).__name__} reads more than text, and then a static cache cannot be exported yet")
    if "input_ids" not in prompt and not decoder.config.is_encoder_decoder:
        raise ValueError(f"{type(model).__name__} hands on no input_ids, which the loop cannot go on from yet")
    if any(len(value) < 2 for value in prompt.values()):
        raise ValueError("give at least two sample prompts")
    if _length(prompt) == 1 and grows_with_text(model, inputs, prompt):
        raise ValueError(f"{type(model).__name__} leaves one token of the sample prompts; give longer ones")
    _require_mask(decoder, prompt.get("attention_mask"))
    captured = _captured(decoder, prompt, config, config, multi_token_decode)
    encoder = Step(PromptEncoder(model, list(inputs)), dict(inputs))
    return replace(
        captured, steps={PROMPT_ENCODER: encoder, **captured.steps}, unprompted=unprompted_tokens(model, inputs)
    )


def _length(call: Mapping[str, Any]) -> int:
    """How many tokens a call reads, 0 where it reads none."""
    return next((int(call[name].shape[1]) for name in _PROMPTS if name in call), 0)


def _captured(
    model: Any, inputs: Mapping[str, Any], generation_config: Any, config: Any, multi_token_decode: bool
) -> Steps:
    """The steps of a model that makes the tokens itself; ``config``: its settled ``generation_config``."""
    register_cache_pytrees(model)
    reads_media = not model.config.is_encoder_decoder and bool(media_of(model, inputs))
    if reads_media and config.cache_implementation is not None:
        raise ValueError(f"{type(model).__name__} reads more than text, and then a static cache cannot be exported yet")
    given = _with_padding(inputs, reads_media)
    recording = _record(model, given, config)
    if not recording.calls:
        raise ValueError(
            f"{type(model).__name__}.generate does not call the model's own forward; the loop cannot be made"
        )
    # After a prompt of one token, the first decode has a cache of length 1, which torch.export takes for fixed.
    first_decode = 2 if _length(recording.calls[0]) == 1 else 1
    if len(recording.calls) <= first_decode + 1:
        raise ValueError(f"{type(model).__name__}.generate called forward {len(recording.calls)} times for four tokens")
    prefill, decode = recording.calls[0], recording.calls[first_decode]
    _require_known_cache(model, decode)
    if _is_static(decode):
        prefill = prefill | {name: _emptied(value) for name, value in decode.items() if cache_layers(value)}
        prefill, decode = _with_whole_mask(prefill), _with_whole_mask(decode)
    known = _KNOWN | (set(given) if recording.encoder is not None else _unchanged(given, decode))
    decode = _without_idle(model, decode, known)
    if multi_token_decode:
        _require_no_static_window(model, decode)
        decode = _two_tokens(model, decode, recording.calls[first_decode + 1])
    start = None if recording.encoder is None else _start_of(model, prefill)
    if reads_media:
        planes = _planes(model, given, prefill, decode)
        parts = split_prefill(model, given, prefill)
        steps = {name: Step(module, arguments) for name, (module, arguments) in parts.steps.items()}
        _require_known_arguments(model, "prefill", steps["language_model"].inputs, {*known, *given, "inputs_embeds"})
        _require_known_arguments(model, "decode", decode, known)
        return Steps({**steps, "decode": Step(model, decode)}, model, generation_config, parts.media, planes)
    for name, call in (("prefill", prefill), ("decode", decode)):
        _require_known_arguments(model, name, call, known | _unchanged(given, call))
        _require_positions(model, call, Positions())
    steps = {"prefill": Step(model, prefill), "decode": Step(model, decode)}
    if recording.encoder is not None:
        encoder = Step(recording.encoder, recording.encoder_calls[0])
        _require_known_arguments(model, "encoder", encoder.inputs, known)
        steps = {"encoder": encoder, **steps}
    return Steps(steps, model, generation_config, start=start)


@dataclass(frozen=True)
class _Recording:
    """The calls of the model and of its encoder while ``generate`` makes four tokens, and the encoder."""

    calls: list[dict[str, Any]]
    encoder_calls: list[dict[str, Any]]
    encoder: Any


def _record(model: Any, inputs: Mapping[str, Any], config: Any) -> _Recording:
    encoder = model.get_encoder() if model.config.is_encoder_decoder else None
    given = {**inputs, **_static_cache(model, config, inputs)}
    with ExitStack() as stack:
        calls = stack.enter_context(_recorded_calls(model))
        encoder_calls = stack.enter_context(_recorded_calls(encoder))
        # A static cache would make generate pass on a mask of four axes, whose making then is no part of the graph.
        stack.enter_context(
            replaced(model, "create_masks_for_generate", lambda *_, attention_mask, **__: attention_mask)
        )
        stack.enter_context(torch.no_grad())
        model.generate(
            **given,
            generation_config=_without_static_cache(config),
            do_sample=False,
            num_beams=1,
            min_new_tokens=_RECORDED,
            max_new_tokens=_RECORDED,
        )
    return _Recording(calls, encoder_calls, encoder)


def _with_padding(inputs: Mapping[str, Any], among_pictures: bool) -> dict[str, Any]:
    """``generate`` takes a mask of ones for no mask, and the graphs would have none: the first row's first token is
    padded. Among pictures it may be a placeholder, which cannot go, and every row gets a token of padding before it."""
    given = {name: value for name, value in inputs.items() if value is not None}
    mask = given.get("attention_mask")
    if mask is None or not bool((mask == 1).all()):
        return given
    if among_pictures:
        alike = [name for name, value in given.items() if value.shape == mask.shape and not value.is_floating_point()]
        return given | {name: torch.nn.functional.pad(given[name], (1, 0)) for name in alike}
    given["attention_mask"] = mask.clone()
    given["attention_mask"][0, 0] = 0
    return given


def _start_of(model: Any, prefill: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens that a decoder's every sequence starts with."""
    rows = prefill["decoder_input_ids"]
    if not bool((rows == rows[:1]).all()):
        raise ValueError(f"{type(model).__name__} starts its sequences with different tokens: {rows.tolist()}")
    return tuple(rows[0].tolist())


def _planes(model: Any, inputs: Mapping[str, Any], prefill: Mapping[str, Any], decode: Mapping[str, Any]) -> int:
    """The first axis of the model's positions, 0 where they are plain; raises where they follow no rule that is
    known."""
    found = prefill.get("position_ids")
    planes = found.shape[0] if found is not None and found.dim() == 3 else 0
    positions = positions_for(model, inputs, planes)
    for call in (prefill, decode):
        _require_positions(model, call, positions)
    return int(planes)


def _unchanged(given: Mapping[str, Any], call: Mapping[str, Any]) -> set[str]:
    """The tensors that a call takes as ``generate`` was given them, such as the states of an encoder."""
    return {name for name, value in given.items() if name in call and torch.equal(call[name], value)}


def _without_idle(model: Any, decode: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The call without tensors that change nothing once a prompt has been read."""
    idle = {}
    for name, value in decode.items():
        if name not in known and named_leaves({name: value}) and not cache_layers(value):
            without = {other: each for other, each in decode.items() if other != name}
            with torch.no_grad():
                logits, others = model(**_copied(decode)).logits, model(**_copied(without)).logits
            idle[name] = torch.equal(logits, others)
    return {name: value for name, value in decode.items() if not idle.get(name)}


def _static_cache(model: Any, config: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The cache argument that ``cache_implementation="static"`` asks for, of the length that was asked for."""
    if config.cache_implementation is None:
        return {}
    if config.cache_implementation != "static":
        raise ValueError(
            f"cache_implementation={config.cache_implementation!r} cannot be exported; leave it out, or say 'static'"
        )
    if model.config.is_encoder_decoder:
        raise ValueError(f"{type(model).__name__} is an encoder-decoder, whose static cache cannot be exported yet")
    if config.max_length is None:
        raise ValueError(
            "a static cache has a fixed size; say how many tokens with max_length in the generation_config"
        )
    prompt = inputs["input_ids"].shape[1]
    if config.max_length < prompt + _RECORDED:
        raise ValueError(
            f"a static cache of max_length={config.max_length} has no room for the sample prompt of {prompt} tokens "
            f"and the {_RECORDED} that are generated from it"
        )
    from transformers import StaticCache

    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    return {name: StaticCache(config=model.config, max_cache_len=config.max_length)}


def _without_static_cache(config: Any) -> Any:
    """Settings for the recording run, which is handed its cache."""
    if config.cache_implementation is None:
        return config
    settings = config.to_dict() | {"cache_implementation": None, "disable_compile": True}
    return type(config).from_dict(settings)


@contextmanager
def _recorded_calls(module: Any) -> Iterator[list[dict[str, Any]]]:
    """Keep a copy of the arguments of every forward, caches included, from before it ran."""
    calls: list[dict[str, Any]] = []
    if module is None:
        yield calls
        return
    original = module.forward

    def forward(*positional: Any, **arguments: Any) -> Any:
        named = inspect.signature(original).bind_partial(*positional).arguments | arguments
        calls.append({name: _copied(value) for name, value in named.items() if _is_kept(value)})
        return original(*positional, **arguments)

    # generate looks at the signature to tell which arguments a model takes
    forward.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    with replaced(module, "forward", forward):
        yield calls


def _is_kept(value: Any) -> bool:
    """Tensors, what holds some, and plain settings. A cache that is empty yet is left to the model to make."""
    tensors = named_leaves({"value": value}).values()
    if cache_layers(value):
        return any(tensor.dim() for tensor in tensors)  # a counter alone is no content
    return isinstance(value, bool | int | float | str) or bool(tensors)


def _copied(value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, value)


def _emptied(cache: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.zeros_like, cache)


def _layers(call: Mapping[str, Any]) -> list[Any]:
    """The layers of the caches among a call's arguments."""
    return [layer for value in call.values() for layer in cache_layers(value)]


def _is_static(call: Mapping[str, Any]) -> bool:
    return any("Static" in type(layer).__name__ for layer in _layers(call))


def _with_whole_mask(call: dict[str, Any]) -> dict[str, Any]:
    """The mask at least as long as the static cache, whose empty places are masked like padding."""
    mask = call.get("attention_mask")
    if mask is None:
        return call
    places = max(layer.keys.shape[2] for layer in _layers(call) if getattr(layer, "keys", None) is not None)
    return call | {"attention_mask": filled_up(mask, places)}


def _two_tokens(model: Any, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two decode calls as one with both tokens. Raises ``ValueError`` where the model gives something else for it."""
    merged = {name: value for name, value in first.items() if name != "logits_to_keep"}
    for name in _TOKENS:
        if name in first:
            merged[name] = torch.cat([first[name], second[name]], dim=-1)
    if "attention_mask" in first:
        merged["attention_mask"] = max(
            first["attention_mask"], second["attention_mask"], key=lambda mask: mask.shape[1]
        )
    with torch.no_grad():
        expected = [model(**_copied(call)).logits[:, -1] for call in (first, second)]
        found = model(**_copied(merged)).logits
    error = max(float((found[:, index] - logits).abs().max()) for index, logits in enumerate(expected))
    if not error <= _TOLERANCE:
        raise ValueError(
            f"{type(model).__name__} does not decode several tokens in one call as one after the other: "
            f"its logits differ by {error:.2g}; export with multi_token_decode=False"
        )
    return merged


def _require_prompts(model: Any, inputs: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for sample prompts that decoding cannot be recorded from."""
    main = getattr(model, "main_input_name", "input_ids")
    if model.config.is_encoder_decoder and main in _MEDIA:
        if inputs.get(main) is None or inputs[main].shape[0] < 2:
            raise ValueError(f"give {main} of at least two samples, and what a processor makes beside them")
        return
    prompts, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    if prompts is None or prompts.dim() != 2 or prompts.shape[1] < 2:
        raise ValueError("give input_ids of (batch, length) as sample, with a length of at least 2")
    _require_mask(model, mask)


def _require_mask(model: Any, mask: torch.Tensor | None) -> None:
    if mask is not None and not bool(mask.any(1).all()):
        raise ValueError("a row of the attention_mask is all padding; give every sample prompt at least one token")
    if mask is not None and not model.config.is_encoder_decoder and not bool(mask[:, -1].all()):
        raise ValueError(f"{type(model).__name__} continues after the last token; pad the sample prompts on the left")


def _require_known_cache(model: Any, decode: Mapping[str, Any]) -> None:
    if not _layers(decode):
        raise ValueError(
            f"{type(model).__name__} decodes without a cache that is known; "
            "set use_cache=True in its config and its generation_config, or export its forward with export()"
        )


def _require_no_static_window(model: Any, decode: Mapping[str, Any]) -> None:
    if any("StaticSlidingWindow" in base.__name__ for layer in _layers(decode) for base in type(layer).__mro__):
        raise ValueError(
            f"{type(model).__name__} has a sliding window, whose static cache takes one token at a time; "
            "export with multi_token_decode=False, or without the static cache"
        )


def _require_known_arguments(model: Any, step: str, call: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse a step whose arguments the loop could not make again."""
    odd = sorted(
        name
        for name, value in call.items()
        if name not in known and not cache_layers(value) and named_leaves({name: value})
    )
    if odd:
        raise ValueError(f"{type(model).__name__} takes {', '.join(odd)} in {step}, which the loop cannot make yet")


def _require_positions(model: Any, call: Mapping[str, Any], rule: Positions) -> None:
    if not _follows(call, rule):
        raise ValueError(f"{type(model).__name__} counts positions in its own way, which the loop does not know yet")


def _follows(call: Mapping[str, Any], rule: Positions) -> bool:
    """Whether the positions of a call, if it has any, are what the loop would make."""
    positions, mask = call.get("position_ids"), call.get("attention_mask")
    if positions is None:
        return True
    seen = int(positions.max()) + 1 if mask is None else int(mask.any(0).nonzero().max()) + 1
    # Without the places to come of a static cache.
    mask = torch.ones(positions.shape[-2], seen) if mask is None else mask[:, :seen]
    return torch.equal(positions, rule.of(mask, positions.shape[-1]).expand_as(positions))
