"""torchlib's registry of translations, built once per process instead of once per export."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from exporters.registry import replaced, resolve

#: Private, so it is looked up: without it torch.onnx builds its registry anew, which is slower and as right.
_FROM_TORCHLIB = "torch.onnx._internal.exporter._registration.ONNXRegistry.from_torchlib"

_built: dict[tuple[Any, ...], Any] = {}


@contextmanager
def shared_registry() -> Iterator[None]:
    """Let torch.onnx start from a copy of the registry that this process has built for the same arguments."""
    place = resolve(_FROM_TORCHLIB)
    if place is None:
        yield
        return
    owner, name = place
    build = getattr(owner, name)

    def from_torchlib(*args: Any, **kwargs: Any) -> Any:
        key = (*args, *sorted(kwargs.items()))
        if key not in _built:
            _built[key] = build(*args, **kwargs)
        registry = copy.copy(_built[key])
        # Custom translations are put into these lists.
        registry.functions = {operator: list(found) for operator, found in registry.functions.items()}
        return registry

    with replaced(owner, name, staticmethod(from_torchlib)):  # torch.onnx calls it on an instance
        yield
