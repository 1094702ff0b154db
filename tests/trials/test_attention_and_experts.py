"""Trials on single mechanisms: experts, attention with masks, attention in groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from exporters import DynamoExporter, OnnxExporter
from tests.exporters.models import assert_equals_eager

pytestmark = pytest.mark.export

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.5,
}


def text(batch: int, length: int, left: int = 0, right: int = 0) -> dict[str, Any]:
    """The first row is padded."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, :left] = 0
    mask[0, length - right :] = 0
    return {"input_ids": torch.randint(3, 128, (batch, length)), "attention_mask": mask, "use_cache": False}


def mixtral(experts: str) -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    model = MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)).eval()
    model.set_experts_implementation(experts)
    return model


DATA_DEPENDENT = r"Could not (extract specialized integer from|guard on) data-dependent expression"
EAGER_EXPERTS = "dynamo/model_patches/patch_eager_experts"


def test_T01_plain_export_stops_at_the_experts_that_were_hit() -> None:
    """https://github.com/huggingface/transformers/issues/38518

    When this passes, eager experts are exportable as they are: remove the patch ``patch_eager_experts``.
    """
    with pytest.raises(Exception, match=DATA_DEPENDENT):
        torch.export.export(mixtral("eager"), (), kwargs=text(2, 8), strict=False)
    without = {"disabled": {EAGER_EXPERTS}}
    with pytest.raises(Exception, match=DATA_DEPENDENT):
        DynamoExporter().export(mixtral("eager"), text(2, 8), without)


@pytest.mark.parametrize(
    "exporter",
    [DynamoExporter(), pytest.param(OnnxExporter(), marks=pytest.mark.slow)],
    ids=lambda exporter: exporter.backend,
)
def test_T01_eager_experts_export(exporter: Any) -> None:
    """https://github.com/huggingface/transformers/issues/38518"""
    model = mixtral("eager")
    artifact = exporter.export_artifact(model, text(2, 8))
    assert artifact.workarounds[EAGER_EXPERTS] == 1
    assert_equals_eager(artifact, model, text(3, 11), text(1, 5))


def test_T01_control_batched_experts_export() -> None:
    model = mixtral("batched_mm")
    assert_equals_eager(DynamoExporter().export_artifact(model, text(2, 8)), model, text(3, 11))


def test_T01_control_a_loop_over_all_experts_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    def forward(self: Any, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(hidden)
        for expert in range(self.num_experts):
            share = (weights * (index == expert)).sum(-1, keepdim=True)
            gate, up = nn.functional.linear(hidden, self.gate_up_proj[expert]).chunk(2, -1)
            total = total + nn.functional.linear(self.act_fn(gate) * up, self.down_proj[expert]) * share
        return total

    model, inputs = mixtral("eager"), text(2, 8)
    with torch.no_grad():
        expected = model(**inputs).logits
        monkeypatch.setattr(MixtralExperts, "forward", forward)
        found = torch.export.export(model, (), kwargs=inputs, strict=False).module()(**inputs).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


class Masked(nn.Module):
    """query, key, value: (batch, heads, length, 8). mask: (batch, 1, length, length), bool."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)


@pytest.mark.parametrize("opset", [18, 23, 24])
def test_T02_a_row_without_any_key_is_finite_in_onnxruntime(opset: int) -> None:
    """https://github.com/microsoft/onnxscript/pull/2479; what such a row gives is undefined, but it is a number."""
    mask = torch.ones(2, 1, 8, 8, dtype=torch.bool).tril()
    whole = mask.clone()
    mask[0, :, :, :3] = False
    inputs = {name: torch.randn(2, 4, 8, 8) for name in ("query", "key", "value")}
    artifact = OnnxExporter().export_artifact(Masked().eval(), {**inputs, "mask": mask}, {"opset": opset})
    found = artifact(**inputs, mask=mask)["output"]
    expected = Masked()(**inputs, mask=mask)
    assert bool(found.isfinite().all())
    torch.testing.assert_close(found[0, :, 3:], expected[0, :, 3:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-4)
    assert_equals_eager(artifact, Masked(), {**inputs, "mask": whole})


def test_T02_a_llama_with_padding_on_either_side_at_opset_23() -> None:
    """https://github.com/microsoft/onnxscript/pull/2479; at opset 18 the promised classes are padded likewise."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, attn_implementation="sdpa")).eval()
    artifact = OnnxExporter().export_artifact(model, text(2, 8), {"opset": 23})
    assert artifact.workarounds["onnx/ir_fixes/fix_ir_rotation_of_a_batch"] == 2
    calls = [text(2, 8, left=3), text(3, 11, right=4)]
    assert_equals_eager(artifact, model, *calls, padding_counts=False)


class Grouped(nn.Module):
    """x: (batch, length, 32), attended by 4 heads over ``heads`` of keys and values, with grouping switched on."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.sizes = [32, 8 * heads, 8 * heads]
        self.into = nn.Linear(32, sum(self.sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.into(x).split(self.sizes, -1)
        query, key, value = (part.unflatten(-1, (-1, 8)).transpose(1, 2) for part in parts)
        return scaled_dot_product_attention(query, key, value, enable_gqa=True).transpose(1, 2).flatten(2)


def test_T06_plain_export_refuses_as_many_key_heads_as_query_heads() -> None:
    """https://github.com/huggingface/sentence-transformers/issues/3666

    When this passes, torch takes such groups at opset 23 too: remove the node fix ``fix_groups_of_one``.
    """
    with pytest.raises(torch.onnx.errors.OnnxExporterError, match="requires q_num_heads > kv_num_heads"):
        torch.onnx.export(Grouped(4).eval(), (torch.randn(2, 5, 32),), dynamo=True, verbose=False, opset_version=23)


@pytest.mark.parametrize(("heads", "opset"), [(4, 23), (4, 18), (2, 23)])
def test_T06_attention_in_groups_exports(heads: int, opset: int) -> None:
    """https://github.com/huggingface/sentence-transformers/issues/3666, and as control real groups: 4 over 2 heads."""
    model = Grouped(heads).eval()
    artifact = OnnxExporter().export_artifact(model, {"x": torch.randn(2, 5, 32)}, {"opset": opset})
    assert artifact.workarounds.get("onnx/node_fixes/fix_groups_of_one", 0) == (heads == 4)
    assert_equals_eager(artifact, model, {"x": torch.randn(3, 7, 32)})


def _softmax_attention(query: Any, key: Any, value: Any, attn_mask: Any) -> Any:
    scores = (query @ key.transpose(-1, -2) / 8**0.5).masked_fill(~attn_mask, float("-inf"))
    return scores.softmax(-1) @ value


class Chosen(nn.Module):
    """Attention among the rows that a mask chooses, whose number only the values tell.

    x: (batch, length, 32). bool_mask: (batch), bool.
    """

    def __init__(self, attention: Callable[..., Any]) -> None:
        super().__init__()
        self.attention = attention
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: torch.Tensor, bool_mask: torch.Tensor) -> torch.Tensor:
        x = x[bool_mask]
        query, key, value = (
            part(x).unflatten(-1, (4, 8)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mask = torch.ones(x.shape[0], 1, x.shape[1], x.shape[1], dtype=torch.bool)
        found: torch.Tensor = self.attention(query, key, value, attn_mask=mask).transpose(1, 2).flatten(2)
        return found


CHOICES = [[True, False, True, True], [True, False, False, False, False], [True] * 3]


@pytest.mark.parametrize("attention", [scaled_dot_product_attention, _softmax_attention])
def test_T07_attention_over_a_batch_of_unknown_size(attention: Callable[..., Any]) -> None:
    """https://github.com/pytorch/pytorch/issues/180202: the pinned torch exports it, and the control."""
    model = Chosen(attention).eval()
    choices = [torch.tensor(choice) for choice in CHOICES]
    calls = [{"x": torch.randn(len(choice), 8, 32), "bool_mask": choice} for choice in choices]
    program = torch.export.export(model, (), kwargs=calls[0], strict=False)
    torch.testing.assert_close(program.module()(**calls[0]), model(**calls[0]))
    assert_equals_eager(DynamoExporter().export_artifact(model, calls[0]), model, *calls)


def test_T07_attention_over_a_batch_of_unknown_size_in_onnxruntime() -> None:
    """https://github.com/pytorch/pytorch/issues/180202"""
    model = Chosen(scaled_dot_product_attention).eval()
    calls = [{"x": torch.randn(len(choice), 8, 32), "bool_mask": torch.tensor(choice)} for choice in CHOICES]
    assert_equals_eager(OnnxExporter().export_artifact(model, calls[0]), model, *calls)
