"""Stage ``backend_preparation``: what each ExecuTorch delegate needs of a model, and its partitioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def prepare_for_xnnpack(model: torch.nn.Module) -> list[Any]:
    """Partitioners for XNNPACK, which runs float32 subgraphs on the CPU. Raises ``ValueError`` off the CPU."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    _require_cpu(model)
    return [XnnpackPartitioner()]


def prepare_for_portable(model: torch.nn.Module) -> list[Any]:
    """No delegate: everything runs in ExecuTorch's portable kernels. Raises ``ValueError`` off the CPU."""
    _require_cpu(model)
    return []


def _require_cpu(model: torch.nn.Module) -> None:
    devices = {str(tensor.device) for tensor in (*model.parameters(), *model.buffers())} - {"cpu"}
    if devices:
        raise ValueError(f"the model lies on {', '.join(sorted(devices))}; move it with model.cpu() first")


_BACKEND_PREPARE: dict[str, Callable[[torch.nn.Module], list[Any]]] = {
    "xnnpack": prepare_for_xnnpack,
    "portable": prepare_for_portable,
}


def prepare(backend: str, model: torch.nn.Module) -> list[Any]:
    """The partitioners of ``backend``. Raises ``ValueError`` for an unknown one."""
    if backend not in _BACKEND_PREPARE:
        raise ValueError(f"unknown ExecuTorch backend {backend!r}; known are {', '.join(_BACKEND_PREPARE)}")
    return _BACKEND_PREPARE[backend](model)
