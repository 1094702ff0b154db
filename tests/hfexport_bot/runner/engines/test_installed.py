"""Engine repo with the installed ``transformers.exporters``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hfexport_bot.runner.checks import check
from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.engines.repo import RepoGeneration, export_generation_repo, export_repo
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import Backend
from tests.exporters.models import bert_inputs, tiny_bert

pytestmark = pytest.mark.export


def test_onnx_is_bound_by_name_and_judged_at_other_shapes() -> None:
    case = ModelCase(tiny_bert(), bert_inputs(), {"padded": bert_inputs(3, 11, padded=True)})
    stages: list[str] = []
    artifact = export_repo(case, Backend.ONNX, dynamic=True, disabled=(), on_stage=stages.append)
    assert artifact.input_paths == ("input_ids", "attention_mask")
    assert artifact.output_paths == ("logits",)
    assert {"repo:exporter_onnx._patch_where", "repo:exporter_onnx._patch_prepare_for_export"} <= set(
        artifact.workarounds
    )
    order = list(dict.fromkeys(stages))
    assert order == ["trace", "node_fixes", "decompose", "translate", "optimize", "ir_fixes"]
    expected = run_eager(case.model, case.inputs, 0)
    checked = check(
        artifact, case, expected, dynamic=True, seed=0, on_stage=lambda stage: None, clean=lambda message: message
    )
    assert checked.failure is None
    assert {probe.name: probe.status for probe in checked.components[0].probes}["padded"] == "pass"


def generation(case: ModelCase, told: list[tuple[str, str]] | None = None) -> RepoGeneration:
    told = [] if told is None else told
    return export_generation_repo(
        case,
        Backend.DYNAMO,
        dynamic=True,
        new_tokens=4,
        disabled=(),
        on_stage=lambda stage, component: told.append((stage, component)),
    )


def test_prefill_and_decode_are_driven_by_our_loop() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = LlamaConfig(**sizes, vocab_size=40, bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.5)
    model: Any = LlamaForCausalLM(config).eval()
    prompts = {"input_ids": torch.randint(3, 40, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    prompts["attention_mask"][0, 0] = 0
    told: list[tuple[str, str]] = []
    export = generation(ModelCase(model, prompts), told)
    assert list(export) == ["prefill", "decode"]
    assert [each for each in dict.fromkeys(told) if each[1]] == [
        ("trace", "prefill"),
        ("state_cleanup", "prefill"),
        ("trace", "decode"),
        ("state_cleanup", "decode"),
    ]
    for length in (5, 7):
        ids = torch.randint(3, 40, (3, length))
        mask = torch.ones_like(ids)
        mask[1, :2] = 0
        expected = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=4, do_sample=False)
        assert torch.equal(export.generate(ids, mask, max_new_tokens=4)[:, : expected.shape[1]], expected)


def test_an_encoder_that_is_left_out_is_stood_in_for() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    model = T5ForConditionalGeneration(T5Config(**sizes, vocab_size=40, decoder_start_token_id=0)).eval()
    prompts = {"input_ids": torch.randint(3, 40, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    prompts["attention_mask"][0, -1] = 0
    export = generation(ModelCase(model, prompts))
    assert list(export.artifacts) == ["encoder", "prefill", "decode"]
    assert export.notes == (
        "transformers.exporters leaves out the encoder; what decoding starts from is given by ours",
    )
    expected = model.generate(**prompts, max_new_tokens=2, do_sample=False)
    assert torch.equal(export.generate(**prompts, max_new_tokens=2), expected)
