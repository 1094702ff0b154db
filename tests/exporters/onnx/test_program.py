"""What an exported model weighs, and where its weights lie."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from exporters import Artifact, OnnxExporter
from exporters.onnx import program as onnx_program
from tests.exporters.models import Mean, bert_inputs, mean_inputs

pytestmark = pytest.mark.export

#: Loads an artifact in a process of its own, runs it and says how far it is from what was expected.
_RUN = (
    "import sys, torch; from exporters import Artifact\n"
    "inputs, expected = torch.load(sys.argv[2])\n"
    "outputs = Artifact.load(sys.argv[1])(**inputs)\n"
    "assert outputs.keys() == expected.keys(), outputs.keys()\n"
    "for name, value in expected.items(): torch.testing.assert_close(outputs[name], value, rtol=1e-4, atol=1e-4)\n"
)


def run_elsewhere(folder: Path, inputs: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    data = folder.with_suffix(".pt")
    torch.save((inputs, expected), data)
    subprocess.run([sys.executable, "-c", _RUN, str(folder), str(data)], check=True)


@pytest.fixture
def nothing_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_program, "MAX_INLINE_BYTES", 0)


@pytest.mark.usefixtures("nothing_inline")
def test_weights_too_large_for_one_message_lie_beside_the_model(tmp_path: Path) -> None:
    model, inputs = Mean().eval(), mean_inputs(3, 7)
    artifact = OnnxExporter().export_artifact(model, mean_inputs())
    expected = artifact(**inputs)
    torch.testing.assert_close(expected["logits"], model(**inputs)["logits"])
    torch.testing.assert_close(artifact.program(**inputs)[0], expected["logits"])
    file = artifact.save(tmp_path / "first")
    assert {each.name for each in file.parent.iterdir()} == {"model.onnx", "model.onnx.data", "artifact.json"}
    kept = onnx.load(file, load_external_data=False).graph.initializer
    assert {each.name for each in kept if each.data_location == onnx.TensorProto.EXTERNAL} >= {"embeddings.weight"}
    # A loaded artifact takes its weights along, and lets itself be saved where it lies.
    loaded = Artifact.load(file.parent)
    loaded.save(file.parent)
    loaded.save(tmp_path / "second")
    shutil.rmtree(file.parent)
    run_elsewhere(tmp_path / "second", inputs, expected)


def test_small_weights_stay_in_the_model_unless_asked(tmp_path: Path) -> None:
    program = OnnxExporter().export(Mean().eval(), mean_inputs())
    program.save(tmp_path / "model.onnx")
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    program.save(tmp_path / "apart.onnx", external_data=True)
    assert (tmp_path / "apart.onnx.data").stat().st_size > 0


class Huge(torch.nn.Module):
    """2.2 GB of embeddings. ids: (batch, length)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(2_200, 250_000)

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"mean": self.table(ids).mean(-1)}


@pytest.mark.slow
def test_more_than_two_gigabytes_are_exported_saved_loaded_and_run(tmp_path: Path) -> None:
    model, inputs = Huge().eval(), {"ids": torch.randint(2_200, (3, 4))}
    artifact = OnnxExporter().export_artifact(model, {"ids": torch.zeros(2, 3, dtype=torch.long)})
    weight_bytes = artifact.program.weight_bytes
    assert weight_bytes > 2**31
    with torch.no_grad():
        expected = model(**inputs)
    torch.testing.assert_close(artifact(**inputs)["mean"], expected["mean"])
    file = artifact.save(tmp_path / "huge")
    assert file.stat().st_size < 1 << 20
    run_elsewhere(tmp_path / "huge", inputs, expected)


_SIZES: dict[str, Any] = {"vocab_size": 5_000, "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 128}


def _tied_bert() -> Any:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(**_SIZES, intermediate_size=256))


def _tied_gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    special: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**_SIZES, **special, use_cache=False))


def _shared_albert() -> Any:
    from transformers import AlbertConfig, AlbertForMaskedLM

    return AlbertForMaskedLM(AlbertConfig(**_SIZES, intermediate_size=256, embedding_size=64))


@pytest.mark.parametrize("build", [_tied_bert, _tied_gpt2, _shared_albert])
def test_tied_and_shared_weights_are_stored_once(build: Callable[[], Any], tmp_path: Path) -> None:
    model = build().eval()
    artifact = OnnxExporter().export_artifact(model, bert_inputs())
    stored = sum(parameter.nbytes for parameter in model.parameters())
    tied = model.get_input_embeddings().weight
    assert model.get_output_embeddings().weight is tied
    # Masks, positions and the like come to some hundred numbers; the smallest shared weight matrix is 64 KiB.
    assert abs(artifact.program.weight_bytes - stored) < 50_000
    # The graph itself, with the lines that its nodes come from, takes its part: less than the tied weight would.
    assert artifact.save(tmp_path).stat().st_size < stored + tied.nbytes / 2
    inputs = bert_inputs(3, 11, padded=True)
    torch.testing.assert_close(artifact(**inputs)["logits"], model(**inputs).logits, rtol=1e-4, atol=1e-4)
