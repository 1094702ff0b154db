from __future__ import annotations

from typing import Any

import pytest
import torch
from onnxscript import opset18 as op

from exporters import OnnxExporter, registry
from exporters.onnx.ir_fixes import _IR_FIXES, _fix_ir_shared_outputs
from exporters.onnx.translations import _ONNX_TRANSLATION_TABLE
from exporters.utils import register_fx_node_fix, register_ir_fix, register_translation, workarounds

ERF, SIN = torch.ops.aten.erf.default, torch.ops.aten.sin.default


def _register(name: str, *operators: Any) -> Any:
    def translation(x: Any) -> Any:
        """A test's."""
        return op.Add(x, op.CastLike(op.Constant(value_float=10.0), x))

    translation.__name__ = name
    return register_translation(*operators, model_change="none, this is a test")(translation)


class Both(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.erf(x))


def test_the_table_shows_what_is_registered_and_the_later_of_two_counts() -> None:
    size = len(_ONNX_TRANSLATION_TABLE)
    first = _register("_aten_first", ERF, SIN)
    later = _register("_aten_later", SIN)
    assert {key: _ONNX_TRANSLATION_TABLE[key] for key in (ERF, SIN)} == {ERF: first, SIN: later}
    assert len(list(_ONNX_TRANSLATION_TABLE)) == size + 2
    assert _ONNX_TRANSLATION_TABLE.active({"onnx/translate/aten_later"})[SIN].function is first
    registry.unregister("onnx/translate/aten_first")
    assert ERF not in _ONNX_TRANSLATION_TABLE


@pytest.mark.export
def test_the_exporter_translates_by_the_table() -> None:
    _register("_aten_both", ERF, SIN)
    artifact = OnnxExporter().export_artifact(Both().eval(), {"x": torch.zeros(2, 2)})
    assert artifact.workarounds == {"onnx/translate/aten_both": 2}
    assert float(artifact(x=torch.ones(3, 2))["output"].mean()) == 21.0
    disabled = {"disabled": {"onnx/translate/aten_both"}}
    plain = OnnxExporter().export_artifact(Both().eval(), {"x": torch.zeros(2, 2)}, disabled)
    torch.testing.assert_close(plain(x=torch.ones(3, 2))["output"], torch.sin(torch.erf(torch.ones(3, 2))))


@pytest.mark.export
def test_the_exporter_runs_the_ir_fixes_of_the_table_in_their_order() -> None:
    ran = []

    @register_ir_fix(model_change="none, this is a test")
    def _fix_ir_first(model: Any) -> int:
        """A test's."""
        ran.append("first")
        return 3

    @register_ir_fix(model_change="none, this is a test")
    def _fix_ir_second(model: Any) -> int:
        """A test's."""
        ran.append("second")
        return 0

    assert _fix_ir_shared_outputs in _IR_FIXES
    assert list(_IR_FIXES)[-2:] == list(_IR_FIXES[-2:]) == [_fix_ir_first, _fix_ir_second]
    assert len(_IR_FIXES) == len(workarounds("onnx", "ir_fixes"))
    artifact = OnnxExporter().export_artifact(Both().eval(), {"x": torch.zeros(2, 2)})
    assert ran == ["first", "second"]
    assert artifact.workarounds == {"onnx/ir_fixes/fix_ir_first": 3}
    OnnxExporter().export(Both().eval(), {"x": torch.zeros(2, 2)}, {"disabled": {"onnx/ir_fixes/fix_ir_first"}})
    assert ran == ["first", "second", "second"]


class Deviation(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.std(1)


@pytest.mark.export
def test_node_fixes_see_what_the_decomposition_made() -> None:
    traced: list[bool] = []

    @register_fx_node_fix("onnx", model_change="none, this is a test")
    def _fix_root(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
        """Negates where a standard deviation takes its root."""
        traced.append(node.target is torch.ops.aten.std.dim)
        if node.target is not torch.ops.aten.sqrt.default:
            return False
        node.target = torch.ops.aten.neg.default
        return True

    artifact, x = OnnxExporter().export_artifact(Deviation().eval(), {"x": torch.randn(2, 8)}), torch.randn(3, 5)
    assert traced.count(True) == 1, "the traced graph has the operator whole, the decomposed one its parts"
    assert artifact.workarounds == {"onnx/node_fixes/fix_root": 1}
    torch.testing.assert_close(artifact(x=x)["output"], -x.var(1))


class Grouped(torch.nn.Module):
    """x: (rows, 16) float32. ends: (4), int32, the row at which each group ends."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = torch.nn.Parameter(torch.randn(4, 16, 8))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        multiply = torch._grouped_mm if self.dtype is torch.bfloat16 else torch.ops.transformers.grouped_mm_fallback
        product: torch.Tensor = multiply(x.to(self.dtype), self.weight.to(self.dtype), offs=ends)
        return product.float()


@pytest.mark.export
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_multiplied_in_groups_of_any_size(dtype: torch.dtype) -> None:
    model = Grouped(dtype).eval()
    traced = {"x": torch.randn(9, 16), "ends": torch.tensor([2, 3, 7, 9], dtype=torch.int32)}
    artifact = OnnxExporter().export_artifact(model, traced)
    assert artifact.workarounds == {"onnx/translate/aten_grouped_mm": 1}
    for ends in ([2, 3, 7, 9], [0, 0, 12, 12], [1, 1, 1, 5]):
        inputs = {"x": torch.randn(ends[-1], 16), "ends": torch.tensor(ends, dtype=torch.int32)}
        # ONNX Runtime has no bfloat16 kernel for the CPU.
        run = artifact.program if dtype is torch.float32 else artifact.program.call_reference
        with torch.no_grad():
            torch.testing.assert_close(run(**inputs)[0], model(**inputs))


class RepeatedByASize(torch.nn.Module):
    """The pattern of prompts on an image: each image is repeated as often as there are prompts."""

    def forward(self, x: torch.Tensor, prompts: torch.Tensor) -> dict[str, torch.Tensor]:
        count = prompts.shape[1]
        return {
            "first": x.repeat_interleave(count, 0),
            "middle": x.repeat_interleave(count, 1),
            "last": x.repeat_interleave(count, -1),
            "flat": x.repeat_interleave(count),
            "fixed": x.repeat_interleave(3, 1),
        }


@pytest.mark.export
def test_repeats_by_a_size_follow_the_size() -> None:
    model, fix = RepeatedByASize().eval(), "onnx/translate/aten_repeat_interleave"
    inputs = {"x": torch.randn(2, 4, 5), "prompts": torch.randn(2, 3)}
    artifact = OnnxExporter().export_artifact(model, inputs)
    assert artifact.workarounds == {fix: 5}
    for shape, count in (((2, 4, 5), 3), ((1, 4, 2), 1), ((3, 6, 5), 7)):
        x, prompts = torch.randn(shape), torch.randn(shape[0], count)
        outputs = artifact(x=x, prompts=prompts)
        assert all(torch.equal(outputs[name], expected) for name, expected in model(x, prompts).items())
