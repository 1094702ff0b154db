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


def prepare_for_cuda(model: torch.nn.Module) -> list[Any]:
    """Partitioners for the CUDA delegate, which compiles the graph for this machine's GPU with AOTInductor.

    The model may lie on either device. Its own attention kernel computes in bfloat16, so it is left out for a model of
    another dtype. Raises ``ValueError`` where there is no GPU, or no triton to compile with.
    """
    if not torch.cuda.is_available():
        raise ValueError(
            "backend 'cuda' compiles for a GPU and torch finds none here; export on a machine with one and a CUDA "
            "build of torch, or choose 'xnnpack' (CPU) or 'portable' (no delegate)"
        )
    try:
        from executorch.backends.cuda.cuda_backend import CudaBackend
        from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
        from executorch.exir.backend.compile_spec_schema import CompileSpec
    except ModuleNotFoundError as error:
        raise ValueError(
            f"backend 'cuda' needs {error.name}, which a CUDA build of torch brings; install it"
        ) from error
    specs = [CudaBackend.generate_method_name_compile_spec("forward")]
    if any(parameter.dtype is not torch.bfloat16 for parameter in model.parameters()):
        specs.append(CompileSpec("triton_kernel_mode", b"OFF"))
    return [CudaPartitioner(specs)]


def _require_cpu(model: torch.nn.Module) -> None:
    devices = {str(tensor.device) for tensor in (*model.parameters(), *model.buffers())} - {"cpu"}
    if devices:
        raise ValueError(f"the model lies on {', '.join(sorted(devices))}; move it with model.cpu() first")


_BACKEND_PREPARE: dict[str, Callable[[torch.nn.Module], list[Any]]] = {
    "xnnpack": prepare_for_xnnpack,
    "portable": prepare_for_portable,
    "cuda": prepare_for_cuda,
}


def require_backend(backend: str) -> None:
    """Raise ``ValueError`` for a backend that is not known."""
    if backend not in _BACKEND_PREPARE:
        raise ValueError(f"unknown ExecuTorch backend {backend!r}; known are {', '.join(_BACKEND_PREPARE)}")


def prepare(backend: str, model: torch.nn.Module) -> list[Any]:
    """The partitioners of a known ``backend``."""
    return _BACKEND_PREPARE[backend](model)
