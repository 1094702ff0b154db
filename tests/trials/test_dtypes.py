"""Trials on half precision in ONNX: graphs that cannot be loaded, and kernels that a runtime does not have."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

from exporters import OnnxExporter
from exporters.runtime.session import UnsupportedByRuntime

pytestmark = pytest.mark.export

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
}


class Embedded(torch.nn.Module):
    """inputs_embeds: (batch, length, 32), float16. attention_mask: (batch, length)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(inputs_embeds=inputs_embeds, attention_mask=attention_mask)[0]
        return found


def _half_bert() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = Embedded(BertModel(BertConfig(**SIZES, initializer_range=0.2)).half()).eval()
    return model, (torch.randn(2, 8, 32).half(), torch.ones(2, 8, dtype=torch.long))


def test_T16_what_the_checker_passes_need_not_load(tmp_path: Path) -> None:
    """https://github.com/pytorch/pytorch/issues/190338

    When this passes, the old exporter writes one type: nothing here depends on it.
    """
    model, inputs = _half_bert()
    file = str(tmp_path / "bert.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, inputs, file, dynamo=False, verbose=False)
    onnx.checker.check_model(file)
    with pytest.raises(Exception, match=r"\(LayerNormalization\) bound to different types"):
        onnxruntime.InferenceSession(file)


def test_T16_a_half_precision_bert_loads_and_is_right() -> None:
    """https://github.com/pytorch/pytorch/issues/190338, and with all of the CPU's fusions on, as in
    https://github.com/microsoft/onnxruntime/issues/17689."""
    model, (embeddings, mask) = _half_bert()
    artifact = OnnxExporter().export_artifact(model, {"inputs_embeds": embeddings, "attention_mask": mask})
    norms = [node for node in artifact.program.model.graph if node.op_type == "LayerNormalization"]
    assert len(norms) == 3
    assert all(len({value.dtype for value in node.inputs}) == 1 for node in norms)
    with torch.no_grad():
        expected = model(embeddings, mask)
    feeds = {"inputs_embeds": embeddings.numpy(), "attention_mask": mask.numpy()}
    for level in ("ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(artifact.program.model_proto.SerializeToString(), options)
        (found,) = session.run(None, feeds)
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-2, atol=1e-2)


def _roberta(dtype: torch.dtype) -> Any:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    torch.manual_seed(0)
    return RobertaForSequenceClassification(RobertaConfig(**SIZES)).to(dtype).eval()


def _repeated(batch: int) -> dict[str, torch.Tensor]:
    ids = torch.tensor([[0, 9, 23, 2]]).repeat(batch, 1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_T17_bfloat16_is_a_kernel_that_onnxruntime_lacks_and_no_fault_of_the_graph() -> None:
    """https://github.com/pytorch/pytorch/issues/143643

    When this passes, ONNX Runtime computes bfloat16 on the CPU: compare the numbers instead.
    """
    artifact = OnnxExporter().export_artifact(_roberta(torch.bfloat16), _repeated(128))
    onnx.checker.check_model(artifact.program.model_proto)
    with pytest.raises(UnsupportedByRuntime, match="NOT_IMPLEMENTED : Could not find an implementation for"):
        artifact(**_repeated(128))


def test_T17_control_float32_runs() -> None:
    model = _roberta(torch.float32)
    artifact = OnnxExporter().export_artifact(model, _repeated(128))
    with torch.no_grad():
        expected = model(**_repeated(5)).logits
    torch.testing.assert_close(artifact(**_repeated(5))["logits"], expected, rtol=1e-4, atol=1e-4)
