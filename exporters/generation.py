"""Export a model for generation: the forward calls that ``generate`` really makes, and a loop that makes them again.

``generate`` is run once for a few tokens and its calls are recorded. A decoder-only model gives a prefill (the whole
prompt, no cache) and a decode (one token and a cache); an encoder-decoder an encoder before them. Each is exported with
the arguments it was called with.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from exporters.dynamo.pytree import register_cache_pytrees
from exporters.leaves import named_leaves
from exporters.registry import replaced

if TYPE_CHECKING:
    from exporters.artifacts import Artifact

#: Arguments of the recorded calls that the loop can make again, besides caches.
_KNOWN = {"input_ids", "decoder_input_ids", "attention_mask", "position_ids", "encoder_outputs"}

#: Settings of ``generate`` that change which token is the best one, with the values that change nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (None, 1.0),
    "encoder_repetition_penalty": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "bad_words_ids": (None,),
    "sequence_bias": (None,),
    "suppress_tokens": (None, []),
    "begin_suppress_tokens": (None, []),
    "exponential_decay_length_penalty": (None,),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "guidance_scale": (None, 1.0),
    "watermarking_config": (None,),
}


@dataclass(frozen=True)
class Step:
    """One forward of generation: a module and the keyword arguments it is called with."""

    module: Any
    inputs: dict[str, Any]


@dataclass(frozen=True)
class Ending:
    """How sequences begin, end and are filled up; token ids."""

    eos: tuple[int, ...]
    pad: int
    start: int | None = None
    forced_first: int | None = None
    forced_last: int | None = None


def capture_steps(model: Any, inputs: Mapping[str, Any], generation_config: Any = None) -> dict[str, Step]:
    """The forward calls of ``generate``: ``encoder`` (of an encoder-decoder), ``prefill`` and ``decode``.

    Args:
        model: in eval mode.
        inputs: arguments of ``generate``: ``input_ids`` of at least two prompts of at least two tokens.
        generation_config: settings of ``generate``, the model's own by default.

    Raises:
        ValueError: the model does not generate, its settings ask for more than the best token, or it decodes in a way
            that the loop cannot repeat.
    """
    if not callable(getattr(model, "generate", None)) or not model.can_generate():
        raise ValueError(f"{type(model).__name__} cannot generate; export its forward with export() instead")
    _require_plain_greedy(generation_config or model.generation_config)
    register_cache_pytrees(model)
    calls, encoder_calls, encoder = _record(model, inputs, generation_config)
    # An encoder-decoder's first decode has a cache of length 1, which torch.export takes for fixed; its second has 2.
    first_decode = 2 if encoder is not None else 1
    if len(calls) <= first_decode:
        raise ValueError(f"{type(model).__name__}.generate called forward {len(calls)} times for three tokens")
    steps = {"prefill": Step(model, calls[0]), "decode": Step(model, calls[first_decode])}
    if encoder is not None:
        steps = {"encoder": Step(encoder, encoder_calls[0]), **steps}
    _require_growing_cache(model, steps["decode"].inputs)
    for name, step in steps.items():
        _require_known_arguments(model, name, step.inputs)
    return steps


def _record(
    model: Any, inputs: Mapping[str, Any], generation_config: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Any]:
    """The calls of the model and of its encoder while ``generate`` makes three tokens, and the encoder."""
    encoder = model.get_encoder() if model.config.is_encoder_decoder else None
    with _recorded_calls(model) as calls, _recorded_calls(encoder) as encoder_calls, torch.no_grad():
        model.generate(
            **_with_padding(inputs),
            generation_config=generation_config,
            do_sample=False,
            num_beams=1,
            min_new_tokens=3,
            max_new_tokens=3,
        )
    return calls, encoder_calls, encoder


def _with_padding(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """``generate`` takes a mask of ones for no mask, and the graphs would have none: the first row's first token is
    padded."""
    given = dict(inputs)
    mask = given.get("attention_mask")
    if mask is not None and bool((mask == 1).all()):
        given["attention_mask"] = mask.clone()
        given["attention_mask"][0, 0] = 0
    return given


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
        copied = pytree.tree_map_only(torch.Tensor, torch.clone, named)
        calls.append({name: value for name, value in copied.items() if _is_kept(value)})
        return original(*positional, **arguments)

    # generate looks at the signature to tell which arguments a model takes
    forward.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    with replaced(module, "forward", forward):
        yield calls


def _is_kept(value: Any) -> bool:
    """Tensors, what holds some, and plain settings. The empty cache of a prefill is left to the model to make."""
    return isinstance(value, bool | int | float | str) or bool(named_leaves({"value": value}))


def _require_plain_greedy(config: Any) -> None:
    asked = [name for name, neutral in _NEUTRAL.items() if getattr(config, name, None) not in neutral]
    if asked:
        raise ValueError(
            f"the generation config sets {', '.join(asked)}, which the exported loop does not apply; "
            "pass a generation_config without"
        )


def _require_growing_cache(model: Any, decode: Mapping[str, Any]) -> None:
    from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

    caches: list[Any] = [value for value in decode.values() if isinstance(value, Cache)]
    caches = [
        part
        for cache in caches
        for part in (
            (cache.self_attention_cache, cache.cross_attention_cache)
            if isinstance(cache, EncoderDecoderCache)
            else (cache,)
        )
    ]
    layers = [layer for cache in caches for layer in getattr(cache, "layers", ())]
    odd = sorted({type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer})
    if not layers or odd:
        kinds = ", ".join(odd) or "no cache of keys and values"
        raise ValueError(f"{type(model).__name__} decodes with {kinds}, which cannot be exported for generation yet")


def _require_known_arguments(model: Any, step: str, call: Mapping[str, Any]) -> None:
    """Refuse a step whose arguments the loop could not make again. Positions are compared with the rule for them."""
    from transformers.cache_utils import Cache

    odd = sorted(
        name
        for name, value in call.items()
        if name not in _KNOWN and not isinstance(value, Cache) and named_leaves({name: value})
    )
    if odd:
        raise ValueError(f"{type(model).__name__} takes {', '.join(odd)} in {step}, which the loop cannot make yet")
    positions = call.get("position_ids")
    if positions is not None:
        mask = call.get("attention_mask", torch.ones(1, int(positions.max()) + 1))
        if not torch.equal(positions, _positions(mask, call["input_ids"].shape[1]).expand_as(positions)):
            raise ValueError(
                f"{type(model).__name__} counts positions in its own way, which the loop does not know yet"
            )


def _positions(mask: torch.Tensor, length: int) -> torch.Tensor:
    """Positions of the last ``length`` tokens: how many tokens that are no padding come before each, int64."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]


def ending_of(model: Any, generation_config: Any = None) -> Ending:
    """The special tokens as ``generate`` settles them."""
    config = generation_config or model.generation_config
    eos = config.eos_token_id
    ids = () if eos is None else tuple(eos) if isinstance(eos, list | tuple) else (int(eos),)
    pad = config.pad_token_id
    start = config.decoder_start_token_id if config.decoder_start_token_id is not None else config.bos_token_id
    return Ending(
        eos=ids,
        pad=int(pad if pad is not None else ids[0] if ids else 0),
        start=start if model.config.is_encoder_decoder else None,
        forced_first=config.forced_bos_token_id,
        forced_last=config.forced_eos_token_id,
    )


class GenerationExport(dict[str, Any]):
    """The native programs by step: ``prefill`` and ``decode``, and ``encoder`` for an encoder-decoder.

    Attributes:
        artifacts: the same as `Artifact`s.
    """

    def __init__(self, artifacts: Mapping[str, Artifact], ending: Ending) -> None:
        super().__init__({name: artifact.program for name, artifact in artifacts.items()})
        self.artifacts = dict(artifacts)
        self._ending = ending

    def generate(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, *, max_new_tokens: int
    ) -> torch.Tensor:
        """Greedy decoding in the artifacts' runtime.

        Args:
            input_ids: (batch, length), int64; the prompt, or what the encoder reads.
            attention_mask: (batch, length), 0 where a token is padding (on the left for a decoder-only model). Ones by
                default.
            max_new_tokens: how many tokens to add at most, at least 1.

        Returns:
            What eager's greedy ``generate`` gives: the prompt (for an encoder-decoder the start token) and the new
            tokens, (batch, length + new); a sequence that is over is filled up with the padding token.

        Raises:
            ValueError: the inputs do not fit, or have padding where the export had no mask.
        """
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if not any("attention_mask" in each.input_paths for each in self.artifacts.values()) and bool(
            (mask == 0).any()
        ):
            raise ValueError("the export had no attention_mask, so its programs take no padding; export with a mask")
        state: dict[str, torch.Tensor] = {}
        sequence = input_ids
        if "encoder" in self.artifacts:
            encoded = self._run("encoder", input_ids, mask, {})
            state = {f"encoder_outputs.{path}": value for path, value in encoded.items()}
            sequence = torch.full((len(input_ids), 1), self._ending.start or 0, dtype=input_ids.dtype)
        return self._decode(sequence, mask, state, max_new_tokens)

    def _decode(
        self, sequence: torch.Tensor, mask: torch.Tensor, state: dict[str, torch.Tensor], steps: int
    ) -> torch.Tensor:
        over = torch.zeros(len(sequence), dtype=torch.bool)
        grows = "encoder" not in self.artifacts  # an encoder's mask stays as it is
        found = self._run("prefill", sequence, mask, state)
        for step in range(steps):
            token = found["logits"][:, -1].argmax(-1)
            forced = self._forced(step, steps)
            token = token if forced is None else torch.full_like(token, forced)
            token = torch.where(over, self._ending.pad, token)
            sequence = torch.cat([sequence, token[:, None]], dim=1)
            over |= torch.isin(token, torch.tensor(self._ending.eos, dtype=token.dtype))
            if bool(over.all()) or step == steps - 1:
                break
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1) if grows else mask
            found = self._run("decode", token[:, None], mask, {**state, **found})
        return sequence

    def _forced(self, step: int, steps: int) -> int | None:
        last = self._ending.forced_last if step == steps - 1 else None
        first = self._ending.forced_first if step == 0 and self._ending.start is not None else None
        return first if last is None else last

    def _run(
        self, step: str, tokens: torch.Tensor, mask: torch.Tensor, state: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """One step: tokens, the mask, positions, and from ``state`` what an earlier step gave under the same name."""
        made = {"input_ids": tokens, "decoder_input_ids": tokens, "attention_mask": mask}
        artifact = self.artifacts[step]
        if "position_ids" in artifact.input_paths:
            made["position_ids"] = _positions(mask, tokens.shape[1])
        return artifact(**{path: made[path] if path in made else state[path] for path in artifact.input_paths})
