from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import Artifact, DynamoConfig, DynamoExporter, ExecutorchExporter, OnnxExporter, StageError
from exporters.leaves import named_leaves
from exporters.stages import STAGES
from tests.exporters.models import (
    Branching,
    Mean,
    Odd,
    assert_odd,
    assert_untouched,
    bert_inputs,
    mean_inputs,
    snapshot,
    tiny_bert,
)

pytestmark = pytest.mark.export


def test_a_dynamic_program_runs_at_other_shapes() -> None:
    model = Mean().eval()
    program = DynamoExporter().export(model, mean_inputs())
    for batch, length in ((1, 5), (3, 9)):
        inputs = mean_inputs(batch, length)
        torch.testing.assert_close(program.module()(**inputs)["logits"], model(**inputs)["logits"])


def test_a_static_program_keeps_the_traced_sizes() -> None:
    artifact = DynamoExporter().export_artifact(Mean().eval(), mean_inputs(), DynamoConfig(dynamic=False))
    assert not any(axis.dynamic for axis in artifact.axes)
    with pytest.raises(ValueError, match="was exported as 2, fixed"):
        artifact(**mean_inputs(3, 9))


def test_the_artifact_tells_what_it_holds() -> None:
    told: list[str] = []
    inputs = {**mean_inputs(), "scale": 2.0}
    artifact = DynamoExporter().export_artifact(Mean().eval(), inputs, on_stage=told.append)
    assert artifact.input_paths == ("input_ids", "attention_mask")
    assert artifact.output_paths == ("logits", "nested.pooled")
    assert artifact.constants == {"scale": 2.0}
    assert list(dict.fromkeys(told)) == list(STAGES["dynamo"])
    assert set(artifact.stage_seconds) == set(told)
    assert list(artifact(**inputs)) == ["logits", "nested.pooled"]


def test_calls_are_bound_by_name_and_checked() -> None:
    model, inputs = Mean().eval(), mean_inputs()
    artifact = DynamoExporter().export_artifact(model, {**inputs, "scale": 2.0})
    swapped = dict(reversed(inputs.items()))
    torch.testing.assert_close(artifact(**swapped)["logits"], model(**inputs, scale=2.0)["logits"])
    with pytest.raises(ValueError, match=r"unknown \['pixels'\], missing \['attention_mask'\]"):
        artifact(input_ids=inputs["input_ids"], pixels=torch.ones(1))
    with pytest.raises(ValueError, match=r"scale was exported as 2.0 and cannot be 3.0"):
        artifact(**inputs, scale=3.0)
    with pytest.raises(ValueError, match=r"unknown \['return_dict'\]"):
        artifact(**inputs, return_dict=True)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"input_ids": torch.ones(2, 70, dtype=torch.long)}, "axis 1 of input_ids is 70, at most 64 was exported"),
        ({"input_ids": torch.ones(2, 5, dtype=torch.int32)}, "input_ids is int32 and was exported as int64"),
        ({"attention_mask": torch.ones(2, dtype=torch.long)}, "attention_mask has 1 axes and was exported with 2"),
    ],
)
def test_what_the_graph_cannot_take_is_refused_in_words(changed: dict[str, Any], message: str) -> None:
    artifact = DynamoExporter().export_artifact(Mean().eval(), mean_inputs(), {"max_size": 64})
    with pytest.raises(ValueError, match=message):
        artifact(**{**mean_inputs(), **changed})


def test_a_fixed_axis_is_refused_in_words() -> None:
    artifact = DynamoExporter().export_artifact(Mean().eval(), mean_inputs(), {"dynamic": False})
    with pytest.raises(ValueError, match="axis 0 of input_ids is 3 and was exported as 2, fixed"):
        artifact(**mean_inputs(3, 5))


def test_model_and_inputs_come_back_as_they_were() -> None:
    model, inputs = Mean().eval(), mean_inputs()
    before, copies = snapshot(model), {name: value.clone() for name, value in inputs.items()}
    DynamoExporter().export(model, inputs)
    assert_untouched(model, before)
    assert all(torch.equal(inputs[name], copies[name]) for name in copies)
    assert list(inputs) == list(copies)


def test_a_failed_trace_names_the_stage_and_leaves_nothing_behind() -> None:
    model, inputs = Branching().eval(), mean_inputs()
    before = snapshot(model)
    with pytest.raises(StageError) as caught:
        DynamoExporter().export(model, inputs)
    assert (caught.value.backend, caught.value.stage) == ("dynamo", "trace")
    assert "data-dependent" in str(caught.value)
    assert_untouched(model, before)
    assert model(**inputs)["logits"].shape == (2, 3)


def test_the_failing_modeling_line_is_named(tmp_path: Path) -> None:
    source = (
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        y = x + 1\n"
        "        if y.sum() > 0:\n"
        "            y = y * 2\n"
        "        return y\n"
    )
    file = tmp_path / "modeling_branch.py"
    file.write_text(source)
    namespace: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), namespace)
    with pytest.raises(StageError, match=r"at modeling_branch.py:5") as caught:
        DynamoExporter().export(namespace["Model"]().eval(), {"x": torch.ones(2, 2)})
    assert (caught.value.file, caught.value.line, caught.value.function) == (str(file), 5, "forward")


def test_padding_on_either_side_gives_eagers_values() -> None:
    model = tiny_bert()
    artifact = DynamoExporter().export_artifact(model, bert_inputs())
    inputs = bert_inputs(3, 11, padded=True)
    flipped = {**inputs, "attention_mask": inputs["attention_mask"].flip(-1)}
    for given in (inputs, flipped):
        torch.testing.assert_close(artifact(**given)["logits"], model(**given).logits, rtol=1e-4, atol=1e-4)


def test_a_cache_in_the_outputs_is_traced_and_named() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=32,
        vocab_size=50,
    )
    model = LlamaForCausalLM(config).eval()
    inputs = {"input_ids": torch.randint(0, 50, (2, 6)), "attention_mask": torch.ones(2, 6, dtype=torch.long)}
    artifact = DynamoExporter().export_artifact(model, inputs)
    expected = named_leaves(model(**inputs))
    assert len(expected) == 5
    assert artifact.output_paths == tuple(expected)
    torch.testing.assert_close(artifact(**inputs), expected)


def test_a_saved_artifact_runs_in_another_process(tmp_path: Path) -> None:
    artifact = DynamoExporter().export_artifact(Mean().eval(), mean_inputs())
    artifact.save(tmp_path)
    with pytest.raises(ValueError, match="allow_pickle=True"):
        Artifact.load(tmp_path)
    torch.save(artifact(**mean_inputs(3, 9)), tmp_path / "expected.pt")
    torch.save(mean_inputs(3, 9), tmp_path / "inputs.pt")
    code = (
        "import sys, torch; from exporters import Artifact; folder = sys.argv[1]\n"
        "artifact = Artifact.load(folder, allow_pickle=True)\n"
        "outputs = artifact(**torch.load(f'{folder}/inputs.pt'))\n"
        "torch.testing.assert_close(outputs, torch.load(f'{folder}/expected.pt'))\n"
        "assert 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_constant_outputs_and_written_inputs_do_not_shift_the_names() -> None:
    assert_odd(DynamoExporter().export_artifact(Odd().eval(), {"x": torch.zeros(2, 5)}))


class Nested(torch.nn.Module):
    def forward(self, d: dict[str, Any], pair: list[Any]) -> dict[str, torch.Tensor]:
        return {"h": d["x"] * (d["k"] or 1) + (pair[0] if pair[1] is None else pair[1])}


def nested_inputs(batch: int, k: int | None) -> dict[str, Any]:
    return {"d": {"x": torch.full((batch, 4), 2.0), "k": k}, "pair": [torch.ones(batch, 4), None]}


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter()], ids=lambda each: each.backend)
def test_what_lies_beside_tensors_is_baked_in(exporter: Any, k: int | None) -> None:
    artifact = exporter.export_artifact(Nested().eval(), nested_inputs(2, k))
    assert artifact.input_paths == ("d.x", "pair.0")
    assert artifact(**nested_inputs(3, k))["h"].tolist() == [[2.0 * (k or 1) + 1.0] * 4] * 3


def test_executorch_takes_nothing_beside_tensors() -> None:
    with pytest.raises(ValueError, match="d holds 3 beside tensors, and an ExecuTorch program takes tensors only"):
        ExecutorchExporter().export(Nested().eval(), nested_inputs(2, 3))
