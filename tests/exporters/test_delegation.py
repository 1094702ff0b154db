"""Generation of models that leave it to a model inside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import DynamoExporter, GenerationExport, OnnxExporter
from exporters.base import HfExporter
from exporters.delegation import delegation_of, inner_generators
from exporters.generation import capture_steps
from tests.exporters.models import (
    assert_untouched,
    captions,
    picture_prompt,
    snapshot,
    tiny_blip,
    tiny_blip2,
    tiny_llava,
)

pytestmark = pytest.mark.export


def assert_tokens_equal(export: Any, model: Any, *prompts: dict[str, torch.Tensor], new: int = 6) -> None:
    seen: set[int] = set()
    for inputs in prompts:
        own = {name: value.clone() for name, value in inputs.items()}  # eager writes into its ids
        expected = model.generate(**own, max_new_tokens=new, do_sample=False)
        assert torch.equal(export.generate(**inputs, max_new_tokens=new), expected)
        seen.update(expected[:, -new:].flatten().tolist())
    assert len(seen) > 6, "the check has no power: the model repeats itself"


# ExecuTorch: tests/reach generates with BLIP on it.
@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter()], ids=lambda e: e.backend)
def test_captions_with_and_without_a_beginning_are_eagers(exporter: HfExporter, tmp_path: Path) -> None:
    model, sample = tiny_blip(), captions(padding=2)
    before, given = snapshot(model), {name: value.clone() for name, value in sample.items()}
    export = exporter.export_for_generation(model, sample)
    assert_untouched(model, before)
    assert all(torch.equal(sample[name], value) for name, value in given.items())
    assert list(export) == ["prompt_encoder", "prefill", "decode"]
    pictures = captions(3, seed=4)["pixel_values"]
    prompts = (sample, captions(3, 9, padding=3, seed=1), captions(1, 3, seed=2), captions(seed=3))
    assert_tokens_equal(export, model, *prompts, {"pixel_values": pictures}, {"pixel_values": pictures[:1]})
    loaded = GenerationExport.load(export.save(tmp_path), allow_pickle=True)
    assert_tokens_equal(loaded, model, prompts[1], {"pixel_values": pictures})


def test_an_export_from_pictures_alone_takes_no_text() -> None:
    model, pictures = tiny_blip(), captions(3)["pixel_values"]
    export = DynamoExporter().export_for_generation(model, {"pixel_values": pictures})
    assert_tokens_equal(export, model, {"pixel_values": pictures}, {"pixel_values": pictures[:1]})
    with pytest.raises(TypeError, match="no step takes pixel_mask"):
        export.generate(pixel_values=pictures, pixel_mask=torch.ones(3, 8, 8), max_new_tokens=2)


def test_answers_to_questions_are_eagers() -> None:
    """The decoder starts from one token of its own and attends to the question, read with the picture."""
    model = tiny_blip("BlipForQuestionAnswering")
    export = DynamoExporter().export_for_generation(model, captions(padding=1))
    assert_tokens_equal(export, model, captions(padding=1), captions(3, 9, padding=3, seed=1), captions(1, 4, seed=2))
    assert export.ending.unprompted is None
    with pytest.raises(ValueError, match="prompt_encoder takes input_ids, attention_mask; pass as at the export"):
        export.generate(pixel_values=captions()["pixel_values"], max_new_tokens=2)


@pytest.mark.parametrize("text", ["opt", "t5"])
def test_a_language_model_goes_on_from_embeddings(text: str) -> None:
    """BLIP-2 hands on embeddings with features merged into them: to a decoder with their ids, to an encoder alone."""
    model = tiny_blip2(text)
    export = DynamoExporter().export_for_generation(model, picture_prompt(padding=2))
    assert list(export) == ["prompt_encoder", *["encoder"] * (text == "t5"), "prefill", "decode"]
    others = (picture_prompt(3, 9, padding=1, seed=1), picture_prompt(1, 4, seed=2))
    assert_tokens_equal(export, model, picture_prompt(padding=2), *others)
    if text == "opt":  # without a text there are the features, and one token
        assert export.ending.unprompted == (98, 98, 98, 98, 1)
        pictures = {"pixel_values": picture_prompt(3, seed=3)["pixel_values"]}
        assert torch.equal(export.generate(**pictures, max_new_tokens=4), model.generate(**pictures, max_new_tokens=4))


def test_what_is_handed_on_is_what_the_decoder_generates_from() -> None:
    model, inputs = tiny_blip(), captions()
    found = delegation_of(model, inputs)
    assert found is not None
    assert found.delegate is model.text_decoder
    assert found.settings == {"eos_token_id": 2, "pad_token_id": 0}
    shapes = {name: tuple(value.shape) for name, value in found.prompt.items()}
    assert shapes == {
        "input_ids": (2, 5),
        "attention_mask": (2, 5),
        "encoder_hidden_states": (2, 5, 32),
        "encoder_attention_mask": (2, 5),
    }
    assert inner_generators(tiny_llava()) == []
    assert delegation_of(tiny_llava(), picture_prompt()) is None


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (captions(1), "give at least two sample prompts"),
        (captions(2, 2), "leaves one token of the sample prompts; give longer ones"),
        ({**captions(), "attention_mask": torch.tensor([[1] * 4 + [0] * 2] * 2)}, "pad the sample prompts on the left"),
    ],
)
def test_samples_that_fix_an_axis_are_refused(inputs: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        capture_steps(tiny_blip(), inputs)


def test_a_static_cache_and_more_than_the_best_token_are_refused() -> None:
    model = tiny_blip()
    model.text_decoder.generation_config.repetition_penalty = 2.0
    with pytest.raises(ValueError, match="sets repetition_penalty, which the exported loop does not apply"):
        capture_steps(model, captions())
    model.text_decoder.generation_config.repetition_penalty = None
    settings = type(model.generation_config)(cache_implementation="static", max_length=30)
    with pytest.raises(ValueError, match="reads more than text, and then a static cache cannot be exported yet"):
        capture_steps(model, captions(), settings)
