"""Models whose ``generate`` hands on to the ``generate`` of a model inside them, and never calls their own forward.

BLIP encodes a picture and lets its text decoder generate with the states as cross-attention inputs; BLIP-2 merges
features into embeddings and lets its language model go on from them. All that comes before is one step,
``prompt_encoder``: the model's own ``generate`` up to where it hands on. What it hands on is the prompt of the model
inside, whose steps are captured like any model's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental import _config

from exporters.multimodal import Part
from exporters.registry import replaced

#: torch's settings of symbolic sizes.
_SIZES: Any = _config

#: What a prompt's tokens are handed on as.
_TOKENS = {"input_ids", "inputs_embeds"}

#: Settings of the run that finds out who is handed on to.
_TRIAL: dict[str, Any] = {"do_sample": False, "num_beams": 1, "max_new_tokens": 1}


@dataclass(frozen=True)
class Delegation:
    """What a model hands on.

    Attributes:
        delegate: the model inside that generates.
        prompt: the tensors that its ``generate`` is called with, by name.
        settings: the plain values beside them, such as ``eos_token_id``.
    """

    delegate: Any
    prompt: dict[str, torch.Tensor]
    settings: dict[str, Any]


class _HandedOn(Exception):
    """Ends a ``generate`` that has come far enough."""

    def __init__(self, delegation: Delegation) -> None:
        super().__init__()
        self.delegation = delegation


def inner_generators(model: Any) -> list[Any]:
    """The models inside ``model`` that generate themselves; none for a model that generates as all do."""
    from transformers import GenerationMixin

    if getattr(type(model), "generate", None) in (None, GenerationMixin.generate):
        return []
    inside = [module for module in model.modules() if module is not model]
    return [each for each in inside if isinstance(each, GenerationMixin) and each.can_generate()]  # type: ignore[attr-defined]


def delegation_of(model: Any, inputs: Mapping[str, Any]) -> Delegation | None:
    """What the model's ``generate`` hands on of ``inputs``, its arguments; None where it makes the tokens itself."""
    generators = inner_generators(model)
    if not generators:
        return None
    own = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    try:
        with ExitStack() as stack:
            for each in generators:
                stack.enter_context(replaced(each, "generate", _handing_on(each)))
            model.generate(**own, **_TRIAL)
    except _HandedOn as reached:
        return reached.delegation
    return None


def _handing_on(delegate: Any) -> Callable[..., Any]:
    signature = inspect.signature(delegate.generate)

    def generate(*positional: Any, **named: Any) -> Any:
        given = {**signature.bind_partial(*positional).arguments, **named}
        given = {name: value for name, value in given.items() if name not in _TRIAL and value is not None}
        tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
        settings = {name: value for name, value in given.items() if name not in tensors}
        raise _HandedOn(Delegation(delegate, tensors, settings))

    return generate


class PromptEncoder(Part):
    """The arguments of a model's ``generate`` to those of the ``generate`` that it hands on to."""

    def forward(self, **inputs: Any) -> dict[str, Any]:
        # Or a text that loses its last token might not be left with one: strides tell a length of 1 from others.
        with _SIZES.patch(backed_size_oblivious=True):
            found = delegation_of(self.exported_model, inputs)
        assert found is not None
        return dict(found.prompt)


def grows_with_text(model: Any, inputs: Mapping[str, Any], prompt: Mapping[str, torch.Tensor]) -> bool:
    """Whether a longer text makes more tokens of the prompt; BLIP's answers begin with one whatever the question."""
    texts = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
    longer = {name: torch.cat([text, text[:, -1:]], dim=1) for name, text in texts.items()}
    with torch.no_grad():
        found = delegation_of(model, {**inputs, **longer})
    return found is not None and any(found.prompt[name].shape != prompt[name].shape for name in _TOKENS & prompt.keys())


def unprompted_tokens(model: Any, inputs: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The ``input_ids`` that do the same as none at all, if a model takes its prompts without text too.

    What a model puts in the place of a missing text is seen in what it hands on; BLIP has cut a last token off it.
    """
    media = {name: value for name, value in inputs.items() if name not in ("input_ids", "attention_mask")}
    if "input_ids" not in inputs or not media:
        return None
    try:
        with torch.no_grad():
            wanted = delegation_of(model, media)
            rows = None if wanted is None else wanted.prompt.get("input_ids")
            if wanted is None or rows is None or not bool((rows == rows[:1]).all()):
                return None
            for tokens in (rows, torch.nn.functional.pad(rows, (0, 1))):
                text = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
                found = delegation_of(model, media | {name: text[name] for name in text if name in inputs})
                if found is not None and _same(wanted.prompt, found.prompt):
                    return tuple(tokens[0].tolist())
    except Exception:  # the model's own code refuses a missing or a short text in any way it likes
        return None
    return None


def _same(prompt: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Whether two prompts are one; a mask of ones is none."""
    return all(
        torch.equal(prompt[name], value) if name in prompt else name == "attention_mask" and bool((value == 1).all())
        for name, value in other.items()
    ) and all(name in other for name in prompt)
