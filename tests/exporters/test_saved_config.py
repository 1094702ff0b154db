from __future__ import annotations

import json
from typing import Any

import pytest
from torch.export import Dim

from exporters.configs import DynamoConfig, ExecutorchConfig, OnnxConfig
from exporters.saved_config import config_from_json, config_to_json


def _through(backend: str, config: DynamoConfig) -> DynamoConfig:
    return config_from_json(backend, json.loads(json.dumps(config_to_json(config))))


@pytest.mark.parametrize(
    ("backend", "config"),
    [
        ("dynamo", DynamoConfig()),
        ("onnx", OnnxConfig(dynamic=False, opset=20, optimize=False, disabled=frozenset({"onnx/a/b", "onnx/a/a"}))),
        ("executorch", ExecutorchConfig(max_size=16, max_sizes={"x": {0: 4, 1: 9}}, backend="portable", strict=True)),
    ],
)
def test_a_config_comes_back_from_json(backend: str, config: DynamoConfig) -> None:
    assert _through(backend, config) == config


def test_dynamic_shapes_come_back_with_their_containers_and_hints() -> None:
    shapes = {
        "x": {0: Dim.AUTO, 1: Dim.DYNAMIC, 2: Dim.AUTO(min=2, max=8)},
        "pair": (None, [Dim.STATIC, 4]),
        "nested": {"y": {}},
    }
    assert _through("dynamo", DynamoConfig(dynamic_shapes=shapes)).dynamic_shapes == shapes


def test_named_dimensions_come_back_as_one_object_each() -> None:
    length = Dim("length", min=2, max=64)
    shapes = {"x": {0: Dim("batch"), 1: length}, "y": {1: length}, "z": {0: 2 * length + 1, 1: 3 * length}}
    found: Any = _through("dynamo", DynamoConfig(dynamic_shapes=shapes)).dynamic_shapes
    again = found["x"][1]
    assert (again.__name__, again.min, again.max) == ("length", 2, 64)
    assert found["y"][1] is again
    assert found["x"][0].__name__ == "batch"
    assert [(dim.__name__, dim.root is again) for dim in found["z"].values()] == [
        ("2*length + 1", True),
        ("3*length", True),
    ]


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="dynamic_shapes hold a object, which cannot be saved"):
        config_to_json(DynamoConfig(dynamic_shapes={"x": object()}))
