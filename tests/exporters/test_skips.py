from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exporters import OnnxExporter
from exporters.registry import workarounds
from exporters.skips import (
    EXPORT_SKIPS,
    ONNX_DISABLE_OPTIMIZE,
    find_skip,
    register_export_skip,
    register_onnx_disable_optimize,
)
from tests.exporters.models import Mean, mean_inputs


class Config:
    model_type = "toy"


class Toy:
    config_class = Config


class Other:
    config_class = None


def _skip(*models: str, name: str = "toys", backend: str = "onnx", **fields: Any) -> str:
    return register_export_skip(name, *models, backend=backend, reason="They hang.", model_change="test", **fields)


def _found(model_class: type, shapes: str = "dynamic", task: str = "forward", **fields: Any) -> str | None:
    skip = find_skip(model_class, **{"backend": "onnx", "shapes": shapes, "task": task, **fields})
    return skip and skip.id


@pytest.mark.parametrize("name", ["Toy", f"{__name__}.Toy", "toy"])
def test_a_model_is_named_by_class_path_or_type(name: str) -> None:
    _skip("Unrelated", name)
    assert _found(Toy) == "onnx/source/toys"
    assert _found(Other) is None
    assert _found(Toy, backend="dynamo") is None
    assert _found(Toy, disabled={"onnx/source/toys"}) is None


def test_shapes_and_task_narrow_a_skip() -> None:
    _skip("Toy", shapes="static", task="generate")
    assert _found(Toy, "static", "generate") == "onnx/source/toys"
    assert _found(Toy, "dynamic", "generate") is None
    assert _found(Toy, "static", "forward") is None


def test_the_tables_show_what_is_registered() -> None:
    before = len(EXPORT_SKIPS), len(ONNX_DISABLE_OPTIMIZE)
    skip = _skip("Toy")
    kept = register_onnx_disable_optimize("toys", "Toy", reason="Folds wrongly.", model_change="test")
    assert (len(EXPORT_SKIPS), len(ONNX_DISABLE_OPTIMIZE)) == (before[0] + 1, before[1] + 1)
    assert kept == "onnx/optimize/toys"
    assert EXPORT_SKIPS[skip].reason == "They hang."
    assert list(ONNX_DISABLE_OPTIMIZE)[-1] == kept
    assert {skip, kept} <= {workaround.id for workaround in workarounds("onnx")}


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda: register_export_skip("x", "Toy", backend="onnx", reason="r"), "needs upstream= .* or model_change="),
        (lambda: register_onnx_disable_optimize("x", "Toy", reason="r"), "needs upstream= .* or model_change="),
        (lambda: register_export_skip("x", backend="onnx", reason="r", model_change="m"), "the models it is for"),
        (lambda: register_export_skip("x", "Toy", backend="onnx", reason="", model_change="m"), "a reason"),
        (lambda: _skip("Toy", backend="tflite"), "'tflite' has no stage"),
        (lambda: _skip("Toy", shapes="dynamc"), "shapes are dynamic or static"),
        (lambda: (_skip("Toy"), _skip("Toy")), "registered already"),
    ],
)
def test_an_entry_without_its_reasons_is_refused(register: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register()


@pytest.mark.export
def test_the_exporter_passes_over_optimize_and_counts_it() -> None:
    kept = register_onnx_disable_optimize("mean", "Mean", reason="Folds wrongly.", model_change="test")
    told: list[str] = []
    artifact = OnnxExporter().export_artifact(Mean().eval(), mean_inputs(), on_stage=told.append)
    assert "optimize" not in told
    assert artifact.workarounds == {kept: 1}
    OnnxExporter().export_artifact(Mean().eval(), mean_inputs(), {"disabled": {kept}}, on_stage=told.append)
    assert "optimize" in told
    plain = OnnxExporter().export_artifact(Mean().eval(), mean_inputs(), {"optimize": False})
    assert plain.workarounds == {}
