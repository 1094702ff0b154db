"""Second source: a tiny random configuration of the class's own config class, and inputs from forward's signature."""

from __future__ import annotations

import copy
from typing import Any

import torch

from hfexport_bot.runner.sources.cases import ModelCase, Unavailable, unavailable
from hfexport_bot.runner.sources.configs import switch_off_cache, switch_on_cache, tiny_config
from hfexport_bot.runner.sources.inputs import build_inputs
from hfexport_bot.runner.sources.prompts import build_prompts
from hfexport_bot.runner.sources.weights import strengthen
from hfexport_bot.schema import Task, UnavailableCause

MAX_PARAMETERS = 5_000_000


def synthesised_case(model_class: type, seed: int, task: Task = Task.FORWARD) -> ModelCase:
    """A tiny ``model_class`` with random weights and inputs for ``task``, the same for the same ``seed``.

    Raises ``Unavailable`` with a cause from the closed list.
    """
    name = model_class.__name__
    if getattr(model_class, "forward", torch.nn.Module.forward) is torch.nn.Module.forward:
        raise Unavailable(UnavailableCause.NO_FORWARD, f"{name} has no forward of its own")
    config_class = getattr(model_class, "config_class", None)
    if config_class is None:
        raise Unavailable(UnavailableCause.INVALID_CONFIG, f"{name} names no config_class")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = tiny_config(config_class)
        set_cache = switch_on_cache if task is Task.GENERATE else switch_off_cache
        set_cache(config)
        model = _build(model_class, config, seed)
        set_cache(model.config)  # some constructors change their configuration
        generator = torch.Generator().manual_seed(seed)
        strengthen(model, generator)
        inputs, probes = build_prompts(model, seed) if task is Task.GENERATE else build_inputs(model, seed)
    return ModelCase(model, inputs, probes, source="synthesised")


def _build(model_class: Any, config: Any, seed: int) -> torch.nn.Module:
    name = model_class.__name__
    _check_size(model_class, config)
    torch.manual_seed(seed)
    try:
        model: torch.nn.Module = model_class(config)
    except Exception as error:
        doing = f"{name} cannot be built from a tiny {type(config).__name__}"
        raise unavailable(error, UnavailableCause.INVALID_CONFIG, doing) from error
    return model.eval().float()


def _check_size(model_class: Any, config: Any) -> None:
    """Count parameters on the meta device, before a field the synthesiser does not know takes gigabytes."""
    try:
        with torch.device("meta"):
            model = model_class(copy.deepcopy(config))
    except Exception:  # constructors that compute with their tensors cannot be counted this way
        return
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MAX_PARAMETERS:
        raise Unavailable(
            UnavailableCause.TOO_BIG,
            f"{model_class.__name__} has {count / 1e6:.1f} million parameters at its smallest; "
            f"the limit is {MAX_PARAMETERS / 1e6:.0f} million",
        )
