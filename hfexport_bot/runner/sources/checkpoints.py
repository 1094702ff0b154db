"""Fourth source: a checkpoint of the hub that the settings name, fetched before and read here without a network."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from hfexport_bot.runner.sources.cases import ModelCase, Unavailable, Wanted, unavailable
from hfexport_bot.runner.sources.configs import switch_off_cache, switch_on_cache
from hfexport_bot.runner.sources.inputs import build_inputs
from hfexport_bot.runner.sources.prompts import build_prompts
from hfexport_bot.runner.sources.sizes import count_parameters, on_meta
from hfexport_bot.schema import Source, Task, UnavailableCause

#: Most bytes that a model's weights may take in float32.
MAX_BYTES = 5 << 30


def case_from_checkpoint(wanted: Wanted) -> ModelCase | None:
    """The model in ``wanted.checkpoint``, with inputs made for its configuration; None where none is named.

    Weights that the checkpoint lacks, such as a head's, are random and the same for the same seed. Raises
    ``Unavailable`` where it could not be fetched (hub access), is another model's (invalid config), is too big, or the
    inputs cannot be guessed.
    """
    if wanted.variant:
        return None  # its switches are turned where its configuration is made
    if wanted.checkpoint is None:
        if not wanted.no_checkpoint:
            return None
        raise Unavailable(UnavailableCause.HUB_ACCESS, wanted.no_checkpoint)
    model_class: Any = wanted.model_class
    origin = _name(wanted.checkpoint)
    set_cache = switch_on_cache if wanted.task is Task.GENERATE else switch_off_cache
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(wanted.seed)
        config = _config(model_class, wanted.checkpoint, origin)
        _require_size(model_class, config, wanted.checkpoint, origin)
        set_cache(config)
        try:
            model = model_class.from_pretrained(
                wanted.checkpoint, config=config, local_files_only=True, use_safetensors=True
            )
        except Exception as error:  # whatever the class's own code raises
            doing = f"{model_class.__name__} cannot be loaded from {origin}"
            raise unavailable(error, UnavailableCause.INVALID_CONFIG, doing) from error
        model = model.eval().float()
        set_cache(model.config)
        make_inputs = build_prompts if wanted.task is Task.GENERATE else build_inputs
        inputs, probes = make_inputs(model, wanted.seed)
    return ModelCase(model, inputs, probes, source=Source.CHECKPOINT, origin=origin)


def _config(model_class: Any, folder: Path, origin: str) -> Any:
    """The checkpoint's configuration, if it is one of ``model_class``."""
    config_class = getattr(model_class, "config_class", None)
    if config_class is None or not hasattr(model_class, "from_pretrained"):
        message = f"{model_class.__name__} is no class of transformers that loads checkpoints"
        raise Unavailable(UnavailableCause.INVALID_CONFIG, message)
    try:
        model_type = json.loads((folder / "config.json").read_text()).get("model_type")
        config = config_class.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise unavailable(error, UnavailableCause.INVALID_CONFIG, f"the configuration of {origin} is wrong") from error
    expected = getattr(config_class, "model_type", "")
    if model_type and expected and model_type != expected:
        message = f"{origin} is a {model_type}, and {model_class.__name__} is a {expected}"
        raise Unavailable(UnavailableCause.INVALID_CONFIG, message)
    return config


def _require_size(model_class: Any, config: Any, folder: Path, origin: str) -> None:
    """Refuse what is too big before it is built, by its configuration and by its weights."""
    model = on_meta(model_class, config)
    count = max(count_parameters(model) if model is not None else 0, _parameters_in_files(folder, origin))
    if 4 * count > MAX_BYTES:
        raise Unavailable(
            UnavailableCause.TOO_BIG,
            f"{origin} takes {4 * count / 1e9:.1f} GB in float32; the limit is {MAX_BYTES / 1e9:.1f} GB",
        )


def _parameters_in_files(folder: Path, origin: str) -> int:
    """As the headers of the files say, without reading a tensor."""
    try:
        return sum(_in_file(file) for file in folder.glob("*.safetensors"))
    except Exception as error:
        raise unavailable(error, UnavailableCause.INVALID_CONFIG, f"the weights of {origin} cannot be read") from error


def _in_file(file: Path) -> int:
    with safe_open(file, framework="pt") as tensors:
        names = tensors.keys()  # an opened file is not iterable itself
        return sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)


def _name(folder: Path) -> str:
    """``repository@commit`` of a folder ``org--name/commit``, as it was fetched."""
    return f"{folder.parent.name.replace('--', '/', 1)}@{folder.name[:12]}"
