"""Stage ``state_cleanup``: tracing leaves no trace on the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

#: Attributes in which models keep tensors from one forward to the next. They are emptied for the trace, so that an
#: earlier eager forward does not end up in the graph as a constant.
_STATEFUL_CACHE_ATTRS = (
    "cached_rotary_positional_embedding",
    "cached_sequence_length",
)

_REGISTRIES = ("_parameters", "_buffers", "_modules")


@contextmanager
def preserved_state(model: torch.nn.Module) -> Iterator[None]:
    """Empty the stateful attributes; on leaving, give every submodule the attributes it had on entering.

    What the trace planted on a module (a fake tensor in a memo, say) goes. Tensors are kept by reference, not copied.
    """
    saved = [
        (module, dict(vars(module)), {name: dict(vars(module)[name]) for name in _REGISTRIES})
        for module in model.modules()
    ]
    try:
        for module, attributes, _ in saved:
            for name in _STATEFUL_CACHE_ATTRS:
                if name in attributes:
                    setattr(module, name, None)
        yield
    finally:
        for module, attributes, registries in saved:
            vars(module).clear()
            vars(module).update(attributes)
            for name, entries in registries.items():
                registry = vars(module)[name]
                registry.clear()
                registry.update(entries)
