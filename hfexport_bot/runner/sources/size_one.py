"""Axes that come down to one element somewhere inside a model, though the inputs' own axes are longer.

torch.export takes a size of one for a constant (0/1 specialization): traced on a picture that leaves one position to
the last stage, a graph is only for pictures that leave one, and traced on a larger one only for those that leave more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from hfexport_bot.runner.eager import run_eager


def comes_to_one(model: torch.nn.Module, inputs: Mapping[str, Any], larger: Mapping[str, Any], seed: int) -> bool:
    """Whether, inside the model, an axis has one element on ``inputs`` and more on ``larger``, the same inputs at a
    larger size. Where the model takes one of these not, or computes something else for them, it is not known to."""
    try:
        small, large = _made(model, inputs, seed), _made(model, larger, seed)
    except Exception:  # whatever a model says of inputs that it does not take
        return False
    pairs = list(zip(small, large, strict=False))
    return all(one[0] == other[0] for one, other in pairs) and any(
        size == 1 < more
        for (_, shape), (_, wider) in pairs
        if len(shape) == len(wider)
        for size, more in zip(shape, wider, strict=True)
    )


def _made(model: torch.nn.Module, inputs: Mapping[str, Any], seed: int) -> list[tuple[str, torch.Size]]:
    """Each tensor that a forward makes, in order: by which operator, and of which shape."""
    with _Shapes() as shapes:
        run_eager(model, inputs, seed)
    return shapes.made


class _Shapes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, torch.Size]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves(result)
        self.made += [(str(func), leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return result
