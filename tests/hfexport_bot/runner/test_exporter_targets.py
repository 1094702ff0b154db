"""The targets that a revision's own exporters reach for."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfexport_bot.execution.listing import list_exporter_targets
from hfexport_bot.runner.exporter_targets import targets_of
from hfexport_bot.schema import Layout, RunnerSetup

EXPORTER = """
@register_patch("onnx", "json.dumps", "json.nothing")
@register_patch("executorch", "json.dumps", "no_such_package.x", "transformers.models.unchanged.modeling_unchanged.X")
def _patch_dumps(original): ...

@utils.register_export_input_preparer("grid_thw")
def _prepare(model, inputs):
    inputs["x"] = getattr(model, "window_size"), hasattr(model, "patch_side")

def _other(model):
    return getattr(model, "unrelated")
"""
MODELS = {
    "a": "def forward(self, grid_thw): return self.window_size",
    "b": "def forward(self, grid_thws): return self.window_size",
    "c": "def forward(self, grid_thw): return self.window_size_of",
    "unchanged": "def forward(self, grid_thw): return self.window_size",
}


def test_paths_and_names_are_read_in_the_source_and_looked_up(tmp_path: Path) -> None:
    (tmp_path / "exporters" / "inner").mkdir(parents=True)
    (tmp_path / "exporters" / "inner" / "onnx.py").write_text(EXPORTER)
    for name, source in MODELS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"modeling_{name}.py").write_text(source)
    modules = [f"transformers.models.{name}.modeling_{name}" for name in MODELS if name != "unchanged"]
    found = list(targets_of(tmp_path / "exporters", tmp_path, modules))
    assert {target.owner for target in found} == {"repo:inner.onnx._patch_dumps", "repo:inner.onnx._prepare"}
    assert {(target.kind, target.target): target.resolved for target in found} == {
        ("patch", "json.dumps"): True,
        ("patch", "json.nothing"): False,
        ("patch", "no_such_package.x"): False,
        ("marker", "grid_thw in a/modeling_a.py"): True,
        ("marker", "grid_thw in c/modeling_c.py"): True,
        ("marker", "window_size in a/modeling_a.py"): True,
        ("marker", "patch_side"): False,
    }


@pytest.mark.process
@pytest.mark.slow
def test_the_installed_exporters_find_what_they_patch() -> None:
    module = "transformers.models.qwen2_vl.modeling_qwen2_vl"
    found = list_exporter_targets(RunnerSetup(layout=Layout.INSTALLED), [module])
    assert {f"{module}.VisionAttention.forward", "torch.where"} <= {
        target.target for target in found if target.kind == "patch" and target.resolved
    }
    assert "grid_thw in qwen2_vl/modeling_qwen2_vl.py" in {target.target for target in found}
    assert all(target.resolved for target in found if target.kind == "patch")
