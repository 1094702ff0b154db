"""Run an artifact in the runtime it was made for, inputs bound by name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from exporters.packages import require
from exporters.runtime.session import Session, UnsupportedByRuntime

if TYPE_CHECKING:
    from exporters.artifacts import Artifact

__all__ = ["Session", "UnsupportedByRuntime", "open_session", "write_program"]


def open_session(artifact: Artifact) -> Session:
    """Load an artifact's program. Raises ``UnsupportedByRuntime`` where the runtime cannot hold it, ``ImportError``
    where it is not installed."""
    if artifact.backend == "onnx":
        require("onnx", "an ONNX artifact", "onnxruntime")
        from exporters.runtime.onnx import OnnxSession

        return OnnxSession(artifact)
    if artifact.backend == "executorch":
        require("executorch", "an ExecuTorch artifact")
        from exporters.runtime.executorch import ExecutorchSession

        return ExecutorchSession(artifact)
    from exporters.runtime.dynamo import DynamoSession

    return DynamoSession(artifact)


def write_program(artifact: Artifact, target: Path) -> None:
    """Write an artifact's native program to ``target``."""
    program = artifact.program
    if isinstance(program, Path):
        _copy_program(program, target)
    elif artifact.backend == "onnx":
        program.save(target)
    elif artifact.backend == "executorch":
        with target.open("wb") as file:
            program.write_to_file(file)
    else:
        import torch

        torch.export.save(program, target)


def _copy_program(program: Path, target: Path) -> None:
    """Copy a program's file, and the file of its weights that may lie beside an ONNX model."""
    if program.resolve() == target.resolve():
        return
    shutil.copyfile(program, target)
    weights = program.with_name(f"{program.name}.data")
    if weights.exists():
        shutil.copyfile(weights, target.with_name(f"{target.name}.data"))
