"""Cases from model tests as transformers writes them, on a tester and a test class of this file."""

from __future__ import annotations

import random
import sys
import unittest
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hfexport_bot.runner.sources.cases import Unavailable
from hfexport_bot.runner.sources.testers import case_from_tester, model_classes
from hfexport_bot.schema import Task, UnavailableCause

#: As in transformers' tests: ids are drawn from a generator of the test's module.
global_rng = random.Random()


class Config:
    use_cache = True
    pad_token_id = 0
    is_encoder_decoder = False


class Toy(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(32, 8, dtype=torch.float64)

    @classmethod
    def can_generate(cls) -> bool:
        return cls.__name__ == "Speaker"


class Speaker(Toy):
    pass


class Tester:
    def prepare_config_and_inputs_for_common(self) -> tuple[Config, dict[str, Any]]:
        ids = torch.tensor([[global_rng.randint(1, 31) for _ in range(7)] for _ in range(3)])
        return Config(), {
            "input_ids": ids,
            "attention_mask": torch.tril(torch.ones_like(ids)),
            "global_attention_mask": torch.tril(torch.ones_like(ids)),
            "pixel_values": torch.rand(3, 3, 4, 4, dtype=torch.float64) + random.random() + np.random.rand(),
            "labels": ids,
            "use_cache": True,
            "scale": 2,
            "absent": None,
        }


class ToyTest(unittest.TestCase):
    all_model_classes: Any = (Toy, Speaker)
    model_tester: Any

    def setUp(self) -> None:
        self.model_tester = Tester()


def ready(test_class: Any = ToyTest) -> Any:
    test_case = test_class("runTest")
    test_case.setUp()
    return test_case


def test_a_tester_gives_a_model_and_what_inference_takes() -> None:
    case = case_from_tester(ready(), Toy)
    assert isinstance(case.model, Toy)
    assert not case.model.training
    assert case.model.embed.weight.dtype == torch.float32
    assert case.model.config.use_cache is False
    assert set(case.inputs) == {"input_ids", "attention_mask", "global_attention_mask", "pixel_values", "scale"}
    assert case.inputs["pixel_values"].dtype == torch.float32
    assert case.source == "model tests"


def test_random_masks_become_ones_and_padding_is_probed() -> None:
    case = case_from_tester(ready(), Toy)
    assert case.inputs["attention_mask"].all()
    assert not case.inputs["global_attention_mask"].all()
    assert set(case.probes) == {"batch_1", "batch_4", "pad_right", "pad_left", "length_9", "length_5", "image_8x8"}
    assert case.probes["pad_left"]["attention_mask"][-1].tolist() == [0, 0, 1, 1, 1, 1, 1]


def test_a_seed_gives_one_case_and_leaves_every_random_state() -> None:
    states = global_rng.getstate(), random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    cases = [case_from_tester(ready(), Toy, seed=seed) for seed in (3, 3, 4)]
    ids, pixels, weights = zip(
        *((case.inputs["input_ids"], case.inputs["pixel_values"], case.model.embed.weight) for case in cases),
        strict=True,
    )
    for values in (ids, pixels, weights):
        assert torch.equal(values[0], values[1])
        assert not torch.equal(values[0], values[2])
    assert states[:3] == (global_rng.getstate(), random.getstate(), np.random.get_state()[1].tolist())
    assert torch.equal(states[3], torch.get_rng_state())


def test_generators_of_imported_functions_are_seeded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers = ModuleType("helpers")
    exec("import random\nrng = random.Random()\ndef draw(): return rng.random()", vars(helpers))
    monkeypatch.setattr(sys.modules[__name__], "draw", helpers.draw, raising=False)

    class Drawing(Tester):
        def prepare_config_and_inputs_for_common(self) -> tuple[Config, dict[str, Any]]:
            return Config(), {"x": torch.tensor([helpers.draw()])}

    class DrawingTest(ToyTest):
        def setUp(self) -> None:
            self.model_tester = Drawing()

    first, second = (case_from_tester(ready(DrawingTest), Toy).inputs["x"] for _ in range(2))
    assert torch.equal(first, second)
    assert float(first) != helpers.draw()


def test_the_tests_own_ways_to_fit_a_class_are_used() -> None:
    class OwnTester(Tester):
        def prepare_config_and_inputs_for_model_class(self, model_class: type) -> tuple[Config, dict[str, Any]]:
            return Config(), {"input_ids": torch.ones(2, 4, dtype=torch.int64), "named": model_class.__name__}

    class OwnTest(ToyTest):
        def setUp(self) -> None:
            self.model_tester = OwnTester()

        def _prepare_for_class(self, inputs: dict[str, Any], model_class: type) -> dict[str, Any]:
            return {**inputs, "fitted": model_class.__name__}

    assert case_from_tester(ready(OwnTest), Toy).inputs.items() >= {"named": "Toy", "fitted": "Toy"}.items()


def test_generate_is_for_classes_that_can_and_tests_that_prepare_it() -> None:
    class Generating(ToyTest):
        def prepare_config_and_inputs_for_generate(self) -> None: ...

    class Choosing(Generating):
        all_generative_model_classes = (Toy,)

    assert model_classes(ready()) == (Toy, Speaker)
    assert model_classes(ready(), Task.GENERATE) == ()
    assert model_classes(ready(Generating), Task.GENERATE) == (Speaker,)
    assert model_classes(ready(Choosing), Task.GENERATE) == (Toy,)


def test_generation_takes_its_config_from_the_test_and_prompts_of_our_own() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    class LlamaTest(unittest.TestCase):
        def prepare_config_and_inputs_for_generate(self) -> tuple[Any, dict[str, Any]]:
            sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
            return LlamaConfig(vocab_size=50, use_cache=False, eos_token_id=None, **sizes), {}

    case = case_from_tester(LlamaTest("runTest"), LlamaForCausalLM, Task.GENERATE)
    assert case.model.config.use_cache
    assert set(case.inputs) == {"input_ids", "attention_mask"}
    assert case.inputs["input_ids"].max() < 50
    assert "length_40" in case.probes


def test_prompts_with_more_than_text_are_the_testers_own() -> None:
    class Written(Toy):
        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.generation_config = type("GenerationConfig", (), {"pad_token_id": 0, "use_cache": False})()

    class SpeakerTest(ToyTest):
        def prepare_config_and_inputs_for_generate(self, batch_size: int = 2) -> tuple[Config, dict[str, Any]]:
            config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
            ids = inputs["input_ids"][:batch_size]
            return config, {"input_ids": ids, "pixel_values": inputs["pixel_values"][:batch_size], "scale": 2}

    case = case_from_tester(ready(SpeakerTest), Written, Task.GENERATE)
    assert {name: tuple(value.shape) for name, value in case.inputs.items()} == {
        "input_ids": (2, 7),
        "pixel_values": (2, 3, 4, 4),
        "attention_mask": (2, 7),
    }
    assert set(case.probes) == {"other_prompt", "batch_1", "batch_3", "pad_left"}
    assert len(case.probes["batch_3"]["pixel_values"]) == 3
    assert not torch.equal(case.probes["other_prompt"]["input_ids"], case.inputs["input_ids"])


def test_prompts_with_pictures_are_ours_where_the_model_takes_them_and_never_ask_for_a_placeholder() -> None:
    from transformers import LlavaForConditionalGeneration

    from hfexport_bot.runner.sources import find_model_case

    class PictureTest(ToyTest):
        def prepare_config_and_inputs_for_generate(self, batch_size: int = 2) -> tuple[Any, dict[str, Any]]:
            case = find_model_case(LlavaForConditionalGeneration, seed=5)
            return case.model.config, {name: value[:batch_size] for name, value in case.inputs.items()}

    case = case_from_tester(ready(PictureTest), LlavaForConditionalGeneration, Task.GENERATE)
    model: Any = case.model
    assert "length_40" in case.probes  # the tester's own prompts have one length
    assert case.inputs["attention_mask"].min() == 0
    assert model.generation_config.suppress_tokens == [model.config.image_token_id]


def test_masks_of_sound_leave_all_of_it_since_placeholders_are_counted_by_them() -> None:
    class Sounding(Tester):
        def create_audio_mask(self) -> torch.Tensor:
            return torch.tensor([[1, 1, 0], [1, 0, 0]])

        def prepare_config_and_inputs_for_common(self) -> tuple[Config, dict[str, Any]]:
            mask = self.create_audio_mask()
            return Config(), {"count": mask.sum(), "input_features_mask": mask}

    class SoundTest(ToyTest):
        def setUp(self) -> None:
            self.model_tester = Sounding()

    case = case_from_tester(ready(SoundTest), Toy)
    assert int(case.inputs["count"]) == 6
    assert case.inputs["input_features_mask"].all()


def test_a_model_that_makes_a_loss_by_itself_is_asked_not_to() -> None:
    class Losing(Tester):
        def prepare_config_and_inputs_for_common(self) -> tuple[Config, dict[str, Any]]:
            return Config(), {"input_ids": torch.ones(2, 4, dtype=torch.int64), "return_loss": True}

    class LossTest(ToyTest):
        def setUp(self) -> None:
            self.model_tester = Losing()

    assert case_from_tester(ready(LossTest), Toy).inputs["return_loss"] is False


def test_the_testers_own_shapes_come_before_derived_ones() -> None:
    class Sized(Tester):
        def __init__(self, parent: Any = None, batch_size: int = 3, seq_length: int = 7) -> None:
            self.sizes = self.batch_size, self.seq_length = batch_size, seq_length

        def prepare_config_and_inputs_for_common(self) -> tuple[Config, dict[str, Any]]:
            ids = torch.ones(self.sizes, dtype=torch.int64)
            return Config(), {"input_features": ids[..., None].float(), "decoder_input_ids": torch.ones(3, 5)}

    class SizedTest(ToyTest):
        def setUp(self) -> None:
            self.model_tester = Sized(self)

    probes = case_from_tester(ready(SizedTest), Toy).probes
    shapes = {name: tuple(tuple(value.shape) for value in probe.values()) for name, probe in probes.items()}
    assert shapes["length_10"] == ((3, 10, 1), (3, 5))
    assert shapes["length_6"] == ((3, 7, 1), (3, 6))  # the decoder's, which only the derived ones change
    assert shapes["batch_4"] == ((4, 7, 1), (3, 5))


class Unfitting(ToyTest):
    error: Exception = KeyError("hidden_size")

    def _prepare_for_class(self, inputs: dict[str, Any], model_class: type) -> dict[str, Any]:
        raise self.error


class Skipping(Unfitting):
    error = unittest.SkipTest("too slow here")


class Lacking(Unfitting):
    error = ModuleNotFoundError("no timm")


class Untested(ToyTest):
    def setUp(self) -> None: ...


@pytest.mark.parametrize(
    ("test_class", "cause", "message"),
    [
        (Unfitting, UnavailableCause.UNKNOWN_INPUTS, "Unfitting makes no Toy: KeyError: 'hidden_size'"),
        (Skipping, UnavailableCause.UNKNOWN_INPUTS, "Skipping skips it: too slow here"),
        (
            Lacking,
            UnavailableCause.MISSING_LIBRARY,
            "Lacking makes no Toy: ModuleNotFoundError: no timm",
        ),
        (
            Untested,
            UnavailableCause.UNKNOWN_INPUTS,
            "Untested has no model_tester that prepares a config and inputs",
        ),
    ],
)
def test_a_test_that_gives_no_case_says_why(test_class: type, cause: UnavailableCause, message: str) -> None:
    with pytest.raises(Unavailable) as caught:
        case_from_tester(ready(test_class), Toy)
    assert (caught.value.cause, caught.value.message) == (cause, message)
