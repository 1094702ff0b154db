"""A decoder over an encoder whose text is padded: every position of the decoder counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from exporters import OnnxExporter

pytestmark = pytest.mark.export


def _bart() -> Any:
    from transformers import BartConfig, BartModel

    sides = {f"{side}_{part}": n for side in ("encoder", "decoder") for part, n in (("layers", 1), ("ffn_dim", 64))}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    return BartModel(BartConfig(vocab_size=99, d_model=32, **sides, **heads, init_std=0.5, use_cache=False))


def _t5() -> Any:
    from transformers import T5Config, T5Model

    sizes: dict[str, Any] = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    return T5Model(T5Config(**sizes, initializer_factor=3.0, use_cache=False))


def _inputs(batch: int, length: int, decoder_length: int) -> dict[str, torch.Tensor]:
    return {
        "input_ids": torch.randint(3, 99, (batch, length)),
        "attention_mask": torch.ones(batch, length, dtype=torch.long),
        "decoder_input_ids": torch.randint(3, 99, (batch, decoder_length)),
        "decoder_attention_mask": torch.ones(batch, decoder_length, dtype=torch.long),
    }


@pytest.mark.parametrize("build", [_bart, _t5])
def test_a_decoder_over_a_partly_masked_encoder(build: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model = build().eval()
    artifact = OnnxExporter().export_artifact(model, _inputs(2, 8, 5))
    inputs = _inputs(3, 11, 7)
    with torch.no_grad():
        whole = model(**inputs).last_hidden_state
        inputs["attention_mask"][0, -4:] = 0
        inputs["attention_mask"][2, :4] = 0
        expected = model(**inputs).last_hidden_state
    moved = (whole - expected).abs().amax(-1)
    assert float(moved[[0, 2]].min()) > 0.01, "every position reacts to the mask, so that ignoring it would show"
    found = artifact(**inputs)["last_hidden_state"]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
