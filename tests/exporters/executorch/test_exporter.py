from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from exporters import ExecutorchConfig, ExecutorchExporter, StageError
from exporters.executorch.exporter import INPUT_PATHS_METHOD, OUTPUT_PATHS_METHOD, paths_from_bytes
from exporters.stages import STAGES
from tests.exporters.models import (
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


def test_a_dynamic_program_runs_in_the_runtime_and_from_its_file(tmp_path: Path) -> None:
    told: list[str] = []
    model, inputs = Mean().eval(), mean_inputs(3, 9)
    artifact = ExecutorchExporter().export_artifact(model, mean_inputs(), on_stage=told.append)
    expected = model(**inputs)
    outputs = artifact(**dict(reversed(inputs.items())))
    torch.testing.assert_close(outputs["logits"], expected["logits"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outputs["nested.pooled"], expected["nested"]["pooled"], rtol=1e-4, atol=1e-4)

    first = list(dict.fromkeys(told))
    assert [stage for stage in first if stage in STAGES["executorch"]] == list(STAGES["executorch"])
    assert {axis.upper for axis in artifact.axes} == {64}

    file = artifact.save(tmp_path)
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(str(file))
    stored = {
        name: paths_from_bytes(program.load_method(name).execute([])[0])
        for name in (INPUT_PATHS_METHOD, OUTPUT_PATHS_METHOD)
    }
    assert stored == {"input_paths": artifact.input_paths, "output_paths": artifact.output_paths}


def test_outputs_of_one_call_survive_the_next() -> None:
    artifact = ExecutorchExporter().export_artifact(Mean().eval(), mean_inputs(), {"backend": "portable"})
    first = artifact(**mean_inputs())["logits"]
    kept = first.clone()
    artifact(**{**mean_inputs(), "input_ids": torch.zeros(2, 5, dtype=torch.long)})
    assert torch.equal(first, kept)


def test_bert_is_right_with_padding_and_at_other_shapes() -> None:
    model = tiny_bert()
    before = snapshot(model)
    artifact = ExecutorchExporter().export_artifact(model, bert_inputs())
    assert_untouched(model, before)
    for inputs in (bert_inputs(3, 11, padded=True), bert_inputs(1, 5)):
        torch.testing.assert_close(artifact(**inputs)["logits"], model(**inputs).logits, rtol=1e-4, atol=1e-4)
    assert len(artifact.program.executorch_program.execution_plan[0].delegates) > 1


class TanhGelu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x, approximate="tanh")


def test_xnnpack_computes_the_approximate_gelu_only_with_the_workaround() -> None:
    model, inputs, fix = TanhGelu().eval(), {"x": torch.linspace(-4, 4, 64).reshape(2, 32)}, "fix_gelu_tanh"
    exporter, expected = ExecutorchExporter(), torch.nn.functional.gelu(inputs["x"], approximate="tanh")
    mended = exporter.export_artifact(model, inputs)
    torch.testing.assert_close(mended(**inputs)["output"], expected, rtol=1e-5, atol=1e-5)
    assert mended.workarounds[f"executorch/node_fixes/{fix}"] == 1
    plain = exporter.export_artifact(model, inputs, ExecutorchConfig(disabled={f"executorch/node_fixes/{fix}"}))
    error = (plain(**inputs)["output"] - expected).abs().max()
    assert error > 1e-4, "no longer needed: XNNPACK computes the approximation"
    assert f"executorch/node_fixes/{fix}" not in plain.workarounds


class ViewAfterAttention(torch.nn.Module):
    """GPT-2's pattern: heads merged by a reshape, then flattened by a view."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = x.view(batch, length, 2, 4).transpose(1, 2)
        attended = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        merged = attended.transpose(1, 2).reshape(batch, length, -1)
        return merged.view(-1, 8).view(batch, length, 8)


def test_a_view_of_attentions_output_lowers_only_with_the_workaround() -> None:
    model, inputs, fix = ViewAfterAttention().eval(), {"x": torch.randn(2, 6, 8)}, "fix_view_after_attention"
    artifact = ExecutorchExporter().export_artifact(model, inputs)
    other = {"x": torch.randn(3, 5, 8)}
    torch.testing.assert_close(artifact(**other)["output"], model(**other), rtol=1e-4, atol=1e-4)
    assert artifact.workarounds[f"executorch/node_fixes/{fix}"] >= 1
    with pytest.raises(StageError, match="Cannot view a tensor") as caught:
        ExecutorchExporter().export(model, inputs, {"disabled": {f"executorch/node_fixes/{fix}"}})
    assert caught.value.stage == "lower"


class MaskedMean(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask.to(x.dtype).unsqueeze(-1)).sum(1)


def test_an_unsqueeze_of_two_dynamic_axes_lowers_only_with_the_workaround() -> None:
    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(batch, length, 4), "mask": torch.ones(batch, length, dtype=torch.long)}

    model, fix = MaskedMean().eval(), "executorch/node_fixes/fix_unsqueeze_of_dynamic_axes"
    artifact, other = ExecutorchExporter().export_artifact(model, inputs(2, 5)), inputs(3, 7)
    torch.testing.assert_close(artifact(**other)["output"], model(**other), rtol=1e-4, atol=1e-4)
    assert artifact.workarounds[fix] == 1
    with pytest.raises(StageError, match="only supports 1 dynamic dimension"):
        ExecutorchExporter().export(model, inputs(2, 5), {"disabled": {fix}})


class SineAndCosine(torch.nn.Module):
    """The pattern of position embeddings that interleave both."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack((x.sin(), x.cos()), dim=-1).flatten(1)


def test_a_stack_of_dynamic_axes_lowers_only_with_the_workaround() -> None:
    model, fix = SineAndCosine().eval(), "executorch/node_fixes/fix_stack_of_dynamic_axes"
    artifact, other = ExecutorchExporter().export_artifact(model, {"x": torch.randn(2, 5)}), torch.randn(3, 7)
    torch.testing.assert_close(artifact(x=other)["output"], model(other), rtol=1e-4, atol=1e-4)
    assert artifact.workarounds[fix] == 1
    with pytest.raises(StageError, match="only supports 1 dynamic dimension"):
        ExecutorchExporter().export(model, {"x": torch.randn(2, 5)}, {"disabled": {fix}})


class ScaledInPlace(torch.nn.Module):
    """The pattern of points that are scaled to the size of a picture. points: (batch, points, 2)."""

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        points = points.clone()
        points[:, :, 0] = points[:, :, 0] / 3
        return 2 * points - 1


def test_a_copy_into_a_place_of_dynamic_axes_lowers_only_with_the_workaround() -> None:
    model, fix = ScaledInPlace().eval(), "executorch/node_fixes/fix_copy_into_place_of_dynamic_axes"
    inputs, other = {"points": torch.randn(2, 5, 2)}, torch.randn(3, 7, 2)
    artifact = ExecutorchExporter().export_artifact(model, inputs)
    torch.testing.assert_close(artifact(points=other)["output"], model(other), rtol=1e-4, atol=1e-4)
    assert artifact.workarounds[fix] == 1
    with pytest.raises(StageError, match="only supports 1 dynamic dimension"):
        ExecutorchExporter().export(model, inputs, {"disabled": {fix}})


class MixedConcatenation(torch.nn.Module):
    """The pattern of labels that are padded with floats."""

    def forward(self, marks: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((marks, -x), dim=1)


def test_a_concatenation_promotes_its_tensors() -> None:
    model = MixedConcatenation().eval()
    inputs = {"marks": torch.ones(2, 3, dtype=torch.long), "x": torch.randn(2, 4)}
    artifact = ExecutorchExporter().export_artifact(model, inputs, {"backend": "portable"})
    assert artifact.workarounds["executorch/node_fixes/fix_cat_of_mixed_dtypes"] == 1
    other = {"marks": torch.ones(3, 5, dtype=torch.long), "x": torch.randn(3, 2)}
    assert torch.equal(artifact(**other)["output"], model(**other))


class Split(torch.nn.Module):
    """A question answering head's pattern, and GPT-2's."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        start, end = x.split(1, dim=-1)
        first, second = torch.arange(x.shape[0]).unsqueeze(-1).expand(-1, 4).split([1, 3], dim=1)
        return {"start": start.squeeze(-1), "end": end.squeeze(-1), "first": first, "second": second}


class Chunk(torch.nn.Module):
    """The pattern of a gated feed-forward layer, in uneven pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        first, second, last = self.linear(x).chunk(3, dim=-1)
        return {"first": first, "second": second, "last": last, "places": torch.arange(x.shape[0])}


@pytest.mark.parametrize(("kind", "hits"), [(Split, 2), (Chunk, 1)])
def test_axes_beside_a_split_stay_dynamic_only_with_the_workaround(kind: type[torch.nn.Module], hits: int) -> None:
    model, inputs, other = kind().eval(), {"x": torch.randn(2, 5, 2)}, {"x": torch.randn(3, 7, 2)}
    fix = "executorch/node_fixes/fix_split_of_dynamic_tensor"
    artifact = ExecutorchExporter().export_artifact(model, inputs)
    torch.testing.assert_close(artifact(**other), model(**other))
    assert artifact.workarounds[fix] == hits
    static = ExecutorchExporter().export_artifact(model, inputs, {"disabled": {fix}})
    with pytest.raises(RuntimeError, match="failed with error"):
        static(**other)


class Largest(torch.nn.Module):
    """The pattern of attention with sinks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.max(dim=-1, keepdim=True).values


def test_a_maximum_along_a_dynamic_axis_is_right_only_with_the_workaround() -> None:
    model, fix = Largest().eval(), "executorch/node_fixes/fix_max_of_dynamic_axis"
    inputs = {"x": torch.randn(2, 3, 5, 4)}
    artifact, other = ExecutorchExporter().export_artifact(model, inputs), {"x": torch.randn(3, 2, 6, 7)}
    torch.testing.assert_close(artifact(**other)["output"], model(**other))
    assert artifact.workarounds[fix] == 1
    with pytest.raises(StageError, match="only supports dim == 2"):
        ExecutorchExporter().export(model, inputs, {"disabled": {fix}})


class Capacity(torch.nn.Module):
    """The pattern of routers with a capacity: so many of the first rows count."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (torch.arange(x.shape[0]) < math.ceil(0.5 * x.shape[0])).unsqueeze(-1)


def test_a_limit_computed_from_a_size_follows_the_size() -> None:
    model = Capacity().eval()
    artifact = ExecutorchExporter().export_artifact(model, {"x": torch.randn(4, 2)}, {"backend": "portable"})
    for rows in (4, 7, 1):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(artifact(x=x)["output"], model(x))


def test_an_unknown_backend_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="backend 'xnnpak'; known are xnnpack, portable, cuda"):
        ExecutorchExporter().export(Mean().eval(), mean_inputs(), {"backend": "xnnpak"})


def test_constant_outputs_and_written_inputs_do_not_shift_the_names() -> None:
    assert_odd(ExecutorchExporter().export_artifact(Odd().eval(), {"x": torch.zeros(2, 5)}))
