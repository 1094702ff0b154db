"""What every runtime offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch


class UnsupportedByRuntime(RuntimeError):
    """The program is well formed, but its runtime has no kernel for it or cannot plan its memory."""


class Session(Protocol):
    """A loaded program."""

    def run(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Run on tensors in graph order; outputs by path. Raises what the runtime raises when it refuses a shape."""
        ...
