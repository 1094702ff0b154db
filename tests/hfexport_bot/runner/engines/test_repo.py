"""Engine repo on small packages of both shapes: what is found in them, and how their exports are told of."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import StageError
from hfexport_bot.runner.checks import check
from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.engines import RepoParts
from hfexport_bot.runner.engines.package import ExportersPackage, NoEngine
from hfexport_bot.runner.engines.repo import CannotDrive, RepoStageError, export_generation_repo, export_repo
from hfexport_bot.runner.parts import check_parts
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import Backend
from tests.hfexport_bot.runner.engines.fakes import SHAPES, fake_package

pytestmark = pytest.mark.export


class Doubling(torch.nn.Module):
    """x: (batch, length), float; length: (batch,), int64; made of x where it is not given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(
        self, x: torch.Tensor, length: torch.Tensor | None = None, scale: float = 1.0, broken: bool = False
    ) -> dict[str, Any]:
        length = torch.full((len(x),), x.shape[1]) if length is None else length
        return {"out": torch.square(x) * self.weight * scale + length[:, None], "nested": (x.sum(1),)}


class Fixed(Doubling):
    """Its length gets baked in."""

    def forward(self, x: torch.Tensor, **others: Any) -> dict[str, Any]:
        return {"out": x * torch.arange(int(x.shape[1]), dtype=torch.float32).reshape(4)}


@pytest.fixture(params=sorted(SHAPES))
def package(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExportersPackage]:
    with fake_package(tmp_path, request.param) as found:
        yield found


def doubling(**others: Any) -> ModelCase:
    probes = {"longer": {"x": torch.rand(3, 6), **others}}
    return ModelCase(Doubling().eval(), {"x": torch.rand(2, 4), **others}, probes)


def export(case: ModelCase, package: ExportersPackage, disabled: tuple[str, ...] = (), dynamic: bool = True) -> Any:
    stages: list[str] = []
    artifact = export_repo(
        case,
        Backend.DYNAMO,
        dynamic=dynamic,
        disabled=disabled,
        on_stage=lambda stage, part: stages.append(stage),
        package=package,
    )
    return artifact, stages


def judged(artifact: Any, case: ModelCase) -> Any:
    expected = run_eager(case.model, case.inputs, 0)
    return check(
        artifact, case, expected, dynamic=True, seed=0, on_stage=lambda stage: None, clean=lambda message: message
    )


def test_an_export_is_judged_as_ours_are(package: ExportersPackage) -> None:
    case = doubling()
    artifact, stages = export(case, package)
    assert artifact.input_paths == ("x", "length")
    assert artifact.output_paths == ("out", "nested.0")
    assert artifact.made == ("length",)
    assert [(axis.input, axis.axis, axis.dynamic) for axis in artifact.axes] == [
        ("x", 0, True),
        ("x", 1, True),
        ("length", 0, True),
    ]
    assert stages == ["trace", "trace", "state_cleanup"]
    checked = judged(artifact, case)
    assert checked.failure is None
    assert {probe.name: probe.status for probe in checked.components[0].probes}["longer"] == "pass"


def test_what_acted_is_counted_and_what_did_nothing_is_not(package: ExportersPackage) -> None:
    artifact, _ = export(doubling(), package)
    assert artifact.workarounds == {"repo:utils._patch_square": 1, "repo:utils._prepare_length": 1}
    (patches,) = package.registries("_PATCHES")
    assert [entry[2].__name__ for entry in patches["dynamo"]] == ["_patch_square"]
    assert not hasattr(patches["dynamo"][0][2], "__wrapped__"), "the registry is not as it was"


def test_what_is_disabled_does_not_act(package: ExportersPackage) -> None:
    artifact, _ = export(doubling(), package, disabled=("repo:utils._patch_square",))
    assert artifact.workarounds == {"repo:utils._prepare_length": 1}


def test_the_model_stays_as_it_was(package: ExportersPackage) -> None:
    case = doubling()
    given = copy.deepcopy(case.inputs)
    export(case, package)
    assert not hasattr(case.model, "touched")
    assert case.inputs.keys() == given.keys()


def test_constants_may_be_given_again_and_not_changed(package: ExportersPackage) -> None:
    case = doubling(scale=3.0)
    artifact, _ = export(case, package)
    assert artifact.constants == {"scale": 3.0}
    assert judged(artifact, case).failure is None
    with pytest.raises(ValueError, match=r"scale was exported as 3\.0 and cannot be 2\.0"):
        artifact(x=torch.rand(2, 4), scale=2.0)


def test_a_shape_that_is_baked_in_fails_at_a_probe(package: ExportersPackage) -> None:
    case = ModelCase(Fixed().eval(), {"x": torch.rand(2, 4)}, {"shorter": {"x": torch.rand(3, 4)}})
    artifact, _ = export(case, package, dynamic=False)
    failure = judged(artifact, case).failure
    assert failure.stage == "run"
    assert "axis 0 of x is 3 and was exported as 2, fixed" in failure.message


def test_what_is_raised_has_a_stage_and_what_acted_before(package: ExportersPackage) -> None:
    with pytest.raises(RepoStageError, match="a model of this kind") as caught:
        export(doubling(broken=True), package)
    assert caught.value.stage == "trace"
    assert isinstance(caught.value.reason, KeyError)
    assert caught.value.workarounds == {"repo:utils._prepare_length": 1}


class Joined(torch.nn.Module):
    """Two parts, and a sum between them that is in neither."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = Doubling(), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"logits": self.head(self.encoder(x)["out"] + x)}


@torch.no_grad()
def in_parts(model: Joined, inputs: dict[str, Any]) -> dict[str, Any]:
    joined = model.encoder(**inputs)["out"] + inputs["x"]
    return {"image_encoder": (model.encoder, inputs), "lm_head": (model.head, {"input": joined})}


def test_a_model_that_they_take_in_parts_is_exported_and_judged_in_parts(
    package: ExportersPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    utils = sys.modules[f"{package.name}.utils"]
    monkeypatch.setattr(utils, "is_multimodal", lambda model: isinstance(model, Joined), raising=False)
    monkeypatch.setattr(utils, "decompose_multimodal", in_parts, raising=False)
    case = ModelCase(Joined().eval(), {"x": torch.rand(2, 4)}, {"batch_3": {"x": torch.rand(3, 4)}})
    parts, _ = export(case, package)
    assert isinstance(parts, RepoParts)
    assert parts.notes == (
        "transformers.exporters takes the model in parts, each judged on its own; what joins them is not exported",
    )
    assert parts.cases["lm_head"].model is case.model.head
    checked = check_parts(parts, dynamic=True, seed=0, on_stage=lambda stage, part: None, clean=str)
    assert checked.failure is None
    assert {each.name: [probe.name for probe in each.probes] for each in checked.components} == {
        "image_encoder": ["batch_3", "changed_x"],
        "lm_head": ["batch_3", "changed_input"],
    }
    assert not isinstance(export(doubling(), package)[0], RepoParts)


def test_generation_that_is_not_there_says_so(tmp_path: Path) -> None:
    with fake_package(tmp_path, "new") as package, pytest.raises(CannotDrive, match="no export_for_generation"):
        generation(doubling(), package)


def test_an_error_of_a_part_is_not_the_one_that_wraps_it(tmp_path: Path) -> None:
    with fake_package(tmp_path, "old") as package, pytest.raises(StageError) as caught:
        generation(doubling(broken=True), package)
    assert isinstance(caught.value.reason, KeyError)


def generation(case: ModelCase, package: ExportersPackage) -> Any:
    return export_generation_repo(
        case,
        Backend.DYNAMO,
        dynamic=True,
        new_tokens=2,
        disabled=(),
        on_stage=lambda stage, component: None,
        package=package,
    )


def test_a_transformers_without_exporters_says_what_to_use() -> None:
    with pytest.raises(NoEngine, match=r"transformers [\w.]+ has no exporters of its own; use engine own"):
        ExportersPackage.find("transformers.none_of_its_own")


def test_an_exporter_that_is_not_there_says_so(tmp_path: Path) -> None:
    with fake_package(tmp_path, "old") as package, pytest.raises(NoEngine, match="has no OnnxExporter"):
        package.exporter(Backend.ONNX)
