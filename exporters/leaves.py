"""Names for the tensors inside nested inputs and outputs: ``past_key_values.layers.0.keys``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def path_name(path: Iterable[Any]) -> str:
    """A pytree key path as attribute names and indices joined by dots; a bare tensor is called ``output``."""
    parts = []
    for key in path:
        for attribute in ("key", "idx", "name"):
            if hasattr(key, attribute):
                parts.append(str(getattr(key, attribute)))
                break
        else:
            parts.append(str(key))
    return ".".join(parts) or "output"


def named_leaves(tree: Any) -> dict[str, Any]:
    """Every tensor in a nested structure by its path, in the order torch.export flattens it.

    Dicts, lists, tuples, ModelOutputs and whatever is registered as a pytree are entered; what is no tensor is left
    out.
    """
    flat, _ = pytree.tree_flatten_with_path(tree)
    names = _distinct(path_name(path) for path, _ in flat)
    return {name: leaf for name, (_, leaf) in zip(names, flat, strict=True) if isinstance(leaf, torch.Tensor)}


def spec_names(spec: pytree.TreeSpec) -> list[str]:
    """The paths of a tree specification's leaves, in order."""
    stand_ins = [torch.empty(0) for _ in range(spec.num_leaves)]  # a cache takes only tensors for leaves
    flat, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(stand_ins, spec))
    return _distinct(path_name(path) for path, _ in flat)


def _distinct(names: Iterable[str]) -> list[str]:
    """Names that no two paths share: ``{"a.b": …, "a": {"b": …}}`` holds two tensors."""
    found: dict[str, None] = {}
    for wanted in names:
        name = wanted
        while name in found:
            name += "_"
        found[name] = None
    return list(found)
