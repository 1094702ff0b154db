from __future__ import annotations

from typing import Any

import pytest
import torch

from exporters import DynamoExporter
from exporters.base import prepare_inputs
from tests.exporters.models import Mean, mean_inputs


def test_tensors_become_graph_inputs_and_the_rest_is_baked_in() -> None:
    given = {**mean_inputs(), "scale": 2.0, "labels_unused": None}
    prepared = prepare_inputs(Mean().eval(), given)
    assert list(prepared.tensors) == ["input_ids", "attention_mask"]
    assert prepared.constants == {"scale": 2.0}
    assert "labels_unused" in given


def test_tokenizer_output_is_accepted() -> None:
    from transformers import BatchEncoding

    prepared = prepare_inputs(Mean().eval(), BatchEncoding(mean_inputs()))
    assert list(prepared.tensors) == ["input_ids", "attention_mask"]


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([torch.ones(2)], TypeError, "inputs must map argument names .* got list"),
        ({}, ValueError, "at least one sample tensor"),
        ({"scale": 1.0}, ValueError, "at least one sample tensor"),
        ({"input_idz": torch.ones(2)}, ValueError, "takes no input 'input_idz'; did you mean input_ids?"),
        ({"pixels": torch.ones(2)}, ValueError, "it takes input_ids, attention_mask, scale"),
    ],
)
def test_inputs_that_cannot_be_exported_are_refused(inputs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        prepare_inputs(Mean().eval(), inputs)


@pytest.mark.parametrize("disabled", ["dynamo/model_patches/patch_clasifier_cast", "patch_classifier_cast", "x/y/z"])
def test_disabling_what_is_not_there_is_an_error(disabled: str) -> None:
    with pytest.raises(
        ValueError, match=rf"no workaround '{disabled}'; (did you mean|registered are) dynamo/model_patches"
    ):
        DynamoExporter().export(Mean().eval(), mean_inputs(), {"disabled": {disabled}})


def test_a_model_in_training_mode_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Mean is in training mode; call model.eval\(\)"):
        prepare_inputs(Mean(), mean_inputs())
