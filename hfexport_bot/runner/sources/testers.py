"""A case from a model test: transformers' test classes make a small model's configuration and its inputs.

A test class has ``all_model_classes``, and a ``model_tester`` that its ``setUp`` makes. The tester's
``prepare_config_and_inputs_for_model_class(model_class)``, or else ``prepare_config_and_inputs_for_common()``, gives a
configuration and inputs, which the test class's ``_prepare_for_class(inputs, model_class)`` fits to one class. For
``generate`` the test class's ``prepare_config_and_inputs_for_generate()`` gives the configuration; prompts are made as
for every other source.
"""

from __future__ import annotations

import random
import sys
import unittest
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from exporters.refusals import makes_a_loss
from hfexport_bot.runner.sources.cases import Inputs, ModelCase, Unavailable, unavailable
from hfexport_bot.runner.sources.configs import switch_off_cache, switch_on_cache
from hfexport_bot.runner.sources.probes import derive_probes
from hfexport_bot.runner.sources.prompts import build_prompts
from hfexport_bot.schema import Task, UnavailableCause

#: Beside labels: what makes a forward return a loss, or a cache.
_LEFT_OUT = ("future_values", "use_cache")


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
    with _seeded(test_case, seed):
        try:
            return make(test_case, model_class, seed)
        except Unavailable:
            raise
        except unittest.SkipTest as skip:
            raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, f"{name} skips it: {skip}") from skip
        except Exception as error:  # the test class is the author's code
            doing = f"{name} makes no {model_class.__name__}"
            raise unavailable(error, UnavailableCause.UNKNOWN_INPUTS, doing) from error


def model_classes(test_case: Any, task: Task = Task.FORWARD) -> tuple[type, ...]:
    """The classes a test class tests; for ``generate`` those of them that can, where the test class prepares it."""
    classes = tuple(test_case.all_model_classes or ())
    if task is Task.FORWARD:
        return classes
    if not hasattr(test_case, "prepare_config_and_inputs_for_generate"):
        return ()
    generative = getattr(test_case, "all_generative_model_classes", None)
    return tuple(c for c in classes if c.can_generate()) if generative is None else tuple(generative)


def _forward_case(test_case: Any, model_class: Any, seed: int) -> ModelCase:
    tester = getattr(test_case, "model_tester", None)
    for method in ("prepare_config_and_inputs_for_model_class", "prepare_config_and_inputs_for_common"):
        if hasattr(tester, method):
            break
    else:
        message = f"{type(test_case).__name__} has no model_tester that prepares a config and inputs"
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, message)
    config, inputs = getattr(tester, method)(*((model_class,) if method.endswith("model_class") else ()))
    if hasattr(test_case, "_prepare_for_class"):
        inputs = test_case._prepare_for_class(inputs, model_class)
    switch_off_cache(config)
    model = _build(model_class, config, seed)
    switch_off_cache(model.config)
    inputs = _cleaned(inputs, model_class.__name__)
    probes = derive_probes(inputs, getattr(model.config, "pad_token_id", None))
    return ModelCase(model, inputs, probes, source="model tester")


def _generate_case(test_case: Any, model_class: Any, seed: int) -> ModelCase:
    config, _ = test_case.prepare_config_and_inputs_for_generate()
    switch_on_cache(config)
    model = _build(model_class, config, seed)
    switch_on_cache(model.config)
    prompts, probes = build_prompts(model, seed)
    return ModelCase(model, prompts, probes, source="model tester")


def _build(model_class: Any, config: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    return model_class(config).eval().float().cpu()


def _cleaned(inputs: Inputs, class_name: str) -> Inputs:
    """Inputs of an inference on CPU in float32, with nothing masked: padding is a probe's business."""
    wanted = {
        name: value
        for name, value in inputs.items()
        if value is not None and name not in _LEFT_OUT and not makes_a_loss(class_name, name, value)
    }
    moved: Inputs = pytree.tree_map_only(torch.Tensor, _on_cpu, wanted)
    return {name: torch.ones_like(value) if _is_padding_mask(name, value) else value for name, value in moved.items()}


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.is_floating_point() else tensor


def _is_padding_mask(name: str, value: Any) -> bool:
    """Whether it says where padding is. Random zeros, as testers like them, are no padding that a tokenizer makes."""
    named = name.endswith("attention_mask") and "global" not in name
    return named and isinstance(value, torch.Tensor) and value.ndim == 2


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
