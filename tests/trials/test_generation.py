"""Trials on generation: padding that an encoder must not attend to, layers whose heads have several widths."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exporters import DynamoExporter, OnnxExporter
from exporters.generation import capture_steps
from exporters.leaves import named_leaves

pytestmark = pytest.mark.export


def prompt(batch: int, length: int, left: int = 0) -> dict[str, torch.Tensor]:
    """The first row is padded on the left."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, :left] = 0
    return {"input_ids": torch.randint(3, 99, (batch, length)), "attention_mask": mask}


def t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
    factors: dict[str, Any] = {"relative_attention_num_buckets": 8, "initializer_factor": 3.0}
    return T5ForConditionalGeneration(T5Config(**sizes, **factors, decoder_start_token_id=0)).eval()


class Unmasked(torch.nn.Module):
    """The encoder as the report calls it: without a mask."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.encoder(input_ids=input_ids).last_hidden_state
        return found


def test_T04_an_encoder_called_without_a_mask_attends_to_padding() -> None:
    """https://github.com/huggingface/optimum-executorch/pull/230: the call is at fault, not the export of it."""
    encoder = t5().get_encoder()
    ids = torch.randint(3, 99, (1, 16))
    ids[0, 6:] = 0
    with torch.no_grad():
        right = encoder(input_ids=ids, attention_mask=(ids != 0).long()).last_hidden_state[:, :6]
        whole = encoder(input_ids=ids[:, :6]).last_hidden_state
        program = torch.export.export(Unmasked(encoder).eval(), (ids,))
        wrong = program.module()(ids)[:, :6]
    torch.testing.assert_close(right, whole, rtol=1e-4, atol=1e-4)
    assert float((wrong - right).abs().max()) > 1.0


def test_T04_an_encoder_exported_for_generation_leaves_padding_out() -> None:
    """https://github.com/huggingface/optimum-executorch/pull/230: tokens of padded, and of unpadded prompts."""
    model = t5()
    export = DynamoExporter().export_for_generation(model, prompt(2, 16, left=4))
    padded = {"input_ids": torch.randint(3, 99, (1, 16)), "attention_mask": torch.ones(1, 16, dtype=torch.long)}
    padded["input_ids"][0, 6:] = padded["attention_mask"][0, 6:] = 0
    seen = set()
    for inputs in (padded, prompt(1, 6), prompt(3, 9, left=3)):
        expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)
        assert torch.equal(export.generate(**inputs, max_new_tokens=8), expected)
        seen.update(expected.flatten().tolist())
    blind = model.generate(**(padded | {"attention_mask": None}), max_new_tokens=8, do_sample=False)
    assert not torch.equal(blind, model.generate(**padded, max_new_tokens=8, do_sample=False)), "no power: mask or none"
    assert len(seen) > 5, "the check has no power: the model repeats itself"


WINDOW = 6


def gemma4(full_width: int) -> Any:
    """A layer with a sliding window and heads of width 8, a layer with full attention and heads of another width."""
    from transformers import Gemma4ForCausalLM, Gemma4TextConfig

    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": 99,
        "vocab_size_per_layer_input": 99,
        "hidden_size": 32,
        "hidden_size_per_layer_input": 8,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": WINDOW,
    }
    heads = {"head_dim": 8, "global_head_dim": full_width, "initializer_range": 0.3}
    return Gemma4ForCausalLM(Gemma4TextConfig(**sizes, **heads, bos_token_id=1, eos_token_id=2, pad_token_id=0)).eval()


@pytest.mark.parametrize("full_width", [16, 8], ids=["several-widths", "one-width"])
def test_T11_the_cache_of_each_layer_has_its_own_width(full_width: int) -> None:
    """https://github.com/huggingface/optimum/issues/2436, and as control a model whose heads have one width."""
    decode = named_leaves(capture_steps(gemma4(full_width), prompt(2, 7, left=2)).steps["decode"].inputs)
    assert decode["cache.layers.0.keys"].shape == (2, 2, WINDOW - 1, 8)
    assert decode["cache.layers.1.keys"].shape == (2, 2, 7, full_width)


@pytest.mark.parametrize(
    "exporter",
    [DynamoExporter(), pytest.param(OnnxExporter(), marks=pytest.mark.slow)],
    ids=lambda exporter: exporter.backend,
)
def test_T11_heads_of_several_widths_generate_eagers_tokens(exporter: Any) -> None:
    """https://github.com/huggingface/optimum/issues/2436"""
    model = gemma4(16)
    export = exporter.export_for_generation(model, prompt(2, 7, left=2))
    for inputs in (prompt(2, 7, left=2), prompt(3, 9, left=3), prompt(1, 4)):
        expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)
        assert torch.equal(export.generate(**inputs, max_new_tokens=8), expected)
