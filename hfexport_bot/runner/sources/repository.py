"""First source: a function of the repository under test, named in its settings.

The function takes a class name and a seed. It returns None (not mine) or a mapping with ``model`` (a torch module) and
``inputs`` (keyword arguments of its forward), and may give ``probes`` (a mapping from a name to inputs). For the task
``generate`` only its model is taken: prompts are made from the model's vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from hfexport_bot.runner.sources.cases import Hook, HookError, Inputs, ModelCase, Wanted, first_line, unavailable
from hfexport_bot.runner.sources.configs import switch_off_cache, switch_on_cache
from hfexport_bot.runner.sources.probes import derive_probes
from hfexport_bot.runner.sources.prompts import build_prompts
from hfexport_bot.schema import Task, UnavailableCause

_KEYS = {"model", "inputs", "probes"}


def load_hook(reference: str, tree: Path, load: Callable[[str], ModuleType]) -> Hook:
    """The function that ``path/to/file.py:function`` names, the path relative to ``tree``.

    ``load`` imports a file of the tree by its path, so that the function shares the model's own modules.
    Raises ``HookError`` that says what is wrong with the reference or the file.
    """
    path_text, colon, name = reference.rpartition(":")
    if not colon or not path_text or not name.isidentifier():
        raise HookError(f"{reference!r} names no function; write it as path/to/file.py:function")
    path = (tree / path_text).resolve()
    if not path.is_relative_to(tree.resolve()):
        raise HookError(f"{path_text!r} lies outside the repository; give a path relative to its root")
    if not path.is_file():
        raise HookError(f"the repository has no file {path_text!r}, which its case function should be in")
    try:
        module = load(path_text)
    except SystemExit as error:
        raise HookError(f"importing {path_text!r} exits ({error.code})") from error
    except Exception as error:
        raise HookError(f"importing {path_text!r} failed: {first_line(error)}") from error
    hook = getattr(module, name, None)
    if not callable(hook):
        names = sorted(key for key, value in vars(module).items() if callable(value) and key[0] != "_")
        raise HookError(f"{path_text!r} has no function {name!r}; it has {', '.join(names) or 'none'}")
    return hook


def case_from_hook(wanted: Wanted) -> ModelCase | None:
    """The repository's own case, or None when there is no hook or it passes; a hook makes no variants.

    Raises ``HookError`` for a hook that raises or returns something else, ``Unavailable`` when a library is missing.
    """
    name, seed = wanted.model_class.__name__, wanted.seed
    if wanted.hook is None or wanted.variant is not None:
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            found = wanted.hook(name, seed)
    except ImportError as error:
        raise unavailable(error, UnavailableCause.MISSING_LIBRARY, "the repository's case function") from error
    except SystemExit as error:
        raise HookError(f"the case function exits ({error.code}) for {name}") from error
    except Exception as error:
        raise HookError(f"the case function raised for {name}: {first_line(error)}") from error
    if found is None:
        return None
    model, inputs, probes = _validated(found, name)
    model = model.eval().float().cpu()
    config = getattr(model, "config", None)
    if wanted.task is Task.GENERATE:
        inputs, probes = _prompts(model, config, seed)
    else:
        switch_off_cache(config)
    if probes is None:
        probes = derive_probes(inputs, getattr(config, "pad_token_id", None))
    return ModelCase(model, inputs, probes, source="repository")


def _prompts(model: Any, config: Any, seed: int) -> tuple[Inputs, dict[str, Inputs]]:
    if config is None or not callable(getattr(model, "generate", None)) or not model.can_generate():
        raise HookError(f"the case function's {type(model).__name__} cannot generate; give a model that can, or None")
    switch_on_cache(config)
    return build_prompts(model, seed)


def _validated(found: Any, class_name: str) -> tuple[torch.nn.Module, Inputs, dict[str, Inputs] | None]:
    prefix = f"the case function's answer for {class_name}"
    if not isinstance(found, Mapping):
        raise HookError(f"{prefix} should be None or a mapping with 'model' and 'inputs', not {_kind(found)}")
    unknown = sorted(map(str, set(found) - _KEYS))
    missing = sorted({"model", "inputs"} - set(found))
    if unknown or missing:
        said = [f"lacks {key!r}" for key in missing] + [f"has the unknown key {key!r}" for key in unknown]
        raise HookError(f"{prefix} {' and '.join(said)}; it takes 'model', 'inputs' and optionally 'probes'")
    if not isinstance(found["model"], torch.nn.Module):
        raise HookError(f"{prefix}: 'model' should be a torch.nn.Module, not {_kind(found['model'])}")
    inputs = _validated_inputs(found["inputs"], f"{prefix}: 'inputs'")
    probes = found.get("probes")
    if probes is None:
        return found["model"], inputs, None
    if not isinstance(probes, Mapping) or not all(isinstance(name, str) for name in probes):
        raise HookError(f"{prefix}: 'probes' should map names to inputs, not be {_kind(probes)}")
    checked = {name: _validated_inputs(value, f"{prefix}: probe {name!r}") for name, value in probes.items()}
    return found["model"], inputs, checked


def _validated_inputs(value: Any, prefix: str) -> Inputs:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise HookError(f"{prefix} should map argument names of forward to values, not be {_kind(value)}")
    if not any(isinstance(item, torch.Tensor) for item in value.values()):
        raise HookError(f"{prefix} should hold at least one tensor")
    return dict(value)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
