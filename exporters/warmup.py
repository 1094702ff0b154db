"""Pay once, before processes are forked, for what the first export in a process pays."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tqdm import tqdm

from exporters.many import exporter_for


class _Smallest(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.linear(x)}


def warm_up(backends: Iterable[str]) -> None:
    """Export a two-by-two layer to each backend: imports, decomposition tables, XNNPACK's pattern graphs.

    A forked process has none of its parent's threads, so no runtime is touched and tqdm's monitor does not start.
    """
    tqdm.monitor_interval = 0
    model, inputs = _Smallest().eval(), {"x": torch.zeros(2, 2)}
    for backend in dict.fromkeys(backends):
        exporter_for(backend).export(model, inputs)
