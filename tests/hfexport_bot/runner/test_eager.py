"""The reference: eager's outputs, whether they repeat, and how far each input moves them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hfexport_bot.runner.eager import (
    MIN_REACTION,
    changed_inputs,
    copied,
    moves_only_exempt,
    perturbed_outputs,
    reactions,
    run_eager,
    same,
    undefined_positions,
)

pytestmark = pytest.mark.export
SEED = 3
NAN = float("nan")


class Model(nn.Module):
    """Calls a function as its forward."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward = function


def ids(batch: int = 2, length: int = 8) -> torch.Tensor:
    return torch.arange(1, batch * length + 1).reshape(batch, length)


def reaction(function: Any, **inputs: Any) -> dict[str, float]:
    model = Model(function)
    return reactions(model, inputs, run_eager(model, inputs, SEED), SEED)


# -- Running ---------------------------------------------------------------------------------------------------


def test_every_source_of_random_numbers_is_reseeded() -> None:
    model = Model(lambda x: (torch.rand(2), x + random.random(), x + float(np.random.rand())))
    inputs = {"x": torch.zeros(2)}
    first = run_eager(model, inputs, SEED)
    assert same(first, run_eager(model, inputs, SEED))
    other = run_eager(model, inputs, SEED + 1)
    assert not any(torch.equal(first[name], other[name]) for name in ("0", "1", "2"))


def test_a_forward_that_writes_into_its_inputs_changes_a_copy() -> None:
    x, nested = torch.ones(2), [torch.ones(2)]
    outputs = run_eager(Model(lambda x, nested: (x.mul_(3), nested[0].add_(1))), {"x": x, "nested": nested}, SEED)
    assert [value.tolist() for value in outputs.values()] == [[3, 3], [2, 2]]
    assert x.tolist() == nested[0].tolist() == [1, 1]


def test_outputs_are_not_written_by_the_next_forward() -> None:
    memory = torch.zeros(2)
    model = Model(memory.copy_)
    first = run_eager(model, {"other": torch.ones(2)}, SEED)
    run_eager(model, {"other": torch.full((2,), 5.0)}, SEED)
    assert first["output"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (lambda x: x, ["output"]),
        (lambda x: (x, None, [x]), ["0", "2.0"]),
        (lambda x: {"logits": x, "loss": None, "layers": ({"keys": x},)}, ["logits", "layers.0.keys"]),
        (lambda x: None, []),
        (lambda x: 3, []),
    ],
)
def test_outputs_are_named_by_their_paths(answer: Any, names: list[str]) -> None:
    assert list(run_eager(Model(answer), {"x": torch.ones(2)}, SEED)) == names


@pytest.mark.parametrize(
    ("left", "right", "alike"),
    [
        ([1.0, NAN], [1.0, NAN], True),
        ([1.0, NAN], [1.0, 7e7], False),
        ([float("inf")], [torch.finfo(torch.float32).max], False),
        ([1.0], [1.0 + 2e-7], False),
    ],
)
def test_same_is_to_the_bit_and_nan_equals_nan(left: list[float], right: list[float], alike: bool) -> None:
    assert same({"y": torch.tensor(left)}, {"y": torch.tensor(right)}) is alike


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.bool])
def test_same_takes_every_dtype(dtype: torch.dtype) -> None:
    ones = {"y": torch.ones(2, dtype=dtype)}
    assert same(ones, {"y": torch.ones(2, dtype=dtype)})
    assert not same(ones, {"y": torch.zeros(2, dtype=dtype)})


def test_other_shapes_dtypes_and_names_are_not_the_same() -> None:
    ones = {"y": torch.ones(2)}
    assert not same(ones, {"y": torch.ones(2, 1)})
    assert not same(ones, {"y": torch.ones(2, dtype=torch.float64)})
    assert not same(ones, {"z": torch.ones(2)})
    assert not same(ones, {})


def test_weights_come_back_after_a_perturbation_also_when_the_forward_raises() -> None:
    model = nn.Linear(4, 4)
    before = model.weight.detach().clone()
    inputs = {"input": torch.ones(1, 4)}
    moved = perturbed_outputs(model, inputs, SEED, 1e-2)["output"]
    assert not torch.equal(moved, run_eager(model, inputs, SEED)["output"])
    with pytest.raises(RuntimeError):
        perturbed_outputs(model, {"input": torch.ones(1, 5)}, SEED, 1e-2)
    assert torch.equal(model.weight, before)


# -- Positions that do not count -------------------------------------------------------------------------------


def mask(*rows: str) -> torch.Tensor:
    return torch.tensor([[int(digit) for digit in row] for row in rows])


def test_a_padded_position_is_undefined_on_either_side() -> None:
    inputs = {"input_ids": ids(2, 4), "attention_mask": mask("0011", "1110")}
    found = undefined_positions(inputs, {"logits": torch.ones(2, 4, 9), "pooled": torch.ones(2, 9)})
    assert list(found) == ["logits"]
    assert found["logits"].int().tolist() == [[1, 1, 0, 0], [0, 0, 0, 1]]


def test_a_boolean_mask_counts_alike_and_a_full_one_leaves_nothing_out() -> None:
    inputs = {"attention_mask": mask("01", "11").bool()}
    assert undefined_positions(inputs, {"y": torch.ones(2, 2)})["y"].tolist() == [[True, False], [False, False]]
    assert undefined_positions({"attention_mask": mask("11", "11")}, {"y": torch.ones(2, 2)}) == {}


@pytest.mark.parametrize(
    "value", [torch.tensor([[0.0, 1.0]]), torch.tensor([[0, 2]]), torch.zeros(1, 2, 2, dtype=torch.int64)]
)
def test_what_is_no_padding_mask_exempts_nothing(value: torch.Tensor) -> None:
    assert undefined_positions({"attention_mask": value}, {"y": torch.ones(1, 2, 2)}) == {}


def test_each_sequence_of_an_encoder_decoder_has_its_own_mask() -> None:
    outputs = {
        "logits": torch.ones(2, 3, 5),
        "encoder_last_hidden_state": torch.ones(2, 4, 8),
        "encoder_hidden_states.0": torch.ones(2, 4, 8),
    }
    inputs = {
        "input_ids": ids(2, 4),
        "attention_mask": mask("1110", "1111"),
        "decoder_input_ids": ids(2, 3),
        "decoder_attention_mask": mask("111", "011"),
    }
    found = undefined_positions(inputs, outputs)
    assert found["logits"].int().tolist() == [[0, 0, 0], [1, 0, 0]]
    assert found["encoder_last_hidden_state"].int().tolist() == [[0, 0, 0, 1], [0, 0, 0, 0]]
    assert torch.equal(found["encoder_hidden_states.0"], found["encoder_last_hidden_state"])


def test_the_encoder_mask_says_nothing_of_decoder_positions() -> None:
    outputs = {"last_hidden_state": torch.ones(2, 4, 8), "encoder_last_hidden_state": torch.ones(2, 4, 8)}
    inputs = {"input_ids": ids(2, 4), "attention_mask": mask("1110", "1111")}
    given = {**inputs, "decoder_input_ids": ids(2, 4)}
    assert list(undefined_positions(given, outputs)) == ["encoder_last_hidden_state"]
    # The model makes the decoder's ids itself.
    assert list(undefined_positions(inputs, outputs)) == ["encoder_last_hidden_state"]


# -- Reactions -------------------------------------------------------------------------------------------------


def test_an_input_that_matters_reacts_and_an_ignored_one_does_not() -> None:
    found = reaction(lambda x, ignored: x * 2, x=torch.ones(2, 3), ignored=torch.ones(2, 3))
    assert found["x"] > MIN_REACTION
    assert found["ignored"] == 0


def test_a_small_effect_is_measured_in_tolerances() -> None:
    # On outputs of 0 the tolerance is 1e-4; the mask's left quarter is 2 of 8 positions.
    found = reaction(lambda attention_mask: 1e-3 * (8 - attention_mask.sum(-1)), attention_mask=torch.ones(2, 8).long())
    assert found["attention_mask"] == pytest.approx(20)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([[True, False], [False, True]]),
        torch.zeros(2, 2, dtype=torch.bool),
        torch.tensor([[1, 0], [0, 1]]),
        torch.zeros(2, 2, dtype=torch.int64),
        torch.full((2, 2), 7),
        torch.full((2, 2), 3, dtype=torch.uint8),
        torch.tensor([[0.5, 0.25], [0.75, 0.125]]),
        torch.zeros(2, 2, dtype=torch.float16),
        torch.zeros(2, 2, dtype=torch.bfloat16),
        torch.tensor([[4], [9]]),
        torch.tensor([[1, 1], [0, 0]]),
        torch.tensor([5, 6]),
        torch.ones(3, 2, dtype=torch.int64).T,
        torch.arange(3).expand(2, 3),
        torch.arange(6).reshape(2, 3).T,
    ],
    ids=str,
)
def test_every_kind_of_value_is_really_changed(value: torch.Tensor) -> None:
    before = value.clone()
    assert reaction(lambda x: x.double(), x=value)["x"] > MIN_REACTION
    assert torch.equal(value, before)


def test_changed_ids_stay_among_those_given() -> None:
    changes = changed_inputs({"input_ids": ids(), "other": torch.ones(2)}, SEED)["input_ids"]
    for changed in changes:
        assert sorted(changed["input_ids"].flatten().tolist()) == list(range(1, 17))
        assert changed["other"].tolist() == [1, 1]
    all_five = torch.full((2, 4), 5)
    assert changed_inputs({"input_ids": all_five}, SEED)["input_ids"][0]["input_ids"].unique().tolist() == [4, 5]


def test_a_model_that_sums_a_row_up_is_not_taken_for_blind() -> None:
    rows = torch.tensor([[3, 1, 2, 9], [4, 6, 5, 9]])  # both end in the same token, as texts do
    assert reaction(lambda input_ids: input_ids.double().sum(-1), input_ids=rows)["input_ids"] > MIN_REACTION


def test_a_mask_that_hides_positions_from_themselves_alone_moves_only_what_is_exempt() -> None:
    def only_exempt(function: Any) -> bool:
        model, inputs = Model(function), {"input_ids": ids(), "attention_mask": torch.ones(2, 8).long()}
        return moves_only_exempt(model, inputs, "attention_mask", run_eager(model, inputs, SEED), SEED)

    own = only_exempt(lambda input_ids, attention_mask: (input_ids * attention_mask)[..., None].double())
    others = only_exempt(lambda input_ids, attention_mask: (input_ids * attention_mask).double().sum(1, keepdim=True))
    assert (own, others) == (True, False)
    assert not only_exempt(lambda input_ids, attention_mask: input_ids[..., None].double())


def test_masks_lose_positions_on_the_left_where_causal_models_see_it() -> None:
    flat = changed_inputs({"attention_mask": torch.ones(2, 8).long()}, SEED)["attention_mask"][0]["attention_mask"]
    assert flat.tolist() == [[0, 0, 1, 1, 1, 1, 1, 1], [1] * 8]
    deep = changed_inputs({"span_mask": torch.ones(2, 3, 4).bool()}, SEED)["span_mask"][0]["span_mask"]
    assert deep[0].int().tolist() == [[0, 1, 1, 1]] * 3
    assert deep[1].all()


def test_what_a_changed_mask_hides_a_user_could_have_hidden() -> None:
    """A picture always has its first row and column, and each channel of a series is observed at some step."""
    pictures = {"pixel_attention_mask": torch.ones(2, 2, 3, 8).long()}
    (changed,) = changed_inputs(pictures, SEED)["pixel_attention_mask"]
    assert changed["pixel_attention_mask"][0].tolist() == [[[1] * 4 + [0] * 4] * 3] * 2
    series = {"past_observed_mask": torch.ones(2, 8, 3).bool()}
    (changed,) = changed_inputs(series, SEED)["past_observed_mask"]
    assert changed["past_observed_mask"][0].int().T.tolist() == [[0] * 2 + [1] * 6] * 3
    assert changed["past_observed_mask"][1].all()


def test_a_causal_model_feels_its_mask() -> None:
    def causal(x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        weights = attention_mask * x
        return weights.cumsum(-1)

    found = reaction(causal, x=torch.rand(2, 8) + 1, attention_mask=torch.ones(2, 8).long())
    assert found["attention_mask"] > MIN_REACTION


def test_positions_that_the_mask_itself_blanks_are_no_reaction() -> None:
    found = reaction(lambda attention_mask: attention_mask * 1.0, attention_mask=torch.ones(2, 8).long())
    assert found["attention_mask"] == 0


def test_values_that_eager_refuses_single_numbers_and_non_tensors_are_left_out() -> None:
    def picky(x: torch.Tensor, n: torch.Tensor, flag: bool, sizes: torch.Tensor) -> torch.Tensor:
        if sizes.tolist() != [[2, 2]]:
            raise ValueError("only two by two")
        return x

    found = reaction(picky, x=torch.rand(2), n=torch.tensor(2), flag=True, sizes=torch.tensor([[2, 2]]))
    assert list(found) == ["x"]


def test_a_change_that_moves_the_shape_or_an_integer_is_noticed() -> None:
    assert reaction(lambda span_mask: span_mask.nonzero(), span_mask=torch.ones(2, 8).long())["span_mask"] == float(
        "inf"
    )
    assert reaction(lambda x: x.argmax(-1), x=torch.tensor([[1, 5, 2]]))["x"] >= MIN_REACTION


@pytest.mark.parametrize("value", [torch.rand(2, 5, 3)[:, 1:], torch.rand(3, 2).t(), torch.rand(1, 3).expand(2, 3)])
def test_copies_and_changes_lie_in_memory_as_what_they_stand_for(value: torch.Tensor) -> None:
    copy = copied({"x": value})["x"]
    (changed,) = changed_inputs({"x": value}, SEED)["x"]
    assert torch.equal(copy, value)
    assert not torch.equal(changed["x"], value)
    if 0 not in value.stride():
        assert copy.stride() == changed["x"].stride() == value.stride()
    copy.zero_()
    assert bool(value.any()), "the copy shares its memory"
