"""Export a model for generation: the forward calls that ``generate`` really makes, and a loop that makes them again.

``generate`` is run once for two tokens. Its first call of the model is the prefill (the whole prompt, no cache), its
second the decode (one token, the prompt's cache). Both are exported with the arguments they were called with.
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

if TYPE_CHECKING:
    from exporters.artifacts import Artifact

STEPS = ("prefill", "decode")


def capture_steps(model: Any, inputs: Mapping[str, Any], generation_config: Any = None) -> dict[str, dict[str, Any]]:
    """The keyword arguments of the model's forward in the prefill and in the decode step.

    Args:
        model: a decoder-only model that can generate, in eval mode.
        inputs: arguments of ``generate``: a prompt of at least two tokens, batch of at least two.
        generation_config: passed on to ``generate``; decoding is greedy whatever it says.

    Raises:
        ValueError: the model does not generate, is an encoder-decoder, or keeps no growing cache of keys and values.
    """
    if not callable(getattr(model, "generate", None)) or not model.can_generate():
        raise ValueError(f"{type(model).__name__} cannot generate; export its forward with export() instead")
    if model.config.is_encoder_decoder:
        raise ValueError(f"{type(model).__name__} is an encoder-decoder, which cannot be exported for generation yet")
    register_cache_pytrees(model)
    with _recorded_calls(model) as calls, torch.no_grad():
        model.generate(
            **_with_padding(inputs),
            generation_config=generation_config,
            do_sample=False,
            num_beams=1,
            min_new_tokens=2,
            max_new_tokens=2,
        )
    if len(calls) < len(STEPS):
        raise ValueError(f"{type(model).__name__}.generate called forward {len(calls)} times for two tokens")
    steps = {name: _with_tensors_or_plain(call) for name, call in zip(STEPS, calls, strict=False)}
    _require_growing_cache(model, steps["decode"])
    for name, call in steps.items():
        _require_known_arguments(model, name, call)
    return steps


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
def _recorded_calls(model: Any) -> Iterator[list[dict[str, Any]]]:
    """Keep a copy of the arguments of every forward, caches included, from before it ran."""
    calls: list[dict[str, Any]] = []
    original = model.forward
    shadowed = "forward" in vars(model)

    def forward(**arguments: Any) -> Any:
        given = {name: value for name, value in arguments.items() if value is not None}
        calls.append(pytree.tree_map_only(torch.Tensor, torch.clone, given))
        return original(**arguments)

    # generate looks at the signature to tell which arguments a model takes
    forward.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    model.forward = forward
    try:
        yield calls
    finally:
        if shadowed:
            model.forward = original
        else:
            del model.forward


def _with_tensors_or_plain(call: Mapping[str, Any]) -> dict[str, Any]:
    """Without objects that hold no tensor yet: the empty cache of a prefill, which the model makes for itself."""
    plain = (bool, int, float, str)
    return {name: value for name, value in call.items() if named_leaves({name: value}) or isinstance(value, plain)}


def _require_growing_cache(model: Any, decode: Mapping[str, Any]) -> None:
    from transformers.cache_utils import Cache, DynamicLayer

    caches = [value for value in decode.values() if isinstance(value, Cache)]
    layers = [layer for cache in caches for layer in getattr(cache, "layers", ())]
    odd = sorted({type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer})
    if not layers or odd:
        kinds = ", ".join(odd) or "no cache of keys and values"
        raise ValueError(f"{type(model).__name__} decodes with {kinds}, which cannot be exported for generation yet")


def _require_known_arguments(model: Any, step: str, call: Mapping[str, Any]) -> None:
    """Refuse a step whose arguments the loop could not make again. Positions are compared with the rule for them."""
    from transformers.cache_utils import Cache

    known = {"input_ids", "attention_mask", "position_ids"}
    tensors = {name for name, value in call.items() if isinstance(value, torch.Tensor)}
    nested = {
        n for n, value in call.items() if n not in tensors and not isinstance(value, Cache) and named_leaves(value)
    }
    odd = sorted((tensors | nested) - known)
    if odd:
        raise ValueError(f"{type(model).__name__} takes {', '.join(odd)} in {step}, which the loop cannot make yet")
    if "position_ids" in call:
        positions = call["position_ids"]
        mask = call.get("attention_mask", torch.ones(1, int(positions.max()) + 1))
        expected = _positions(mask, call["input_ids"].shape[1]).expand_as(positions)
        if not torch.equal(positions, expected):
            raise ValueError(
                f"{type(model).__name__} counts positions in a way of its own, which the loop does not know yet"
            )


def _positions(mask: torch.Tensor, length: int) -> torch.Tensor:
    """Positions of the last ``length`` tokens: how many tokens that are no padding come before each, int64."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]


@dataclass(frozen=True)
class _Ending:
    """When a sequence is over, and what follows it."""

    eos: tuple[int, ...]
    pad: int


class GenerationExport(dict[str, Any]):
    """The native programs by step, ``{"prefill": …, "decode": …}``.

    Attributes:
        artifacts: the same as `Artifact`s.
    """

    def __init__(self, artifacts: Mapping[str, Artifact], ending: _Ending) -> None:
        super().__init__({name: artifact.program for name, artifact in artifacts.items()})
        self.artifacts = dict(artifacts)
        self._ending = ending

    def generate(self, *, max_new_tokens: int, **inputs: torch.Tensor) -> torch.Tensor:
        """Greedy decoding in the artifacts' runtime.

        Args:
            max_new_tokens: how many tokens to add at most, at least 1.
            inputs: ``input_ids`` (batch, length), int64, and the mask where the export had one, padded on the left.

        Returns:
            The prompt and the new tokens, (batch, length + new), as eager's greedy ``generate`` gives them: a sequence
            that is over is filled up with the padding token.

        Raises:
            ValueError: the inputs do not fit the prefill's graph, or have padding where the export had no mask.
        """
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        prefill, decode = (self.artifacts[step] for step in STEPS)
        sequence = inputs["input_ids"]
        mask = inputs.get("attention_mask", torch.ones_like(sequence))
        _refuse_unknown(inputs)
        if "attention_mask" not in prefill.input_paths and bool((mask == 0).any()):
            raise ValueError("the export had no attention_mask, so its programs take no padding; export with a mask")
        state = prefill(**_step_inputs(prefill.input_paths, sequence, mask, {}))
        over = torch.zeros(len(sequence), dtype=torch.bool)
        for step in range(max_new_tokens):
            token = state["logits"][:, -1].argmax(-1)
            token = torch.where(over, self._ending.pad, token)
            sequence = torch.cat([sequence, token[:, None]], dim=1)
            over |= torch.isin(token, torch.tensor(self._ending.eos, dtype=token.dtype))
            if bool(over.all()) or step == max_new_tokens - 1:
                break
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            state = decode(**_step_inputs(decode.input_paths, token[:, None], mask, state))
        return sequence


def _refuse_unknown(inputs: Mapping[str, Any]) -> None:
    unknown = sorted(set(inputs) - {"input_ids", "attention_mask"})
    if unknown:
        raise ValueError(f"generate takes input_ids and attention_mask, not {', '.join(unknown)}")


def _step_inputs(
    paths: tuple[str, ...], tokens: torch.Tensor, mask: torch.Tensor, state: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """A step's inputs: tokens, the mask over all tokens so far, positions, and the cache that came out of the last
    step under the same name."""
    made = {"input_ids": tokens, "attention_mask": mask, "position_ids": _positions(mask, tokens.shape[1])}
    return {path: made[path] if path in made else state[path] for path in paths}


def ending_of(model: Any, generation_config: Any = None) -> _Ending:
    """The tokens that end a sequence and fill it up, as ``generate`` settles them."""
    config = generation_config or model.generation_config
    eos = config.eos_token_id
    ids = () if eos is None else tuple(eos) if isinstance(eos, list | tuple) else (int(eos),)
    pad = config.pad_token_id
    return _Ending(ids, int(pad if pad is not None else ids[0] if ids else 0))
