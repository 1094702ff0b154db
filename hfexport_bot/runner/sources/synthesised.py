"""Second source: a tiny random configuration of the class's own config class, and inputs from forward's signature."""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hfexport_bot.runner.sources.cases import ModelCase, Unavailable, unavailable
from hfexport_bot.runner.sources.configs import (
    settle_media_tokens,
    settle_rope_sections,
    settle_windows,
    switch_off_cache,
    switch_on_cache,
    tiny_config,
)
from hfexport_bot.runner.sources.inputs import build_inputs
from hfexport_bot.runner.sources.kinds import HARDEST
from hfexport_bot.runner.sources.media import needed_modalities
from hfexport_bot.runner.sources.prompts import build_prompts
from hfexport_bot.runner.sources.sizes import count_parameters, on_meta
from hfexport_bot.runner.sources.variants import PLAIN, Switch, variant_case
from hfexport_bot.runner.sources.weights import strengthen
from hfexport_bot.schema import Task, UnavailableCause, Variant

MAX_PARAMETERS = 5_000_000


#: Elements of all of a model's tensors: what it may take up while it is built.
_MAX_ELEMENTS = 20 * MAX_PARAMETERS


def synthesised_case(
    model_class: type,
    seed: int,
    task: Task = Task.FORWARD,
    config_file: Path | None = None,
    variant: Variant | None = None,
) -> ModelCase:
    """A tiny ``model_class`` with random weights and inputs for ``task``, the same for the same ``seed``.

    ``config_file``: a ``config.json`` whose structure the tiny configuration keeps; by default the one beside the file
    that the class is written in, if there is one. ``variant``: a switch to turn. Raises ``Unavailable`` with a cause
    from the closed list, ``Inapplicable`` for a variant that changes nothing.
    """
    build = partial(_case, model_class, seed, task, config_file)
    return variant_case(variant, build, task) if variant else build(PLAIN)


def _case(model_class: Any, seed: int, task: Task, config_file: Path | None, switch: Switch) -> ModelCase:
    name = model_class.__name__
    if getattr(model_class, "forward", torch.nn.Module.forward) is torch.nn.Module.forward:
        raise Unavailable(UnavailableCause.NO_FORWARD, f"{name} has no forward of its own")
    if "inference_session" in inspect.signature(model_class.forward).parameters:
        message = f"{name}'s forward goes on from a session that it keeps: what it computes is not in its inputs"
        raise Unavailable(UnavailableCause.STATEFUL_FORWARD, message)
    config_class = getattr(model_class, "config_class", None)
    if config_class is None:
        raise Unavailable(UnavailableCause.INVALID_CONFIG, f"{name} names no config_class")
    given = _read_config(config_file or _config_beside(model_class))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        set_cache = switch_on_cache if task is Task.GENERATE else switch_off_cache

        def configure(config: Any) -> None:
            set_cache(config)
            switch.configure(config)

        config, counted = _fitting_config(model_class, config_class, given, configure)
        model = _build(model_class, config, seed, nullcontext() if counted else _Allowance(_MAX_ELEMENTS))
        set_cache(model.config)  # some constructors change their configuration
        generator = torch.Generator().manual_seed(seed)
        strengthen(model, generator)
        switch.adapt(model)
        if task is Task.GENERATE:
            inputs, probes = build_prompts(model, seed)
        else:
            inputs, probes = build_inputs(model, seed, switch.pictures)
        inputs = switch.feed(model, inputs)
        probes = {name: fed for name, probe in probes.items() if (fed := _fed(switch, model, probe)) is not None}
    return ModelCase(model, inputs, probes, source="synthesised")


def _fed(switch: Switch, model: Any, probe: dict[str, Any]) -> dict[str, Any] | None:
    """A probe with what the switch feeds, or None where the model refuses it."""
    try:
        return switch.feed(model, probe)
    except Exception:  # the model's own code may refuse sizes in any way it likes
        return None


def _config_beside(model_class: type) -> Path | None:
    """The ``config.json`` in the folder of the class's own file."""
    try:
        found = Path(inspect.getfile(model_class)).with_name("config.json")
    except (OSError, TypeError):  # made without a file
        return None
    return found if found.is_file() else None


def _read_config(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        given = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise unavailable(error, UnavailableCause.INVALID_CONFIG, f"{file.name} cannot be read") from error
    if not isinstance(given, dict):
        raise Unavailable(UnavailableCause.INVALID_CONFIG, f"{file.name} holds no JSON object")
    return given


def _fitting_config(
    model_class: Any, config_class: Any, given: dict[str, Any], configure: Callable[[Any], None]
) -> tuple[Any, bool]:
    """A tiny configuration whose model is small enough, told without building it; with ever more sizes shrunk. Also
    whether that could be told."""
    source = _source(model_class)
    count = before = 0
    for harder in range(HARDEST + 1):
        try:
            config = tiny_config(config_class, given, harder=harder)
            settle_windows(config, source)
            settle_rope_sections(config, "mrope_section" in source)
            if needed_modalities(model_class):
                settle_media_tokens(config, source)
            configure(config)
        except Unavailable:
            if not harder:
                raise
            continue  # its numbers do not go together any more
        model = on_meta(model_class, config)
        if model is None:
            if not harder:
                return config, False
            continue
        count = count_parameters(model)
        if count <= MAX_PARAMETERS:
            return config, True
        if harder > 1 and count == before:
            break  # no number of the configuration leads to its size
        before = count
    raise Unavailable(
        UnavailableCause.TOO_BIG,
        f"{model_class.__name__} has {_rounded(count)} parameters as its configuration was made; "
        f"the limit is {_rounded(MAX_PARAMETERS)}. A case function (`cases:` in the settings) can give a smaller one",
    )


def _rounded(count: int) -> str:
    if count >= 10**9:
        return f"{count / 1e9:,.1f} billion"
    return f"{count / 1e6:,.1f} million".replace(".0 ", " ")


def _source(model_class: type) -> str:
    """The text of the module that the class is written in."""
    try:
        return inspect.getsource(sys.modules[model_class.__module__])
    except (OSError, TypeError, KeyError):  # made without a file
        return ""


def _build(model_class: Any, config: Any, seed: int, allowance: AbstractContextManager[Any]) -> torch.nn.Module:
    name = model_class.__name__
    torch.manual_seed(seed)
    try:
        with allowance:
            model: torch.nn.Module = model_class(config)
    except _TooBig as error:
        raise Unavailable(UnavailableCause.TOO_BIG, f"{name}, as its configuration was made, {error}") from None
    except Exception as error:
        doing = f"{name} cannot be built from a tiny {type(config).__name__}"
        raise unavailable(error, UnavailableCause.INVALID_CONFIG, doing) from error
    return model.eval().float()


class _TooBig(Exception):
    """A constructor asked for more memory than it may take; the message says for how much."""


class _Allowance(TorchDispatchMode):
    """Lets tensors be made until they have too many elements in all, which is told before the memory is taken."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.left = elements

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        size = args[0] if args else ()
        if isinstance(size, (list, tuple)) and all(isinstance(length, int) for length in size):
            self.left -= math.prod(size)
            if self.left < 0:
                raise _TooBig(f"makes a tensor of {' x '.join(map(str, size))} and more than may be in all")
        return func(*args, **(kwargs or {}))
