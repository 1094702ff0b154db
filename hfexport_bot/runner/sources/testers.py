"""A case from a model test: transformers' test classes make a small model's configuration and its inputs.

A test class has ``all_model_classes``, and a ``model_tester`` that its ``setUp`` makes. The tester's
``prepare_config_and_inputs_for_model_class(model_class)``, or else ``prepare_config_and_inputs_for_common()``, gives a
configuration and inputs, which the test class's ``_prepare_for_class(inputs, model_class)`` fits to one class. For
``generate`` the test class's ``prepare_config_and_inputs_for_generate()`` gives both; prompts of text alone are made as
for every other source, from that configuration.
"""

from __future__ import annotations

import contextlib
import random
import sys
import unittest
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FunctionType, MappingProxyType
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils import _pytree as pytree

from exporters.refusals import makes_a_loss
from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.sources.cases import Inputs, ModelCase, Unavailable, unavailable
from hfexport_bot.runner.sources.configs import switch_off_cache, switch_on_cache
from hfexport_bot.runner.sources.media import PLACEHOLDERS, placeholder_id
from hfexport_bot.runner.sources.probes import derive_probes, padding_probes
from hfexport_bot.runner.sources.prompts import build_prompts
from hfexport_bot.runner.sources.size_one import comes_to_one
from hfexport_bot.runner.sources.sizes import on_meta
from hfexport_bot.runner.sources.tester_shapes import larger_images, other_shapes, padded_beside_longer, set_up_again
from hfexport_bot.schema import Source, Task, UnavailableCause

#: Beside labels: what makes a forward return a loss, or a cache.
_LEFT_OUT = ("future_values", "use_cache")

#: Prompts of no more than this are made as for every other source.
_TEXT = {"input_ids", "attention_mask", "token_type_ids"}

_PADDING_MASKS = ("attention_mask", "decoder_attention_mask", "encoder_attention_mask")

#: Of a model's weights. Testers make models of a few megabytes.
MAX_BYTES = 1 << 30


def case_from_tester(test_case: Any, model_class: Any, task: Task = Task.FORWARD, seed: int = 0) -> ModelCase:
    """The model and inputs that a model test makes for ``model_class``.

    Args:
        test_case: an instance of the test class after its ``setUp``.
        seed: the same one gives the same weights and inputs; random states come back as they were.

    Raises:
        Unavailable: the test class has no model tester, skips this class, or raises.
    """
    name = type(test_case).__name__
    make = _generate_case if task is Task.GENERATE else _forward_case
    with _seeded(test_case, seed), as_unavailable(name, f"makes no {model_class.__name__}"):
        return make(test_case, model_class, seed)


@contextmanager
def as_unavailable(who: str, failing: str) -> Iterator[None]:
    """Raise ``Unavailable`` for whatever code of a test, the author's, ends with: an error, a skip, a call of exit.

    ``who`` is named in its message, and ``failing`` is what it then does.
    """
    try:
        yield
    except Unavailable:
        raise
    except unittest.SkipTest as skip:
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, f"{who} skips it: {skip}") from skip
    except SystemExit as error:
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, f"{who} {failing}: it exits ({error.code})") from error
    except Exception as error:
        raise unavailable(error, UnavailableCause.UNKNOWN_INPUTS, f"{who} {failing}") from error
    except BaseException as error:
        if not any(base.__module__ == "_pytest.outcomes" for base in type(error).__mro__):  # as pytest.skip raises
            raise
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, f"{who} skips it: {error}") from error


def model_classes(test_case: Any, task: Task = Task.FORWARD) -> tuple[type, ...]:
    """The classes a test class tests; for ``generate`` those of them that can, where the test class prepares it."""
    classes = tuple(test_case.all_model_classes or ())
    if task is Task.FORWARD:
        return classes
    if not hasattr(test_case, "prepare_config_and_inputs_for_generate"):
        return ()
    generative = getattr(test_case, "all_generative_model_classes", None)
    return tuple(c for c in classes if c.can_generate()) if generative is None else tuple(generative)


def _forward_case(
    test_case: Any, model_class: Any, seed: int, arguments: Mapping[str, int] = MappingProxyType({})
) -> ModelCase:
    """``arguments``: those that the test case's testers were made with, beside their own."""
    config, inputs = _prepared(test_case, model_class)
    switch_off_cache(config)
    model = _build(model_class, config, seed)
    switch_off_cache(model.config)
    pad = _padding_token(model.config)
    probes = derive_probes(inputs, pad)
    made = other_shapes(test_case, lambda again: _prepared(again, model_class)[1], inputs, arguments)
    larger = next((name for name in made if name.startswith("image_")), None)
    if larger is not None and not arguments and comes_to_one(model, inputs, made[larger], seed):
        return _with_larger_images(test_case, model_class, seed)
    kept = {name: probe for name, probe in probes.items() if not _is_made(name, probe, made, inputs)}
    made |= padded_beside_longer(inputs, made, pad)
    return ModelCase(model, inputs, {**kept, **made}, source=Source.MODEL_TESTS)


def _with_larger_images(test_case: Any, model_class: Any, seed: int) -> ModelCase:
    """The case of a tester whose own images leave one position to some layer, made with images of twice the size."""
    changes = larger_images(test_case)
    again = set_up_again(test_case, changes)
    try:
        case = _forward_case(again, model_class, seed, changes)
    finally:
        again.doCleanups()
    note = (
        f"images of {next(iter(changes.values()))} pixels, twice the tester's: its own leave one position to a layer, "
        "which torch.export would hold fixed"
    )
    return replace(case, notes=(*case.notes, note))


def _padding_token(config: Any) -> int | None:
    """The model's own, or its text's; None where that lies beyond the tiny vocabulary."""
    text = config
    with contextlib.suppress(AttributeError, ValueError):  # not every configuration has a text, and some have several
        text = config.get_text_config()
    found = next(
        (each.pad_token_id for each in (config, text) if getattr(each, "pad_token_id", None) is not None), None
    )
    return found if found is None or found < getattr(text, "vocab_size", found + 1) else None


def _is_made(name: str, probe: Inputs, made: dict[str, Inputs], inputs: Inputs) -> bool:
    """Whether a derived probe changes nothing but what one of its kind does that the tester made."""
    kind, resized = name.partition("_")[0], _resized(probe, inputs)
    same = [other for other_name, other in made.items() if other_name.partition("_")[0] == kind]
    return bool(resized) and any(resized <= _resized(other, inputs) for other in same)


def _resized(probe: Inputs, inputs: Inputs) -> set[str]:
    """Names of the inputs that have another shape in ``probe``."""
    shapes = {name: [leaf.shape for leaf in _tensors(value)] for name, value in inputs.items()}
    return {name for name, value in probe.items() if [leaf.shape for leaf in _tensors(value)] != shapes[name]}


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _prepared(test_case: Any, model_class: Any) -> tuple[Any, Inputs]:
    """The configuration and the inputs of a forward that a test class makes for ``model_class``."""
    tester = getattr(test_case, "model_tester", None)
    for method in ("prepare_config_and_inputs_for_model_class", "prepare_config_and_inputs_for_common"):
        if hasattr(tester, method):
            break
    else:
        message = f"{type(test_case).__name__} has no model_tester that prepares a config and inputs"
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, message)
    with _nothing_masked(tester):
        config, inputs = getattr(tester, method)(*((model_class,) if method.endswith("model_class") else ()))
    if hasattr(test_case, "_prepare_for_class"):
        inputs = test_case._prepare_for_class(inputs, model_class)
    return config, _cleaned(inputs, model_class.__name__)


def _generate_case(test_case: Any, model_class: Any, seed: int) -> ModelCase:
    """Our prompts, of which some rows are padded, where they feed what the tester's do; otherwise the tester's."""
    config, inputs = _prompted(test_case, model_class)
    switch_on_cache(config)
    model = _build(model_class, config, seed)
    switch_on_cache(model.config)
    _forbid_placeholders(model)
    media = {name for name, value in inputs.items() if name not in _TEXT and value.is_floating_point()}
    with contextlib.suppress(Unavailable):
        prompts, probes = build_prompts(model, seed)
        fits = media <= set(prompts) and _takes(model, prompts, seed) if media else set(prompts) <= _TEXT
        if fits:
            return ModelCase(model, prompts, probes, source=Source.MODEL_TESTS)
    model.generation_config.use_cache = True
    others = {"other_prompt": (), "batch_1": (1,), "batch_3": (3,)}
    probes = {name: _prompted(test_case, model_class, *batch)[1] for name, batch in others.items()}
    side = "pad_right" if model.config.is_encoder_decoder else "pad_left"  # decoding goes on behind the text
    padded = padding_probes(inputs, _padding_token(model.config))
    probes.update({name: probe for name, probe in padded.items() if name == side})
    return ModelCase(model, inputs, probes, source=Source.MODEL_TESTS)


def _forbid_placeholders(model: Any) -> None:
    """Keep a model of random weights from saying the tokens that stand for pictures and sound, as none of real ones
    does: what it then reads would want features that nobody has."""
    found = {placeholder_id(model.config, modality) for modality in PLACEHOLDERS} - {None}
    settings = getattr(model, "generation_config", None)
    if found and settings is not None:
        settings.suppress_tokens = sorted({*(settings.suppress_tokens or ()), *found})


def _takes(model: Any, inputs: Inputs, seed: int) -> bool:
    """Whether eager takes prompts with media, whose sizes we may have guessed wrong."""
    try:
        run_eager(model, inputs, seed)
    except Exception:  # whatever a model says of inputs that do not fit
        return False
    return True


def _prompted(test_case: Any, model_class: Any, *batch: int) -> tuple[Any, Inputs]:
    """The configuration, and the tensors that ``generate`` takes, ``attention_mask`` among them where there is text."""
    with _nothing_masked(getattr(test_case, "model_tester", None)):
        config, inputs = test_case.prepare_config_and_inputs_for_generate(*batch)
    cleaned = _cleaned(inputs, model_class.__name__)
    prompts = {name: value for name, value in cleaned.items() if isinstance(value, torch.Tensor)}
    if "input_ids" in prompts:
        prompts.setdefault("attention_mask", torch.ones_like(prompts["input_ids"]))
    return config, prompts


def _build(model_class: Any, config: Any, seed: int) -> Any:
    _require_small(model_class, config)
    torch.manual_seed(seed)
    return model_class(config).eval().float().cpu()


def _require_small(model_class: Any, config: Any) -> None:
    """Count bytes on the meta device, so that what is too big is never built."""
    model = on_meta(model_class, config)
    if model is None:
        return
    size = sum(tensor.numel() * 4 for tensor in (*model.parameters(), *model.buffers()))
    if size > MAX_BYTES:
        takes, limit = (f"{count / 2**30:.1f} GiB" for count in (size, MAX_BYTES))
        message = f"{model_class.__name__} would take {takes} in float32; the limit is {limit}"
        raise Unavailable(UnavailableCause.TOO_BIG, message)


@contextmanager
def _nothing_masked(tester: Any) -> Iterator[None]:
    """Testers of sound pad it at random, and place as many placeholders as their mask leaves: let it leave all."""
    if not hasattr(tester, "create_audio_mask"):
        yield
        return
    masked = tester.create_audio_mask
    with mock.patch.object(tester, "create_audio_mask", lambda *arguments: torch.ones_like(masked(*arguments))):
        yield


def _cleaned(inputs: Inputs, class_name: str) -> Inputs:
    """Inputs of an inference on CPU in float32, with nothing masked: padding is a probe's business."""
    wanted = {
        name: value
        for name, value in inputs.items()
        if value is not None and name not in _LEFT_OUT and not makes_a_loss(class_name, name, value)
    }
    if inputs.get("return_loss"):
        wanted["return_loss"] = False  # without it, some go by their configuration
    moved: Inputs = pytree.tree_map_only(torch.Tensor, _on_cpu, wanted)
    return {name: torch.ones_like(value) if _is_padding_mask(name, value) else value for name, value in moved.items()}


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.is_floating_point() else tensor


def _is_padding_mask(name: str, value: Any) -> bool:
    """Whether it says where padding is. Random zeros, as testers like them, are no padding that a tokenizer makes.

    Not masks of features, such as ``feature_attention_mask``: as many placeholders stand for these as they leave.
    """
    return name in _PADDING_MASKS and isinstance(value, torch.Tensor) and value.ndim == 2


@contextmanager
def _seeded(test_case: Any, seed: int) -> Iterator[None]:
    """Seed what a tester may draw from; every state comes back as it was."""
    own = list(_generators(test_case))
    states = [generator.getstate() for generator in own]
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            for generator in own:
                generator.seed(seed)
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            yield
    finally:
        for generator, state in zip(own, states, strict=True):
            generator.setstate(state)
        random.setstate(python)
        np.random.set_state(numpy)


def _generators(test_case: Any) -> Iterable[random.Random]:
    """Random generators of the modules that the test class is made of, and of the functions in those: transformers'
    tests draw ids and pixels from one."""
    names = {base.__module__ for base in type(test_case).__mro__}
    own = [vars(sys.modules[name]) for name in sorted(names & set(sys.modules))]
    used = [value.__globals__ for space in own for value in space.values() if isinstance(value, FunctionType)]
    found = (value for space in (*own, *used) for value in list(space.values()))
    return {id(value): value for value in found if type(value) is random.Random}.values()
