from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from hfexport_bot.runner.sources import find_model_case
from hfexport_bot.runner.sources.media import grid_of, with_placeholders
from hfexport_bot.runner.sources.probes import padded
from hfexport_bot.schema import Task
from tests.exporters.models import IMAGE, tiny_llava


def text(batch: int = 2) -> dict[str, torch.Tensor]:
    ids = torch.tensor([[3, 4, 5, 6]]).expand(batch, -1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_each_row_has_places_for_its_picture() -> None:
    model = tiny_llava()
    found = with_placeholders(model, {**text(), "pixel_values": torch.randn(2, 3, 8, 8)})
    assert found is not None
    assert found["input_ids"].tolist() == [[3, IMAGE, IMAGE, IMAGE, IMAGE, 4, 5, 6]] * 2
    assert found["attention_mask"].shape == (2, 8)
    with torch.no_grad():
        model(**found)


def test_text_alone_is_left_as_it_is() -> None:
    model, inputs = tiny_llava(), text()
    assert with_placeholders(model, inputs) is inputs


def test_what_the_model_refuses_to_encode_has_no_places() -> None:
    assert with_placeholders(tiny_llava(), {**text(), "pixel_values": torch.randn(2, 3, 9, 9)}) is None
    # nor what cannot be dealt to the rows evenly
    assert with_placeholders(tiny_llava(), {**text(), "pixel_values": torch.randn(1, 3, 8, 8)[:, :, :, :]}) is not None
    assert with_placeholders(tiny_llava(), {**text(3), "pixel_values": torch.randn(1, 3, 8, 8)}) is None


def test_pictures_in_a_grid_differ_in_shape_and_not_in_number() -> None:
    grid = grid_of(3, larger=False)
    assert grid.tolist() == [[1, 6, 4], [1, 4, 6], [1, 6, 4]]
    assert set(grid_of(2, larger=True).prod(-1).tolist()) == {48}


def test_kinds_of_tokens_move_with_them() -> None:
    ids = torch.tensor([[1, IMAGE, 7, 8, 9, 6, 5, 4], [1, IMAGE, 3, 3, 3, 3, 3, 4]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": (ids == IMAGE).long()}
    probe = padded(inputs, row=0, side="left", pad_token_id=0)
    assert probe is not None
    assert probe["input_ids"][0].tolist() == [0, 0, 0, 1, IMAGE, 7, 8, 4]
    assert torch.equal(probe["mm_token_type_ids"], (probe["input_ids"] == IMAGE).long())


@pytest.mark.parametrize(
    ("name", "media"),
    [
        ("LlavaForConditionalGeneration", "pixel_values"),
        ("Qwen2VLForConditionalGeneration", "image_grid_thw"),
        ("SmolVLMForConditionalGeneration", "pixel_attention_mask"),
        ("WhisperForConditionalGeneration", "input_features"),
    ],
)
def test_prompts_hold_what_the_model_reads(name: str, media: str) -> None:
    case = find_model_case(getattr(transformers, name), task=Task.GENERATE)
    assert media in case.inputs
    assert not any(name.startswith("decoder_") for name in case.inputs)
    assert {"other_prompt", "batch_1", "batch_3"} <= set(case.probes)
    mask = case.inputs.get("attention_mask")
    assert mask is None or (int(mask[0, 0]), bool(mask[:, -1].all())) == (0, True), "padded on the left"


def test_prompts_of_a_model_that_hands_them_on_have_a_text_or_none() -> None:
    case = find_model_case(transformers.BlipForConditionalGeneration, task=Task.GENERATE)
    assert set(case.inputs) == {"pixel_values", "input_ids", "attention_mask"}
    assert (int(case.inputs["attention_mask"][0, 0]), bool(case.inputs["attention_mask"][:, -1].all())) == (0, True)
    assert set(case.probes["no_text"]) == {"pixel_values"}
    model: Any = case.model
    assert model.text_decoder.generation_config.use_cache, "the model inside decodes with a cache"
