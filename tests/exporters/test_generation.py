from __future__ import annotations

from typing import Any

import pytest
import torch

from exporters import DynamoExporter, ExecutorchExporter, OnnxExporter
from exporters.base import HfExporter
from exporters.generation import capture_steps
from exporters.leaves import named_leaves
from tests.exporters.models import Mean, assert_untouched, mean_inputs, snapshot

pytestmark = pytest.mark.export

TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 99,
}


def llama(**fields: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    # Weights this large make every step pick another token; the usual ones repeat a single token.
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **TOKENS, "initializer_range": 0.5, **fields})).eval()


def prompt(batch: int, length: int, padding: int = 0) -> dict[str, torch.Tensor]:
    """A batch of prompts, the first one padded on the left."""
    generator = torch.Generator().manual_seed(length)
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, :padding] = 0
    return {"input_ids": torch.randint(3, 99, (batch, length), generator=generator), "attention_mask": mask}


@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter(), ExecutorchExporter()], ids=lambda e: e.backend)
def test_tokens_equal_eagers_at_any_shape_and_with_padding(exporter: HfExporter) -> None:
    model = llama(num_hidden_layers=2 if exporter.backend == "dynamo" else 1)
    before = snapshot(model)
    export = exporter.export_for_generation(model, prompt(2, 6, padding=2))
    assert_untouched(model, before)
    assert list(export) == ["prefill", "decode"]
    assert export["decode"] is export.artifacts["decode"].program
    seen: set[int] = set()
    for inputs in (prompt(2, 6, padding=2), prompt(3, 9, padding=4), prompt(1, 5)):
        expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)
        assert torch.equal(export.generate(**inputs, max_new_tokens=8), expected)
        seen.update(expected[:, inputs["input_ids"].shape[1] :].flatten().tolist())
    assert len(seen) > 8, "the check has no power: the model repeats itself"


def test_a_finished_sequence_is_filled_up_with_padding() -> None:
    model, inputs = llama(), prompt(2, 6)
    tokens = model.generate(**inputs, max_new_tokens=6, do_sample=False)[:, 6:]
    model.generation_config.eos_token_id = [int(tokens[0, 2]), 98]  # the first sequence ends after three tokens
    export = DynamoExporter().export_for_generation(model, inputs)
    expected = model.generate(**inputs, max_new_tokens=6, do_sample=False)
    assert expected[0, -1] == 0
    assert torch.equal(export.generate(**inputs, max_new_tokens=6), expected)


def test_the_mask_may_be_left_out_of_a_prompt_without_padding() -> None:
    model, inputs = llama(), prompt(2, 6)
    export = DynamoExporter().export_for_generation(model, inputs)
    expected = model.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert torch.equal(export.generate(input_ids=inputs["input_ids"], max_new_tokens=3), expected)
    with pytest.raises(TypeError, match="pixel_values"):
        export.generate(**inputs, pixel_values=torch.ones(1), max_new_tokens=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        export.generate(**inputs, max_new_tokens=0)


def test_without_a_mask_padding_is_refused_and_the_rest_is_right() -> None:
    model, inputs = llama(), prompt(2, 6)
    export = DynamoExporter().export_for_generation(model, {"input_ids": inputs["input_ids"]})
    other = prompt(2, 9)
    expected = model.generate(**other, max_new_tokens=4, do_sample=False)
    assert torch.equal(export.generate(**other, max_new_tokens=4), expected)
    with pytest.raises(ValueError, match="take no padding; export with a mask"):
        export.generate(**prompt(2, 6, padding=1), max_new_tokens=3)


def test_the_steps_are_what_generate_really_calls() -> None:
    steps = capture_steps(llama(), prompt(2, 6, padding=2))
    shapes = {name: {n: tuple(t.shape) for n, t in named_leaves(step.inputs).items()} for name, step in steps.items()}
    assert shapes["prefill"] == {"input_ids": (2, 6), "position_ids": (2, 6), "attention_mask": (2, 6)}
    decode = shapes["decode"]
    assert (decode["input_ids"], decode["attention_mask"], decode["position_ids"]) == ((2, 1), (2, 7), (2, 1))
    caches = [shape for name, shape in decode.items() if ".layers." in name]
    assert caches == [(2, 2, 6, 8)] * 4


def t5(**settings: Any) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(1)
    config = T5Config(d_model=16, d_kv=8, num_layers=2, num_heads=2, d_ff=32, vocab_size=99, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).eval()
    for parameter in model.parameters():  # or every step picks the same token
        parameter.data.mul_(3)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    return model


@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter()], ids=lambda e: e.backend)
def test_an_encoder_decoder_runs_its_encoder_once(exporter: HfExporter) -> None:
    model = t5(forced_bos_token_id=17, forced_eos_token_id=1)
    export = exporter.export_for_generation(model, prompt(2, 6, padding=2))
    assert list(export) == ["encoder", "prefill", "decode"]
    seen: set[int] = set()
    for inputs in (prompt(2, 6), prompt(3, 9, padding=4)):
        expected = model.generate(**inputs, max_new_tokens=7, do_sample=False)
        assert torch.equal(export.generate(**inputs, max_new_tokens=7), expected)
        seen.update(expected.flatten().tolist())
    assert {17, 1} <= seen
    assert len(seen) > 5, "the check has no power: the model repeats itself"


def test_settings_that_the_loop_does_not_apply_are_refused() -> None:
    with pytest.raises(ValueError, match="sets repetition_penalty, no_repeat_ngram_size, which the exported loop"):
        DynamoExporter().export_for_generation(t5(repetition_penalty=1.5, no_repeat_ngram_size=2), prompt(2, 6))


def _gemma2() -> Any:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    return Gemma2ForCausalLM(Gemma2Config(**SIZES, **TOKENS, head_dim=8, sliding_window=4)).eval()


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    ).eval()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_gemma2, "Gemma2ForCausalLM decodes with DynamicSlidingWindowLayer"),
        (_bert, r"BertModel cannot generate; export its forward with export\(\)"),
    ],
)
def test_models_that_decode_otherwise_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DynamoExporter().export_for_generation(make(), prompt(2, 6))


def test_what_is_no_generating_model_is_refused() -> None:
    with pytest.raises(ValueError, match="Mean cannot generate"):
        DynamoExporter().export_for_generation(Mean().eval(), mean_inputs())
    with pytest.raises(ValueError, match="in training mode"):
        DynamoExporter().export_for_generation(llama().train(), prompt(2, 6))
