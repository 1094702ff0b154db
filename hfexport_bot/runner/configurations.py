"""What two sides' configurations of one model differ in: made so by whoever makes the model, or by the code's defaults.

A tester that makes its model with other values moves eager's numbers though the model computes what it did. A changed
default of the configuration class is the code's own doing.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hfexport_bot.schema import MAX_MESSAGE_CHARS

_Path = tuple[str, ...]

#: Say nothing of what a model computes.
_IDLE = {"transformers_version", "architectures", "model_type"}
_ABSENT = object()
#: Differences that are named, and how much of each value.
_SHOWN = 5
_VALUE_CHARS = 60


@dataclass(frozen=True)
class Configuration:
    """A configuration's values, as a nested mapping, and those of one of its class that is given nothing."""

    values: Mapping[str, Any]
    defaults: Mapping[str, Any]

    @classmethod
    def of(cls, model: torch.nn.Module) -> Configuration | None:
        """That of a model; None where it has none that can be told apart from its class's defaults."""
        config: Any = getattr(model, "config", None)
        if not hasattr(config, "to_dict"):
            return None
        try:
            texts = [json.dumps(each.to_dict(), default=repr) for each in (config, type(config)())]
        except Exception:  # one that needs arguments, or whose values have no text
            return None
        return cls(*map(json.loads, texts))

    def to_tensor(self) -> torch.Tensor:
        """As bytes, beside the tensors that are handed on."""
        return torch.tensor(list(json.dumps([self.values, self.defaults]).encode()), dtype=torch.uint8)

    @classmethod
    def from_tensor(cls, given: torch.Tensor) -> Configuration:
        """What `to_tensor` gave. Raises ``ValueError`` for anything else."""
        values, defaults = json.loads(bytes(given.tolist()))
        return cls(values, defaults)


def made_otherwise(base: Configuration, head: Configuration) -> dict[_Path, tuple[Any, Any]]:
    """Values that both sides have and that differ, base's and head's by path, though their defaults are the same."""
    own = dict(_differing(base.defaults, head.defaults))
    return {
        path: values
        for path, values in _differing(base.values, head.values)
        if not any(path[: len(other)] == other[: len(path)] for other in own)
    }


def with_values_of_base(model: torch.nn.Module, changes: Mapping[_Path, tuple[Any, Any]]) -> torch.nn.Module:
    """Another model of the same class, made with base's values. Raises whatever its class does."""
    config: Any = copy.deepcopy(model.config)
    for path, (value, _) in changes.items():
        holder: Any = config
        for part in path[:-1]:
            holder = holder[part] if isinstance(holder, dict) else getattr(holder, part)
        if isinstance(holder, dict):
            holder[path[-1]] = value
        else:
            setattr(holder, path[-1], value)
    made: torch.nn.Module = type(model)(config)
    return made.eval().float().cpu()


def listed(changes: Mapping[_Path, tuple[Any, Any]]) -> str:
    """The changes in words: ``num_layers 2 → 3``."""
    told = [
        f"{'.'.join(path)} {_short(before)} → {_short(now)}" for path, (before, now) in list(changes.items())[:_SHOWN]
    ]
    more = len(changes) - _SHOWN
    return (", ".join(told) + (f" and {more} more" if more > 0 else ""))[:MAX_MESSAGE_CHARS]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}…"


def _differing(
    base: Mapping[str, Any], head: Mapping[str, Any], inside: _Path = ()
) -> Iterator[tuple[_Path, tuple[Any, Any]]]:
    for name, before in base.items():
        now, path = head.get(name, _ABSENT), (*inside, name)
        if name in _IDLE or name.startswith("_") or now is _ABSENT:
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            yield from _differing(before, now, path)
        elif before != now:
            yield path, (before, now)
