"""The model's own switches, turned one at a time where that changes what runs.

- ``cross_attention``: a decoder that can look at an encoder's states does, and is fed some.
- ``cache``: ``use_cache`` is on, so that a cache comes back; a forward that takes one is given that of an earlier part
  of its text.
- ``eager_attention``, ``sdpa``: the other implementation of attention than the class's default.
- ``two_images``: two pictures in each row's text, on grids of two shapes where they have grids.

Whether a switch changes what runs is measured: how often eager executes each line of the model's own modules.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.sources.cases import Inapplicable, Inputs, ModelCase, Unavailable
from hfexport_bot.runner.sources.configs import read, walk
from hfexport_bot.runner.sources.media import fed_modalities
from hfexport_bot.schema import Task, Variant

#: What a forward and its outputs call their cache.
_CACHES = ("cache", "past_key_values", "cache_params")
#: Tokens that go on after pictures or sound.
_CONTINUED = 6


def _nothing(_: Any) -> None:
    pass


def _as_they_are(model: Any, inputs: Inputs) -> Inputs:
    return inputs


@dataclass(frozen=True)
class Switch:
    """How a case becomes another: its configuration before the model is built, the model, and its inputs and probes.

    Each raises ``Inapplicable``, with why, for a class that does not have the switch. ``pictures``: of each row.
    """

    configure: Callable[[Any], None] = _nothing
    adapt: Callable[[Any], None] = _nothing
    feed: Callable[[Any, Inputs], Inputs] = _as_they_are
    pictures: int = 1
    tasks: tuple[Task, ...] = (Task.FORWARD,)


PLAIN = Switch(tasks=tuple(Task))


def _let_cross(config: Any) -> None:
    if read(config, "add_cross_attention") is None or read(config, "is_encoder_decoder"):
        raise Inapplicable("it has no cross-attention to add")
    config.is_decoder = config.add_cross_attention = True


def _feed_states(model: Any, inputs: Inputs) -> Inputs:
    ids = inputs.get("input_ids")
    if ids is None or "encoder_hidden_states" not in inspect.signature(type(model).forward).parameters:
        raise Inapplicable("its forward takes no encoder_hidden_states")
    width = read(model.config, "cross_attention_hidden_size") or read(model.config, "hidden_size")
    length = ids.shape[1] - 2  # another than the text's
    states = torch.randn(ids.shape[0], length, width, generator=torch.Generator().manual_seed(length))
    mask = torch.ones(ids.shape[0], length, dtype=torch.int64)
    return {**inputs, "encoder_hidden_states": states, "encoder_attention_mask": mask}


def _use_cache(model: Any) -> None:
    parts = [part for part in walk(model.config) if read(part, "use_cache") is not None]
    # A decoder can have a configuration of its own; one of an encoder says that it is none.
    own = [read(module, "config") for module in model.modules()]
    parts += [config for config in own if read(config, "is_decoder") and read(config, "use_cache") is not None]
    if not parts:
        raise Inapplicable("it has no cache")
    for part in parts:
        part.use_cache = True


def _feed_past(model: Any, inputs: Inputs) -> Inputs:
    """``inputs`` as they continue an earlier part of their text, whose cache is given; as they are where forward takes
    none. What goes on after pictures or sound is text."""
    name = next((name for name in _CACHES if name in inspect.signature(type(model).forward).parameters), None)
    if name is None:
        return inputs
    before = _state(model)
    try:
        with torch.no_grad():
            outputs = model(**copy.deepcopy(inputs))
    except Exception as error:  # whatever the model raises, it does not run with its cache on
        raise Inapplicable(f"{type(error).__name__}: {error}") from error
    if _state(model) != before:
        raise Inapplicable("it keeps values of its own from one call to the next")
    past = next((found for each in _CACHES if (found := getattr(outputs, each, None)) is not None), None)
    if past is None:
        return inputs
    own = "decoder_attention_mask" if read(model.config, "is_encoder_decoder") else "attention_mask"
    mask = inputs.get(own)
    rest = inputs
    if fed_modalities(inputs) and own == "attention_mask" and "input_ids" in inputs:
        rest = {"input_ids": inputs["input_ids"][:, -_CONTINUED:]}
    fed = {**rest, name: past}
    if mask is not None and mask.ndim == 2:
        new = mask if rest is inputs else mask[:, -_CONTINUED:]
        fed[own] = torch.cat((torch.ones_like(mask), new), dim=1)
        if not _runs(model, fed) and _runs(model, {**fed, own: new}):
            fed[own] = new  # a state space has no positions to mask
    return fed


def _state(model: Any) -> dict[tuple[str, str], int]:
    """The tensors that a model's parts hold as plain attributes, by part and name."""
    return {
        (part, name): id(value)
        for part, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    }


def _runs(model: Any, inputs: Inputs) -> bool:
    try:
        with torch.no_grad():
            model(**copy.deepcopy(inputs))
    except Exception:  # whatever forward raises, it refuses these inputs
        return False
    return True


def _attend(implementation: str) -> Callable[[Any], None]:
    def adapt(model: Any) -> None:
        if read(model.config, "_attn_implementation") == implementation:
            raise Inapplicable(f"{implementation} is its default")
        try:
            model.set_attn_implementation(implementation)
        except (AttributeError, ValueError, ImportError) as error:
            raise Inapplicable(f"it has no {implementation} attention") from error

    return adapt


VARIANTS: dict[Variant, Switch] = {
    Variant.CROSS_ATTENTION: Switch(configure=_let_cross, feed=_feed_states),
    Variant.CACHE: Switch(adapt=_use_cache, feed=_feed_past),
    Variant.EAGER_ATTENTION: Switch(adapt=_attend("eager"), tasks=tuple(Task)),
    Variant.SDPA: Switch(adapt=_attend("sdpa"), tasks=tuple(Task)),
    Variant.TWO_IMAGES: Switch(pictures=2),
}

Build = Callable[[Switch], ModelCase]


def variant_case(name: Variant, build: Build, task: Task) -> ModelCase:
    """The case that ``build`` makes with the switch ``name`` turned.

    Raises ``Inapplicable`` where the switch changes nothing that runs; the message tells which do.
    Raises ``Unavailable`` where not even the plain case can be made.
    """
    plain = build(PLAIN)
    try:
        return _turned(name, build, task, plain)
    except Inapplicable as error:
        others = [other for other in VARIANTS if other != name and _applies(other, build, task, plain)]
        applicable = f"variants that do: {', '.join(others)}" if others else "no variant does"
        model = type(plain.model).__name__
        raise Inapplicable(f"{name} changes nothing of {model} ({error}); {applicable}") from error


def _applies(name: Variant, build: Build, task: Task, plain: ModelCase) -> bool:
    try:
        _turned(name, build, task, plain)
    except Inapplicable:
        return False
    return True


def _turned(name: Variant, build: Build, task: Task, plain: ModelCase) -> ModelCase:
    switch = VARIANTS[name]
    if task not in switch.tasks:
        raise Inapplicable(f"not in the task {task}")
    try:
        case = build(switch)
    except Unavailable as error:
        raise Inapplicable(error.message) from error
    if task is Task.FORWARD and executed(case) == executed(plain):
        raise Inapplicable("the same runs with and without it")
    return case


def executed(case: ModelCase, seed: int = 0) -> Counter[tuple[str, int]]:
    """How often eager executes each line (file, number) of the modules that the model's classes are written in."""
    files = {sys.modules[type(module).__module__].__file__ for module in case.model.modules()}
    own = {file for file in files if file and f"{torch.__name__}/nn/" not in file}
    lines: Counter[tuple[str, int]] = Counter()

    def trace(frame: Any, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in own:
            return None
        if event == "line":
            lines[file, frame.f_lineno] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run_eager(case.model, copy.deepcopy(case.inputs), seed)
    except Exception as error:  # whatever the model raises, it does not run with the switch turned
        raise Inapplicable(f"{type(error).__name__}: {error}") from error
    finally:
        sys.settrace(before)
    return lines
