"""Runs a ``torch.export`` program with its guards on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from exporters.leaves import named_leaves

if TYPE_CHECKING:
    from exporters.artifacts import Artifact


class DynamoSession:
    def __init__(self, artifact: Artifact) -> None:
        self._program = artifact.program
        self._module = artifact.program.module()

    def run(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        given = iter(tensors)
        specs = [spec for spec in self._program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
        leaves = [spec.arg.value if isinstance(spec.arg, ConstantArgument) else next(given) for spec in specs]
        args, kwargs = pytree.tree_unflatten(leaves, self._program.call_spec.in_spec)
        with torch.no_grad():
            return named_leaves(self._module(*args, **kwargs))
