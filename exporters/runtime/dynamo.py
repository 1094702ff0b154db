"""Runs a ``torch.export`` program with its guards on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.utils import _pytree as pytree

from exporters.leaves import named_leaves

if TYPE_CHECKING:
    from exporters.artifacts import Artifact


class DynamoSession:
    def __init__(self, artifact: Artifact) -> None:
        self._program = artifact.program
        self._module = artifact.program.module()

    def run(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        args, kwargs = pytree.tree_unflatten(list(tensors), self._program.call_spec.in_spec)
        with torch.no_grad():
            return named_leaves(self._module(*args, **kwargs))
