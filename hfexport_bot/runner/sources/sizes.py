"""How big a model is, found out before it is built."""

from __future__ import annotations

import copy
from typing import Any

import torch


def on_meta(model_class: Any, config: Any) -> torch.nn.Module | None:
    """The model without memory, on the meta device, to be counted; None where its constructor cannot run there."""
    try:
        with torch.device("meta"):
            model: torch.nn.Module = model_class(copy.deepcopy(config))
    except Exception:  # one that computes with its tensors; where it is wrong, the real constructor says so
        return None
    return model


def count_parameters(model: torch.nn.Module) -> int:
    """All elements of all parameters."""
    return sum(parameter.numel() for parameter in model.parameters())
