from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from exporters import DynamoExporter, OnnxExporter
from exporters.base import prepare_inputs
from exporters.refusals import refuse_names, refuse_tensors
from tests.exporters.models import Mean, mean_inputs


class ToyForQuestionAnswering(Mean):
    def forward(self, **inputs: Any) -> Any:
        raise AssertionError("a refusal comes first")


class Toy(ToyForQuestionAnswering):
    pass


LABELS = ["labels", "next_sentence_label", "mc_labels", "start_positions", "end_positions", "class_labels"]


@pytest.mark.parametrize("name", LABELS)
def test_what_makes_a_loss_is_refused_before_the_first_stage(name: str) -> None:
    told: list[str] = []
    model, inputs = ToyForQuestionAnswering().eval(), {**mean_inputs(), name: torch.ones(2, dtype=torch.long)}
    with pytest.raises(ValueError, match=rf"{name} makes ToyForQuestionAnswering compute a loss.*; leave it out"):
        DynamoExporter().export_artifact(model, inputs, on_stage=told.append)
    assert told == []


def test_a_loss_that_is_asked_for_is_refused_and_one_that_is_not_is_no_matter() -> None:
    with pytest.raises(ValueError, match="return_loss makes Toy compute a loss"):
        prepare_inputs(Toy().eval(), {**mean_inputs(), "return_loss": True})
    assert prepare_inputs(Toy().eval(), {**mean_inputs(), "return_loss": False}).constants == {"return_loss": False}


def test_inputs_whose_names_only_look_like_labels_are_taken() -> None:
    """SAM's points have labels; positions are a loss's only in a head for question answering."""
    names = ["input_labels", "input_boxes_labels", "start_positions"]
    refuse_names(Toy(), dict.fromkeys(names, torch.ones(2)))


def test_every_loss_of_transformers_heads_is_known_by_its_name() -> None:
    from transformers import BertForPreTraining, BertForQuestionAnswering, GPT2DoubleHeadsModel
    from transformers.utils.generic import find_labels

    for model_class in (BertForPreTraining, BertForQuestionAnswering, GPT2DoubleHeadsModel):
        model = model_class.__new__(model_class)
        labels = find_labels(model_class)
        assert labels
        for name in labels:
            with pytest.raises(ValueError, match=f"{name} makes {model_class.__name__} compute a loss"):
                refuse_names(model, {name: torch.ones(2)})


def _moved(inputs: Mapping[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    return {name: torch.empty(value.shape, dtype=value.dtype, device=device) for name, value in inputs.items()}


def test_inputs_on_another_device_than_the_model_are_refused() -> None:
    model = Mean().eval()
    with FakeTensorMode():
        inputs = _moved(mean_inputs(), "cuda:0")
    with pytest.raises(ValueError, match=r"input_ids is on cuda:0 and Mean on cpu; move it with .to\('cpu'\)"):
        refuse_tensors(model, inputs)
    other = torch.nn.Module()
    with FakeTensorMode():
        other.register_buffer("weights", torch.empty(2, device="cuda:0"))
    refuse_tensors(other, inputs)


def test_tensors_without_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"inputs on the meta device have no values \(input_ids, attention_mask\)"):
        prepare_inputs(Mean().eval(), _moved(mean_inputs(), "meta"))
    with pytest.raises(
        ValueError, match=r"Mean's weights on the meta device .*\(embeddings.weight, head.weight, head.b"
    ):
        prepare_inputs(Mean().to("meta").eval(), mean_inputs())


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


def test_a_floating_dtype_that_no_weight_has_is_refused() -> None:
    model = Head().eval().to(torch.bfloat16)
    model.scale = model.scale.float()  # as rotary frequencies are kept: what counts are the weights
    message = r"x is torch.float32 and the weights of Head are torch.bfloat16; convert it with .to\(torch.bfloat16\)"
    with pytest.raises(ValueError, match=message):
        OnnxExporter().export(model, {"x": torch.ones(2, 4)})
    prepare_inputs(model, {"x": torch.ones(2, 4, dtype=torch.bfloat16)})
    prepare_inputs(Mean().eval().to(torch.float16), mean_inputs())  # integers fit any weights


class Open(Mean):
    """Passes on what it does not know, like many heads."""

    def forward(self, input_ids: Any, attention_mask: Any, **kwargs: Any) -> Any:
        return super().forward(input_ids, attention_mask, kwargs.get("scale", 1.0))


def test_what_nothing_uses_is_refused_and_what_is_passed_along_for_use_is_taken() -> None:
    model, inputs = Open().eval(), mean_inputs()
    artifact = DynamoExporter().export_artifact(model, inputs | {"scale": torch.tensor(2.0)})
    assert artifact.input_paths == ("input_ids", "attention_mask", "scale")
    with pytest.raises(ValueError, match=r"Open.forward takes no input 'foo': it is passed along, and nothing uses it"):
        DynamoExporter().export(model, inputs | {"foo": torch.ones(2)})


def test_a_slip_of_the_pen_is_seen_though_the_forward_passes_on_what_it_does_not_know() -> None:
    inputs = mean_inputs()
    inputs["attention_maks"] = inputs.pop("attention_mask")
    with pytest.raises(ValueError, match="takes no input 'attention_maks'; did you mean attention_mask"):
        DynamoExporter().export(Open().eval(), inputs)
