"""What each stage of one case made, written to a folder for whoever looks into it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from exporters import Artifact
from exporters.leaves import named_leaves
from hfexport_bot.runner.eager import copied


class Keeper:
    """Writes into a folder, or nothing where there is none. What cannot be written is told in the case's log."""

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder) if folder else None
        self._traced = 0

    def tensors(self, name: str, values: Mapping[str, Any]) -> None:
        """Tensors by path, as ``NAME.safetensors``."""
        self._write(lambda folder: _save_tensors(folder / f"{name}.safetensors", values))

    def traced(self, program: ExportedProgram) -> None:
        """A traced program before anything changes it: ``traced.pt2`` and its text; further ones are numbered."""
        self._traced += 1
        name = "traced" if self._traced == 1 else f"traced-{self._traced}"
        self._write(lambda folder: (folder / f"{name}.txt").write_text(f"{program}\n"))
        self._write(lambda folder: torch.export.save(program, folder / f"{name}.pt2"))

    def artifact(self, name: str, artifact: Artifact) -> None:
        """The finished program of a component, as `Artifact.save` writes it."""
        self._write(lambda folder: artifact.save(folder / name))

    def outputs(self, name: str, artifact: Artifact, inputs: Mapping[str, Any]) -> None:
        """What the runtime gives for inputs."""
        self._write(lambda folder: _save_tensors(folder / f"{name}.safetensors", artifact(**copied(inputs))))

    def _write(self, write: Callable[[Path], object]) -> None:
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write(self._folder)
        except Exception:  # keeping must not decide how the case ends
            traceback.print_exc()


def _save_tensors(path: Path, values: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    save_file({name: tensor.detach().clone().contiguous() for name, tensor in named_leaves(dict(values)).items()}, path)
