"""Pictures that leave one position to a layer: found in eager, and larger ones traced in their place."""

from __future__ import annotations

import unittest
from typing import Any

import pytest
import torch
from torch import nn

from exporters import DynamoConfig, DynamoExporter
from hfexport_bot.runner.sources.size_one import comes_to_one
from hfexport_bot.runner.sources.testers import case_from_tester


class Config:
    use_cache = False
    pad_token_id = None


class Shrinking(nn.Module):
    """As a pyramid of convolutions: each position of the last stage stands for 8 x 8 pixels."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.config = config
        self.convolution = nn.Conv2d(3, 4, 8, stride=8)
        self.norm = nn.LayerNorm(4)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.convolution(pixel_values).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return hidden.mean((-2, -1))  # one element whatever comes in


class Tester:
    def __init__(self, parent: Any = None, batch_size: int = 2, image_size: int = 8) -> None:
        self.batch_size, self.image_size = batch_size, image_size

    def prepare_config_and_inputs_for_common(self) -> tuple[Config, dict[str, Any]]:
        return Config(), {"pixel_values": torch.rand(self.batch_size, 3, self.image_size, self.image_size)}


def case_of(**arguments: int) -> Any:
    class ShrinkingTest(unittest.TestCase):
        all_model_classes = (Shrinking,)

        def setUp(self) -> None:
            self.model_tester = Tester(self, **arguments)

    test_case = ShrinkingTest("runTest")
    test_case.setUp()
    return case_from_tester(test_case, Shrinking)


def pictures(side: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.rand(2, 3, side, side)}


@pytest.mark.parametrize(("side", "larger", "found"), [(8, 16, True), (16, 32, False), (8, 12, False)])
def test_an_axis_comes_to_one_where_it_is_longer_on_a_larger_picture(side: int, larger: int, found: bool) -> None:
    assert comes_to_one(Shrinking(), pictures(side), pictures(larger), 0) is found


def test_what_a_model_refuses_or_computes_otherwise_tells_nothing() -> None:
    class Picky(Shrinking):
        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            if pixel_values.shape[-1] > 16:
                raise ValueError("too large")
            hidden = super().forward(pixel_values)
            return hidden if pixel_values.shape[-1] < 16 else hidden.exp()

    assert not comes_to_one(Picky(), pictures(8), pictures(32), 0)
    assert not comes_to_one(Picky(), pictures(8), pictures(16), 0)


def test_a_testers_pictures_that_leave_one_position_are_made_larger() -> None:
    case = case_of()
    assert case.inputs["pixel_values"].shape == (2, 3, 16, 16)
    assert case.probes["image_32"]["pixel_values"].shape == (2, 3, 32, 32)
    assert case.probes["batch_3"]["pixel_values"].shape == (3, 3, 16, 16)
    (note,) = case.notes
    assert note.startswith("images of 16 pixels, twice the tester's")
    artifact = DynamoExporter().export_artifact(case.model, case.inputs, DynamoConfig())
    assert artifact(**case.probes["image_32"])


def test_others_stay_as_the_tester_makes_them() -> None:
    case = case_of(image_size=16)
    assert case.inputs["pixel_values"].shape == (2, 3, 16, 16)
    assert not case.notes
