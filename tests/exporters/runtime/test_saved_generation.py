from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import DynamoExporter, GenerationExport, OnnxExporter
from exporters.base import HfExporter
from tests.exporters.test_generation import llama, prompt

pytestmark = [pytest.mark.export, pytest.mark.process]

ROOT = Path(__file__).parents[3]
GENERATE = """
import sys, torch
if sys.argv[2] == "onnx": sys.modules["transformers"] = None
from exporters import GenerationExport
inputs, expected = torch.load(sys.argv[1] + "/expected.pt")
export = GenerationExport.load(sys.argv[1], allow_pickle=True)
assert torch.equal(export.generate(**inputs, max_new_tokens=6), expected)
"""


@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter()], ids=lambda e: e.backend)
def test_a_saved_export_generates_in_a_new_process(exporter: HfExporter, tmp_path: Path) -> None:
    model, inputs = llama(num_hidden_layers=1), prompt(3, 9, padding=4)
    export = exporter.export_for_generation(model, prompt(2, 6, padding=2))
    assert export.save(tmp_path) == tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decode", "generation.json", "prefill"]
    torch.save((inputs, model.generate(**inputs, max_new_tokens=6, do_sample=False)), tmp_path / "expected.pt")
    subprocess.run(
        [sys.executable, "-c", GENERATE, str(tmp_path), exporter.backend],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert GenerationExport.load(tmp_path, allow_pickle=True).ending == export.ending


def _write(**saved: Any) -> Callable[[Path], Any]:
    return lambda folder: (folder / "generation.json").write_text(json.dumps({"format": 1, **saved}))


ENDING = {"eos": [2], "pad": 0}


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: None, "is no saved export: generation.json cannot be read"),
        (_write(format=9), "has format 9"),
        (_write(steps=["prefill", "decode"]), r"generation.json is damaged \(KeyError: 'ending'\)"),
        (_write(steps=["prefill"], ending=ENDING), "without prefill or decode"),
        (
            _write(steps=["prefill", "decode"], ending=ENDING),
            "prefill is no saved export: artifact.json cannot be read",
        ),
    ],
)
def test_a_damaged_folder_gives_one_clear_error(tmp_path: Path, write: Callable[[Path], Any], message: str) -> None:
    write(tmp_path)
    with pytest.raises(ValueError, match=message):
        GenerationExport.load(tmp_path)
