"""Configs as JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch.export import Dim
from torch.export.dynamic_shapes import _DerivedDim, _DimHint

from exporters.configs import DynamoConfig, ExecutorchConfig, OnnxConfig, coerce

CONFIGS: dict[str, type[DynamoConfig]] = {"dynamo": DynamoConfig, "onnx": OnnxConfig, "executorch": ExecutorchConfig}


def config_to_json(config: DynamoConfig) -> dict[str, Any]:
    """A config's fields, JSON-native. Raises ``TypeError`` where ``dynamic_shapes`` holds something else than
    dimensions, sizes and containers."""
    found = {field.name: getattr(config, field.name) for field in fields(config)}
    found["disabled"] = sorted(config.disabled)
    found["dynamic_shapes"] = _encode(config.dynamic_shapes)
    if config.max_sizes is not None:  # JSON's keys are strings
        found["max_sizes"] = {
            name: {str(axis): size for axis, size in axes.items()} for name, axes in config.max_sizes.items()
        }
    return found


def config_from_json(backend: str, saved: Mapping[str, Any]) -> DynamoConfig:
    """The inverse of `config_to_json`. Dimensions of one name are one object again."""
    given = dict(saved)
    given["disabled"] = frozenset(saved.get("disabled", ()))
    given["dynamic_shapes"] = _decode(saved.get("dynamic_shapes"), {})
    if (bounds := saved.get("max_sizes")) is not None:
        given["max_sizes"] = {name: {int(axis): size for axis, size in axes.items()} for name, axes in bounds.items()}
    return coerce(given, CONFIGS[backend])


def _encode(spec: Any) -> Any:
    """A specification of dynamic shapes as nested lists that start with a tag."""
    if spec is None or type(spec) in (int, str):
        return spec
    if isinstance(spec, Mapping):
        return ["dict", [[key, _encode(item)] for key, item in spec.items()]]
    if isinstance(spec, list | tuple):
        return ["tuple" if isinstance(spec, tuple) else "list", [_encode(item) for item in spec]]
    if isinstance(spec, _DimHint):
        return ["hint", spec.type.name, spec.min, spec.max]
    if isinstance(spec, _DerivedDim):  # linear in its root
        offset = int(spec.fn(0))
        return ["derived", _encode(spec.root), int(spec.fn(1)) - offset, offset]
    if isinstance(spec, Dim):
        upper = spec.max if isinstance(spec.max, int) else None  # unbounded is an infinity of sympy's
        return ["dim", spec.__name__, spec.min, upper]
    raise TypeError(f"dynamic_shapes hold a {type(spec).__name__}, which cannot be saved")


def _decode(saved: Any, dims: dict[str, Any]) -> Any:
    if not isinstance(saved, list):
        return saved
    tag, *content = saved
    if tag == "dict":
        return {key: _decode(item, dims) for key, item in content[0]}
    if tag in ("list", "tuple"):
        items = [_decode(item, dims) for item in content[0]]
        return tuple(items) if tag == "tuple" else items
    if tag == "hint":
        name, lower, upper = content
        hint = getattr(Dim, name)
        return hint if lower is None and upper is None else hint(min=lower, max=upper)
    if tag == "derived":
        root, factor, offset = content
        scaled = factor * _decode(root, dims)
        return scaled + offset if offset else scaled
    if tag == "dim":
        name, lower, upper = content
        return dims.setdefault(name, Dim(name, min=lower, max=upper))
    raise ValueError(f"unknown tag {tag!r} in saved dynamic shapes")
