"""The model's switches: each changes what runs where it is said to, and is refused with a clear reason elsewhere."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import torch
from transformers import BartModel, BertLMHeadModel, LlamaForCausalLM, Qwen2VLModel, T5Model, ViTModel

from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.sources import Inapplicable, ModelCase, find_model_case
from hfexport_bot.runner.sources.synthesised import synthesised_case
from hfexport_bot.runner.sources.variants import VARIANTS
from hfexport_bot.schema import Task, Variant


def outputs(case: ModelCase, inputs: dict[str, Any] | None = None) -> dict[str, torch.Tensor]:
    return run_eager(case.model, inputs or case.inputs, 0)


def variants_of(model_class: type) -> tuple[Variant, ...]:
    """The variants that are not refused."""
    found = []
    for name in VARIANTS:
        with suppress(Inapplicable):
            synthesised_case(model_class, 0, variant=name)
            found.append(name)
    return tuple(found)


@pytest.mark.parametrize(
    ("model_class", "expected"),
    [
        (LlamaForCausalLM, ("cache", "eager_attention")),
        (BertLMHeadModel, ("cross_attention", "eager_attention")),
        (ViTModel, ("eager_attention",)),
    ],
)
def test_a_class_has_the_variants_that_change_what_runs(model_class: type, expected: tuple[str, ...]) -> None:
    assert variants_of(model_class) == expected


def test_the_other_attention_computes_the_same_on_the_same_weights() -> None:
    plain, eager = (
        find_model_case(LlamaForCausalLM),
        find_model_case(LlamaForCausalLM, variant=Variant("eager_attention")),
    )
    assert plain.model.config._attn_implementation == "sdpa"
    assert eager.model.config._attn_implementation == "eager"
    torch.testing.assert_close(outputs(eager)["logits"], outputs(plain)["logits"], rtol=1e-4, atol=1e-4)


def test_cross_attention_reacts_to_the_states_it_is_fed() -> None:
    case = find_model_case(BertLMHeadModel, variant=Variant("cross_attention"))
    states = case.inputs["encoder_hidden_states"]
    assert states.shape[1] != case.inputs["input_ids"].shape[1]
    assert case.inputs["encoder_attention_mask"].shape == states.shape[:2]
    moved = outputs(case, {**case.inputs, "encoder_hidden_states": states.flip(0)})
    assert not torch.allclose(outputs(case)["logits"], moved["logits"])
    assert all("encoder_hidden_states" in probe for probe in case.probes.values())


@pytest.mark.parametrize("model_class", [LlamaForCausalLM, BartModel])
def test_a_cache_is_fed_and_its_past_counts(model_class: type) -> None:
    case = find_model_case(model_class, variant=Variant("cache"))
    past = case.inputs["cache"] if "cache" in case.inputs else case.inputs["past_key_values"]
    own = "decoder_attention_mask" if "decoder_input_ids" in case.inputs else "attention_mask"
    ids = case.inputs[own.replace("attention_mask", "input_ids")]
    assert case.inputs[own].shape[1] == past.get_seq_length() + ids.shape[1]


def test_each_row_of_text_has_two_pictures_of_different_grids() -> None:
    assert variants_of(Qwen2VLModel) == (Variant.EAGER_ATTENTION, Variant.TWO_IMAGES)
    case = find_model_case(Qwen2VLModel, variant=Variant.TWO_IMAGES)
    batch, grids = case.inputs["input_ids"].shape[0], case.inputs["image_grid_thw"]
    assert len(grids) == 2 * batch
    assert not torch.equal(grids[0], grids[1])
    places = case.inputs["input_ids"].eq(case.model.config.image_token_id).sum(1)  # type: ignore[union-attr, operator]
    assert places.tolist() == [int(grids[:2].prod(1).sum()) // 4] * batch
    assert outputs(case)


def test_a_variant_that_changes_nothing_is_refused_with_those_that_do() -> None:
    with pytest.raises(Inapplicable) as caught:
        synthesised_case(LlamaForCausalLM, 0, variant=Variant("sdpa"))
    assert str(caught.value) == (
        "sdpa changes nothing of LlamaForCausalLM (sdpa is its default); variants that do: cache, eager_attention"
    )
    with pytest.raises(Inapplicable, match="not in the task generate"):
        synthesised_case(LlamaForCausalLM, 0, Task.GENERATE, variant=Variant("two_images"))


def test_a_decoder_inside_has_its_own_cache_switched_on() -> None:
    case = find_model_case(T5Model, variant=Variant("cache"))
    assert case.model.get_decoder().config.use_cache
    assert not case.model.get_encoder().config.use_cache


def test_the_same_seed_gives_the_same_variant() -> None:
    for name in ("cache", "eager_attention"):
        assert name in VARIANTS
        first, second = (find_model_case(LlamaForCausalLM, seed=2, variant=name) for _ in range(2))
        assert torch.equal(first.inputs["input_ids"], second.inputs["input_ids"])
        assert torch.equal(outputs(first)["logits"], outputs(second)["logits"])
