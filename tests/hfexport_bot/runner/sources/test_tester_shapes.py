"""Probes from testers that are made again with other arguments."""

from __future__ import annotations

import unittest
from typing import Any

import torch

from hfexport_bot.runner.sources.tester_shapes import other_shapes, padded_beside_longer


class TextTester:
    def __init__(self, parent: Any, batch_size: int = 3, seq_length: int = 7, hidden: int = 4) -> None:
        self.batch_size = batch_size
        self.seq_length = seq_length
        self.hidden = hidden

    def prepare_config_and_inputs(self) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.zeros(self.batch_size, self.seq_length)}


class PictureTester:
    """As those of transformers that take whatever they are given."""

    def __init__(self, parent: Any, **keywords: Any) -> None:
        self.batch_size = 3
        self.image_size = 8
        for name, value in keywords.items():
            setattr(self, name, value)

    def prepare_config_and_inputs(self) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.zeros(self.batch_size, 3, self.image_size, self.image_size)}


class BothTester:
    def __init__(self, parent: Any) -> None:
        self.text = TextTester(parent, hidden=16)
        self.pictures = PictureTester(parent, image_size=10)

    def prepare_config_and_inputs(self) -> dict[str, torch.Tensor]:
        assert self.text.hidden == 16  # what the test class chose stays
        return {**self.text.prepare_config_and_inputs(), **self.pictures.prepare_config_and_inputs()}


def test_case(tester_class: Any, **arguments: Any) -> Any:
    class Test(unittest.TestCase):
        def setUp(self) -> None:
            self.model_tester = tester_class(self, **arguments)

    made = Test()
    made.setUp()
    return made


test_case.__test__ = False  # type: ignore[attr-defined]


def shapes(case: Any) -> dict[str, list[tuple[int, ...]]]:
    def prepare(each: Any) -> dict[str, torch.Tensor]:
        return each.model_tester.prepare_config_and_inputs()

    probes = other_shapes(case, prepare, prepare(case))
    return {name: [tuple(value.shape) for value in probe.values()] for name, probe in probes.items()}


def test_each_argument_gives_probes_named_by_its_value() -> None:
    assert shapes(test_case(TextTester)) == {
        "batch_1": [(1, 7)],
        "batch_4": [(4, 7)],
        "length_10": [(3, 10)],
        "length_5": [(3, 5)],
    }


def test_testers_that_take_anything_are_asked_for_what_they_have() -> None:
    found = shapes(test_case(PictureTester, image_size=6))
    assert found == {"batch_1": [(1, 3, 6, 6)], "batch_4": [(4, 3, 6, 6)], "image_12": [(3, 3, 12, 12)]}


def test_testers_inside_a_tester_change_together() -> None:
    found = shapes(test_case(BothTester))
    assert found["batch_4"] == [(4, 7), (4, 3, 10, 10)]
    assert found["length_10"] == [(3, 10), (3, 3, 10, 10)]
    assert found["image_20"] == [(3, 7), (3, 3, 20, 20)]


def test_values_that_a_tester_refuses_are_no_probes() -> None:
    class Picky(TextTester):
        def __init__(self, parent: Any, batch_size: int = 3, seq_length: int = 7) -> None:
            if batch_size == 4:
                raise ValueError("three rows, or one")
            if seq_length == 5:
                raise SystemExit(2)
            super().__init__(parent, batch_size, seq_length)

    assert set(shapes(test_case(Picky))) == {"batch_1", "length_10"}


def test_what_has_the_same_shapes_or_other_names_is_no_probe() -> None:
    class Odd(TextTester):
        def prepare_config_and_inputs(self) -> dict[str, torch.Tensor]:
            if self.seq_length > 7:
                return {"inputs_embeds": torch.zeros(self.batch_size, self.seq_length)}
            return {"input_ids": torch.zeros(3, self.seq_length)}

    assert set(shapes(test_case(Odd))) == {"length_5"}


def test_arguments_given_by_position_stay() -> None:
    class Test(unittest.TestCase):
        def setUp(self) -> None:
            self.model_tester = TextTester(self, 3)

    made = Test()
    made.setUp()
    assert set(shapes(made)) == {"length_10", "length_5"}


def test_the_testers_own_constructor_comes_back() -> None:
    before = TextTester.__init__
    shapes(test_case(TextTester))
    assert TextTester.__init__ is before


def prompts(length: int, start: int) -> dict[str, torch.Tensor]:
    """Two rows, each of which begins with two placeholders (9) of a picture."""
    ids = torch.arange(start, start + 2 * (length - 2)).reshape(2, -1)
    ids = torch.cat((torch.full((2, 2), 9), ids), dim=1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": torch.rand(2, 3, 4, 4)}


def test_a_row_is_padded_beside_longer_ones_so_that_no_placeholder_goes() -> None:
    found = padded_beside_longer(prompts(4, 20), {"batch_1": {}, "length_6": prompts(6, 40)}, 0)
    assert found["pad_right"]["input_ids"].tolist() == [[9, 9, 20, 21, 0, 0], [9, 9, 44, 45, 46, 47]]
    assert found["pad_right"]["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1] * 6]
    assert found["pad_left"]["input_ids"].tolist() == [[9, 9, 40, 41, 42, 43], [0, 0, 9, 9, 22, 23]]
    assert found["pad_left"]["attention_mask"].tolist() == [[1] * 6, [0, 0, 1, 1, 1, 1]]


def test_without_a_padding_token_the_last_one_pads() -> None:
    found = padded_beside_longer(prompts(4, 20), {"length_6": prompts(6, 40)}, None)
    assert found["pad_right"]["input_ids"][0].tolist() == [9, 9, 20, 21, 21, 21]


def test_text_alone_and_what_changes_beside_it_are_not_padded_so() -> None:
    inputs, longer = prompts(4, 20), prompts(6, 40)
    text = {
        name: {key: value for key, value in each.items() if key != "pixel_values"}
        for name, each in (("short", inputs), ("length_6", longer))
    }
    assert padded_beside_longer(text["short"], {"length_6": text["length_6"]}, 0) == {}
    assert padded_beside_longer(inputs, {"length_6": {**longer, "pixel_values": torch.rand(2, 3, 8, 8)}}, 0) == {}
    assert padded_beside_longer(longer, {"length_4": inputs}, 0) == {}
    assert padded_beside_longer(inputs, {}, 0) == {}
