"""Stage ``signature``: a forward that takes exactly the sample inputs.

Most forwards end in ``**kwargs``, which torch.export would turn into one nested argument whose structure matches
neither the inputs nor their dynamic shapes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def flat_signature(model: torch.nn.Module, names: Iterable[str], constants: Mapping[str, Any]) -> Iterator[None]:
    """Give ``model.forward`` the parameters ``names``, with ``constants`` passed along unseen, while inside."""
    original = model.forward
    shadowed = "forward" in vars(model)

    def forward(**inputs: Any) -> Any:
        return original(**inputs, **constants)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature([inspect.Parameter(n, kind, default=None) for n in names])  # type: ignore[attr-defined]
    model.forward = forward
    try:
        yield
    finally:
        if shadowed:
            model.forward = original
        else:
            del model.forward
