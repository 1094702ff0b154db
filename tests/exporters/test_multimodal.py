"""Generation of a model that reads pictures: its parts, and the loop over them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import DynamoExporter, GenerationExport
from exporters.generation import capture_steps
from tests.exporters.models import assert_untouched, picture_prompt, snapshot, tiny_llava, tiny_qwen2_vl

pytestmark = pytest.mark.export

PARTS = ["vision_encoder", "multi_modal_projector", "embedding", "language_model", "lm_head", "decode"]


def test_tokens_equal_eagers_for_any_number_of_pictures_also_from_a_folder(tmp_path: Path) -> None:
    model = tiny_llava()
    model.get_image_features(picture_prompt()["pixel_values"])  # a first call leaves hooks of transformers' own
    before = snapshot(model)
    export = DynamoExporter().export_for_generation(model, picture_prompt())
    assert_untouched(model, before)
    assert list(export) == PARTS
    loaded = GenerationExport.load(export.save(tmp_path), allow_pickle=True)
    seen = set()
    for inputs in (picture_prompt(), picture_prompt(3, 9, padding=2, seed=1), picture_prompt(1, 4, seed=2)):
        expected = model.generate(**inputs, max_new_tokens=6, do_sample=False)
        assert torch.equal(export.generate(**inputs, max_new_tokens=6), expected)
        assert torch.equal(loaded.generate(**inputs, max_new_tokens=6), expected)
        seen |= set(expected[:, -6:].flatten().tolist())
    assert len(seen) > 6, "the check has no power: the model repeats itself"
    fewer = picture_prompt()
    fewer["pixel_values"] = fewer["pixel_values"][:1].repeat(3, 1, 1, 1)
    with pytest.raises(ValueError, match=r"8 placeholders \(token 98\) for 12 features"):
        export.generate(**fewer, max_new_tokens=2)
    with pytest.raises(TypeError, match="no step takes pixels"):
        export.generate(**fewer, pixels=torch.ones(1), max_new_tokens=2)
    del fewer["pixel_values"]
    with pytest.raises(ValueError, match=r"8 placeholders \(token 98\) and no pixel_values to fill them"):
        export.generate(**fewer, max_new_tokens=2)
    text = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    expected = model.generate(**text, max_new_tokens=6, do_sample=False)
    assert torch.equal(export.generate(**text, max_new_tokens=6), expected)
    # a part holds its own weights and no others
    held = {name: set(program.state_dict) for name, program in export.items()}
    assert held["embedding"] == {"exported_model.model.language_model.embed_tokens.weight"}
    assert not any("vision" in name for name in held["language_model"] | held["decode"] | held["lm_head"])


def test_the_parts_of_a_model_with_positions_in_planes() -> None:
    model = tiny_qwen2_vl()
    ids = torch.tensor([[98, 98, 5, 7, 8, 9], [5, 98, 98, 6, 6, 3]])  # one begins with its picture
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == 98).int(),
        "pixel_values": torch.randn(16, 24),
        "image_grid_thw": torch.tensor([[1, 2, 4], [1, 4, 2]]),
    }
    captured = capture_steps(model, inputs)
    assert list(captured.steps) == [name for name in PARTS if name != "multi_modal_projector"]
    assert captured.planes == 4
    assert captured.media[0].token == 98
    features = captured.steps["vision_encoder"].module(**captured.steps["vision_encoder"].inputs)["features"]
    assert features.shape == (4, 32)
    assert "mm_token_type_ids" not in captured.steps["decode"].inputs


def test_a_model_that_does_more_with_its_prompts_is_refused() -> None:
    model = tiny_llava()
    forward = model.forward

    def more(*args: Any, **inputs: Any) -> Any:
        found = forward(*args, **inputs)
        if inputs.get("pixel_values") is not None or inputs.get("mm_encoder_outputs") is not None:
            found.logits = found.logits + 1
        return found

    more.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    model.forward = more
    with pytest.raises(ValueError, match="does more with its prompts than encode, merge and read them"):
        capture_steps(model, picture_prompt())


def test_a_static_cache_is_for_text_only() -> None:
    model = tiny_llava()
    settings = model.generation_config
    settings.cache_implementation, settings.max_length = "static", 30
    with pytest.raises(ValueError, match="reads more than text, and then a static cache cannot be exported yet"):
        capture_steps(model, picture_prompt(), settings)
