"""Runs ExecuTorch programs in the ExecuTorch runtime.

A ``.pte`` file keeps no names. They are stored in it as constant methods and in the artifact's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from exporters.origins import telling_where
from exporters.runtime.session import UnsupportedByRuntime

if TYPE_CHECKING:
    from exporters.artifacts import Artifact

#: Codes of ``executorch/runtime/core/error.h`` that mean the program is sound but cannot be held here:
#: OperatorMissing, MemoryAllocationFailed, DelegateInvalidCompatibility, DelegateMemoryAllocationFailed.
#: They are written as ``0x14`` and as ``0x:14``.
_UNSUPPORTED = re.compile(r"\b0x:?(14|21|30|31)\b")


class ExecutorchSession:
    def __init__(self, artifact: Artifact) -> None:
        from executorch.runtime import Runtime

        program = artifact.program
        self._output_paths = artifact.output_paths
        # The runtime reads from this buffer for as long as the method lives.
        self._buffer = program.read_bytes() if isinstance(program, Path) else program.buffer
        try:
            self._loaded = Runtime.get().load_program(self._buffer)
            self._method = self._loaded.load_method("forward")
        except RuntimeError as error:
            if not _UNSUPPORTED.search(str(error)):
                raise
            if isinstance(program, Path):
                raise UnsupportedByRuntime(f"ExecuTorch runtime: {error}") from error
            missing = "".join(f"\nkernel '{name}' not found" for name in _missing_kernels(program))
            with telling_where([program.exported_program("forward").graph]):
                raise UnsupportedByRuntime(f"ExecuTorch runtime: {error}{missing}") from error

    def run(self, tensors: Sequence[Any]) -> dict[str, torch.Tensor]:
        """As of `Session`; a program that was traced with constants takes them in their places."""
        found = self._method.execute([x.contiguous() if isinstance(x, torch.Tensor) else x for x in tensors])
        # Inputs that the model writes into come first, constants such as None in between.
        outputs = [value for value in found if isinstance(value, torch.Tensor)][-len(self._output_paths) :]
        # Outputs live in the runtime's planned memory, which the next call writes again.
        return {path: value.clone() for path, value in zip(self._output_paths, outputs, strict=True)}


def _missing_kernels(program: Any) -> list[str]:
    """The operators of a program, as its manager emitted it, that the runtime was built without."""
    from executorch.runtime import Runtime

    there = Runtime.get().operator_registry.operator_names
    plan = next(each for each in program.executorch_program.execution_plan if each.name == "forward")
    wanted = (f"{each.name}.{each.overload}".rstrip(".") for each in plan.operators)
    return [name for name in wanted if name not in there]
