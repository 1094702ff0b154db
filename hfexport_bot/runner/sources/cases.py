"""What a model source hands over: a model with its inputs, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from hfexport_bot.schema import UnavailableCause

Inputs = dict[str, Any]


@dataclass
class ModelCase:
    """A model ready to be exported.

    ``model``: in eval mode, float32 on CPU. ``inputs``: keyword arguments of its forward, every mask all ones, or of
    its ``generate``, one row padded; every axis that may vary has at least 2. ``probes``: inputs at other shapes and
    with padding, by name; eager may refuse some of them. ``source``: who made it.
    """

    model: torch.nn.Module
    inputs: Inputs
    probes: dict[str, Inputs] = field(default_factory=dict)
    source: str = "synthesised"


class Unavailable(Exception):
    """No model or no inputs could be made; ``cause`` is from the closed list, the message says what is
    missing."""

    def __init__(self, cause: UnavailableCause, message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message


class HookError(ValueError):
    """A repository's own case function is missing, raises or returns something that is no case."""


def first_line(error: BaseException) -> str:
    """The innermost cause's type and first line; libraries wrap what the reader wants to see."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def unavailable(error: Exception, otherwise: UnavailableCause, doing: str) -> Unavailable:
    """``Unavailable`` for an error met while ``doing`` something: a missing package and the hub are
    recognised, anything else has the cause ``otherwise``."""
    if isinstance(error, ImportError):
        cause = UnavailableCause.MISSING_LIBRARY
    elif isinstance(error, OSError) and _is_about_the_hub(str(error)):
        cause = UnavailableCause.HUB_ACCESS
    else:
        cause = otherwise
    return Unavailable(cause, f"{doing}: {first_line(error)}")


def _is_about_the_hub(message: str) -> bool:
    lowered = message.lower()
    return any(word in lowered for word in ("huggingface.co", "hf.co", "offline", "hf_hub", "local cache"))
