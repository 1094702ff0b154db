from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import Artifact, DynamoExporter, OnnxExporter
from exporters.inputs import prepare_export_inputs, values_asked_for
from exporters.registry import Hits, register_export_input_preparer
from exporters.skeleton import build_skeleton, describe_model
from tests.exporters.models import assert_equals_eager, grid_inputs, tiny_qwen2_vl


class Windows(torch.nn.Module):
    """Sums within windows whose borders are values: (windows) of x (length) and ends (windows)."""

    def forward(self, x: torch.Tensor, ends: torch.Tensor, window: torch.Tensor | None = None) -> torch.Tensor:
        if window is None:
            window = torch.repeat_interleave(torch.arange(len(ends)), ends.diff(prepend=torch.zeros(1).long()))
        return torch.zeros(ends.shape[0]).index_add(0, window, x)


def _of_windows(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """How long each window is, only the values tell."""
    lengths = inputs["ends"].diff(prepend=torch.zeros(1).long())
    return {"window": torch.repeat_interleave(torch.arange(len(lengths)), lengths)}


def windows(*ends: int) -> dict[str, torch.Tensor]:
    return {"x": torch.arange(float(ends[-1])), "ends": torch.tensor(ends)}


@pytest.mark.export
def test_what_a_preparer_makes_is_an_input_of_the_graph_and_made_again_at_each_call() -> None:
    register_export_input_preparer("x", "ends")(_of_windows)
    artifact = DynamoExporter().export_artifact(Windows().eval(), windows(2, 5, 6))
    assert artifact.made == ("window",)
    assert artifact.workarounds["dynamo/signature/of_windows"] == 1
    assert artifact(**windows(2, 5, 6))["output"].tolist() == [1.0, 9.0, 5.0]
    assert artifact(**windows(1, 4, 6, 7))["output"].tolist() == [0.0, 6.0, 9.0, 6.0]
    given = {**windows(2, 5, 6), "window": torch.tensor([0, 0, 0, 0, 0, 2])}
    assert artifact(**given)["output"].tolist() == [10.0, 0.0, 5.0]


def test_a_preparer_runs_only_where_all_its_markers_are_and_adds_nothing_that_is_given() -> None:
    register_export_input_preparer("x", "ends")(_of_windows)
    hits = Hits()
    assert "window" not in prepare_export_inputs(Windows(), {"x": torch.ones(3)}, hits=hits)
    given = {**windows(3), "window": torch.tensor([7])}
    assert prepare_export_inputs(Windows(), given, hits=hits)["window"].tolist() == [7]
    assert not hits.counts
    off = prepare_export_inputs(Windows(), windows(3), disabled={"dynamo/signature/of_windows"})
    assert "window" not in off


def test_a_preparer_needs_a_marker() -> None:
    with pytest.raises(ValueError, match="needs at least one name of an input"):
        register_export_input_preparer()


@pytest.mark.export
def test_a_preparer_that_takes_the_place_of_its_marker_does_so_at_each_call(tmp_path: Path) -> None:
    class Doubled(torch.nn.Module):
        def forward(self, mel: torch.Tensor) -> torch.Tensor:
            return mel + 1

    def ten_times(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """In place."""
        return {"mel": inputs["mel"].mul_(10)}

    register_export_input_preparer("mel")(ten_times)
    mel = torch.ones(3)
    artifact = DynamoExporter().export_artifact(Doubled().eval(), {"mel": mel})
    assert artifact(mel=mel)["output"].tolist() == [11.0, 11.0, 11.0]
    assert mel.tolist() == [1.0, 1.0, 1.0], "a preparer has tensors of its own"


@pytest.mark.export
def test_a_loaded_artifact_without_a_model_to_ask_says_what_to_pass(tmp_path: Path) -> None:
    register_export_input_preparer("x", "ends")(_of_windows)
    DynamoExporter().export_artifact(Windows().eval(), windows(2, 5, 6)).save(tmp_path)
    loaded = Artifact.load(tmp_path, allow_pickle=True)
    with pytest.raises(ValueError, match=r"window is made from the other inputs .* pass what exporters.inputs"):
        loaded(**windows(2, 5, 6))
    assert loaded(**prepare_export_inputs(Windows(), windows(2, 5, 6)))["output"].tolist() == [1.0, 9.0, 5.0]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (RuntimeError("boom"), "input preparer dynamo/signature/odd failed: RuntimeError: boom"),
        (None, "returned None, not"),
    ],
)
def test_a_preparer_that_is_wrong_is_named(returned: Any, message: str) -> None:
    def odd(model: Any, inputs: Mapping[str, Any]) -> Any:
        """Wrong."""
        if isinstance(returned, Exception):
            raise returned
        return returned

    register_export_input_preparer("x")(odd)
    with pytest.raises((RuntimeError, TypeError), match=message):
        prepare_export_inputs(Windows(), windows(2))


@pytest.mark.export
def test_numbers_made_of_a_tensor_are_compared_with_those_of_the_export(tmp_path: Path) -> None:
    class Cut(torch.nn.Module):
        def forward(self, x: torch.Tensor, image_sizes: Any) -> torch.Tensor:
            return torch.cat([row[: size[0]] for row, size in zip(x, image_sizes, strict=True)])

    inputs = {"x": torch.arange(8.0).reshape(2, 4), "image_sizes": torch.tensor([[2, 3], [4, 1]])}
    artifact = DynamoExporter().export_artifact(Cut().eval(), inputs, {"dynamic": False})
    assert artifact(**inputs)["output"].tolist() == [0.0, 1.0, 4.0, 5.0, 6.0, 7.0]
    with pytest.raises(ValueError, match="image_sizes was exported as"):
        artifact(**{**inputs, "image_sizes": torch.tensor([[1, 3], [4, 1]])})


def test_sizes_of_images_become_numbers() -> None:
    made = prepare_export_inputs(Windows(), {"image_sizes": torch.tensor([[4, 8], [2, 2]])})
    assert made["image_sizes"] == [(4, 8), (2, 2)]


def test_an_encoder_is_asked_for_all_that_it_would_compute() -> None:
    encoder = tiny_qwen2_vl().model.visual
    inputs = grid_inputs((1, 2, 4), (2, 2, 2))
    found = values_asked_for(encoder, lambda: encoder(**inputs))
    assert found["cu_seqlens"].tolist() == [0, 8, 12, 16]
    assert found["position_ids"].shape == (16, 2)
    # and one without weights gives the same
    skeleton = build_skeleton(describe_model(encoder) or {})
    assert next(skeleton.parameters()).device.type == "meta"
    again = values_asked_for(skeleton, lambda: skeleton(**inputs))
    assert all(torch.equal(found[name], again[name]) for name in found)


def test_what_fails_before_anything_is_asked_is_an_error() -> None:
    encoder = tiny_qwen2_vl().model.visual
    with pytest.raises(TypeError):
        values_asked_for(encoder, encoder)


@pytest.mark.export
@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter()], ids=lambda e: e.backend)
def test_packed_pictures_of_any_number_and_size(exporter: Any, tmp_path: Path) -> None:
    encoder = tiny_qwen2_vl().model.visual
    artifact = exporter.export_artifact(encoder, grid_inputs((1, 2, 4), (1, 4, 4)))
    others = (grid_inputs((1, 4, 2)), grid_inputs((2, 2, 2), (1, 6, 2), (1, 2, 2), seed=1))
    assert_equals_eager(artifact, encoder, *others)
    assert encoder.config._attn_implementation == "sdpa"
    artifact.save(tmp_path)
    assert_equals_eager(Artifact.load(tmp_path, allow_pickle=True), encoder, *others)


@pytest.mark.export
def test_inputs_that_a_model_cannot_count_are_one_clear_error() -> None:
    encoder = tiny_qwen2_vl().model.visual
    artifact = DynamoExporter().export_artifact(encoder, grid_inputs((1, 2, 4), (1, 4, 4)))
    odd = {**grid_inputs((1, 2, 4)), "grid_thw": torch.tensor([[1, 3, 3]])}
    with pytest.raises(ValueError, match=r"position_ids.* cannot be made from the inputs"):
        artifact(**odd)


def test_a_class_that_is_not_here_says_so() -> None:
    with pytest.raises(ValueError, match=r"nowhere:Model cannot be built .* install the version that exported it"):
        build_skeleton({"class": "nowhere:Model", "config": {}})
    assert describe_model(Windows()) is None
