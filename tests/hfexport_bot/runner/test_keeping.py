from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from exporters import DynamoExporter
from hfexport_bot.runner.keeping import Keeper


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x * 2}


@pytest.mark.export
def test_what_stages_made_can_be_read_again(tmp_path: Path) -> None:
    inputs = {"x": torch.ones(2, 3)}
    artifact = DynamoExporter().export_artifact(Double().eval(), inputs)
    keep = Keeper(str(tmp_path / "kept"))
    keep.tensors("inputs", inputs)
    keep.traced(artifact.program)
    keep.traced(artifact.program)
    keep.artifact("model", artifact)
    keep.outputs("runtime_outputs", artifact, inputs)
    kept = tmp_path / "kept"
    assert load_file(kept / "inputs.safetensors")["x"].equal(inputs["x"])
    assert load_file(kept / "runtime_outputs.safetensors")["y"].equal(torch.full((2, 3), 2.0))
    assert torch.export.load(kept / "traced.pt2").module()(**inputs)["y"].sum() == 12
    assert "aten.mul" in (kept / "traced-2.txt").read_text()
    assert (kept / "model/artifact.json").exists()


def test_what_cannot_be_written_is_told_and_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    Keeper(str(tmp_path / "file")).tensors("inputs", {"x": torch.ones(1)})
    assert "FileExistsError" in capsys.readouterr().err


def test_without_a_folder_nothing_is_kept() -> None:
    Keeper(None).tensors("inputs", {"x": torch.ones(1)})
