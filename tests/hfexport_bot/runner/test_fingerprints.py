"""What tells two cases apart, and what does not: another process, seed or hash seed of the same code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import DynamoConfig, DynamoExporter
from hfexport_bot.runner.fingerprints import eager_fingerprint, exporters_fingerprint, graph_fingerprint
from hfexport_bot.schema import CaseId, Layout, RunnerSetup

pytestmark = pytest.mark.export


class Model(torch.nn.Module):
    """Every test changes one thing of it."""

    scale, power, width, loops = 0.5, False, 4, 2
    steps = (1.0, 2.0)
    attention = "math"

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(4, self.width)
        self.register_buffer("table", torch.tensor(self.steps), persistent=False)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.project(x) * self.scale + lengths[:, None, None] * self.table.sum()
        y = torch.cond(lengths.sum() > 3, torch.sin, self.other, (y,))
        if self.attention == "sdpa":
            y = torch.nn.functional.scaled_dot_product_attention(y, y, y)
        for _ in range(self.loops):
            y = y + y.pow(2) if self.power else y + torch.square(y)
        return {"out": y}

    other = staticmethod(torch.cos)


def inputs(length: int = 3) -> dict[str, torch.Tensor]:
    return {"x": torch.ones(2, length, 4), "lengths": torch.tensor([1, 2])}


def fingerprint(
    model: torch.nn.Module, given: Mapping[str, Any] | None = None, exporters: str = "", **config: Any
) -> str:
    found = []
    DynamoExporter().export_artifact(
        model.eval(),
        given or inputs(),
        DynamoConfig(**config),
        on_trace=lambda program: found.append(graph_fingerprint(program, exporters)),
    )
    return str(found[0])


def changed(**attributes: Any) -> torch.nn.Module:
    return type("Model", (Model,), attributes)()


def test_weights_and_sample_values_do_not_matter_to_a_graph() -> None:
    one = fingerprint(Model())
    other = Model()
    torch.nn.init.ones_(other.project.weight)
    assert fingerprint(other, {**inputs(), "x": torch.rand(2, 3, 4)}) == one
    assert fingerprint(other, inputs(length=5)) == one, "a dynamic axis has no length of its own"


@pytest.mark.parametrize(
    "model",
    [
        changed(scale=0.25),
        changed(power=True),
        changed(steps=(1.0, 3.0)),
        changed(loops=3),
        changed(attention="sdpa"),
        changed(width=1),
        changed(other=staticmethod(torch.tanh)),
        Model().double(),
    ],
    ids=["number", "operator", "constant", "more", "attention", "shape", "branch", "dtype"],
)
def test_what_a_graph_is_made_of_matters(model: torch.nn.Module) -> None:
    given = {
        name: value.to(next(model.parameters()).dtype) if name == "x" else value for name, value in inputs().items()
    }
    assert fingerprint(model, given) != fingerprint(Model())


def test_sizes_exporters_and_made_inputs_matter() -> None:
    found = {
        "plain": fingerprint(Model()),
        "static": fingerprint(Model(), dynamic=False),
        "static, longer": fingerprint(Model(), inputs(length=5), dynamic=False),
        "bounded": fingerprint(Model(), max_size=32),
        "other exporters": fingerprint(Model(), exporters="other"),
        "made of other sizes": fingerprint(Model(), {**inputs(), "lengths": torch.tensor([2, 2])}),
    }
    assert len(set(found.values())) == len(found)


def test_eager_is_told_by_weights_inputs_and_outputs() -> None:
    model, given = Model().eval(), inputs()
    outputs = model(**given)
    one = eager_fingerprint(model, given, {"longer": inputs(5)}, outputs)
    assert eager_fingerprint(model, inputs(), {"longer": inputs(5)}, dict(outputs)) == one
    moved = {"out": outputs["out"] + 1e-6}
    assert eager_fingerprint(model, given, {"longer": inputs(5)}, moved) != one
    assert eager_fingerprint(model, given, {"longer": inputs(6)}, outputs) != one
    assert eager_fingerprint(model, {**given, "lengths": torch.tensor([1, 3])}, {"longer": inputs(5)}, outputs) != one
    model.project.bias.data[0] += 1
    assert eager_fingerprint(model, given, {"longer": inputs(5)}, outputs) != one


def test_exporters_are_told_by_settings_and_the_repositorys_workarounds(tmp_path: Path) -> None:
    case = CaseId.parse("m/Model/onnx/dynamic/forward")
    setup = RunnerSetup(layout=Layout.MODELING, tree=str(tmp_path), workarounds_file="w.py")
    (tmp_path / "w.py").write_text("")
    one = exporters_fingerprint(case, setup)
    assert exporters_fingerprint(case, setup) == one
    assert exporters_fingerprint(case, setup.model_copy(update={"disabled_workarounds": ("a/b/c",)})) != one
    (tmp_path / "w.py").write_text("pass\n")
    assert exporters_fingerprint(case, setup) != one


def fingerprints() -> str:
    torch.manual_seed(0)
    model = Model().eval()
    return f"{fingerprint(model)} {eager_fingerprint(model, inputs(), {}, model(**inputs()))}"


@pytest.mark.process
def test_fingerprints_are_the_same_in_any_process() -> None:
    script = "from tests.hfexport_bot.runner.test_fingerprints import fingerprints; print(fingerprints())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONHASHSEED": "4711", "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == fingerprints()
