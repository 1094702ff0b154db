from __future__ import annotations

from typing import Any

import pytest

from exporters.configs import DynamoConfig, ExecutorchConfig, OnnxConfig, coerce


def test_a_config_comes_from_nothing_a_dict_or_itself() -> None:
    assert coerce(None, OnnxConfig) == OnnxConfig()
    assert coerce({"opset": 20}, OnnxConfig).opset == 20
    given = OnnxConfig(dynamic=False)
    assert coerce(given, OnnxConfig) is given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"opsett": 20}, "OnnxConfig has no opsett; it takes dynamic, "),
        (ExecutorchConfig(), "expected OnnxConfig or a dict of its fields, got ExecutorchConfig"),
        (DynamoConfig(), "got DynamoConfig"),
        ("dynamic", "got str"),
    ],
)
def test_anything_else_is_refused(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        coerce(given, OnnxConfig)


def test_only_executorch_bounds_its_axes_unasked() -> None:
    assert (DynamoConfig().max_size, OnnxConfig().max_size, ExecutorchConfig().max_size) == (None, None, 64)


@pytest.mark.parametrize("fields", [{"max_size": 0}, {"max_size": "a"}, {"max_sizes": {"input_ids": {0: 1}}}])
def test_bounds_that_bound_nothing_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the bound of a dynamic axis is a size of at least 2"):
        ExecutorchConfig(**fields)


def test_executorch_is_never_unbounded() -> None:
    assert ExecutorchConfig(max_size=None).max_size == ExecutorchConfig().max_size == 64
