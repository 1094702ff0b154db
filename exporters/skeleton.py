"""A model without weights, to ask what hangs on its class and settings alone: positions, lengths, windows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from exporters.dynamo.pytree import class_at, class_path


def describe_model(model: Any) -> dict[str, Any] | None:
    """The class and the settings of a model that has a configuration, JSON-native; ``None`` for another module."""
    model = getattr(model, "exported_model", model)  # a part of one
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "to_json_string"):
        return None
    return {"class": class_path(type(model)), "config": json.loads(config.to_json_string(use_diff=False))}


def build_skeleton(described: Mapping[str, Any]) -> Any:
    """The described model on the meta device, in eval mode.

    Raises ``ValueError`` where its class is not to be found here, or does not take these settings.
    """
    try:
        model_class: Any = class_at(described["class"])
        if not isinstance(getattr(model_class, "config_class", None), type):
            raise TypeError("this is no class of models")
        config = model_class.config_class.from_dict(dict(described["config"]))
        with torch.device("meta"):
            return model_class(config).eval()
    except Exception as error:  # the class's own code may raise anything
        raise ValueError(
            f"{described.get('class')} cannot be built from the saved settings ({type(error).__name__}: {error}); "
            "its inputs are prepared by it, so install the version that exported it"
        ) from error
