"""Inputs besides text, images and sound: legal, and noticed by the models that take them."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    DetrForObjectDetection,
    LayoutLMv3Model,
    PatchTSTForPrediction,
    PretrainedConfig,
    PreTrainedModel,
    SamModel,
)

from hfexport_bot.runner.eager import MIN_REACTION, reactions, run_eager
from hfexport_bot.runner.sources import find_model_case
from hfexport_bot.runner.sources.layouts import bbox, padded_image, past_values, pixel_mask


def test_boxes_lie_on_the_page_with_their_corners_in_order() -> None:
    boxes = bbox(PretrainedConfig(max_2d_position_embeddings=1024), 2, 50, torch.Generator().manual_seed(0))
    assert boxes is not None
    assert boxes.shape == (2, 50, 4)
    assert int(boxes.min()) >= 0
    assert 900 < int(boxes.max()) <= 1000
    left, top, right, bottom = boxes.unbind(-1)
    assert bool((left <= right).all() and (top <= bottom).all())


def test_a_configuration_that_says_nothing_of_boxes_or_series_gets_none() -> None:
    generator = torch.Generator()
    assert bbox(PretrainedConfig(), 2, 3, generator) is None
    assert past_values(PretrainedConfig(context_length=8), 2, generator) is None


def test_padded_images_are_black_where_their_mask_is_zero() -> None:
    images = torch.ones(2, 3, 8, 4)
    probe = padded_image({"pixel_values": images, "pixel_mask": pixel_mask(images)})
    assert probe is not None
    right, lower = probe["pixel_mask"]
    assert right.tolist() == [[1, 1, 0, 0]] * 8
    assert lower.tolist() == [[1] * 4] * 4 + [[0] * 4] * 4
    assert bool((probe["pixel_values"][:, 0] == probe["pixel_mask"]).all())
    assert padded_image({"pixel_values": images}) is None


@pytest.mark.parametrize(
    ("model_class", "names"),
    [
        (DetrForObjectDetection, {"pixel_values", "pixel_mask"}),
        (SamModel, {"pixel_values", "input_points", "input_labels"}),
        (LayoutLMv3Model, {"input_ids", "bbox", "pixel_values", "attention_mask", "token_type_ids"}),
        (PatchTSTForPrediction, {"past_values", "past_observed_mask"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_tiny_model_notices_each_input(model_class: type[PreTrainedModel], names: set[str]) -> None:
    case = find_model_case(model_class)
    assert set(case.inputs) == names
    moved = reactions(case.model, case.inputs, run_eager(case.model, case.inputs, 0), 0)
    assert set(moved) == names
    assert min(moved.values()) >= MIN_REACTION, moved
