"""Stage ``shapes``: which axes of which inputs may vary, and between which bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from exporters.configs import DynamoConfig
from exporters.dynamo.caches import axis_limits
from exporters.origins import where_sizes_were_fixed


@dataclass(frozen=True)
class AxisBound:
    """One axis of one graph input: sizes from ``lower`` to ``upper`` (``None``: unbounded), equal where static.
    ``symbol`` is torch's name of the size; axes that share one must have the same size. ``fixed_at`` is the line that
    made it static, as a traceback has it, where torch knows it."""

    input: str
    axis: int
    lower: int
    upper: int | None
    symbol: str = ""
    fixed_at: str = ""

    @property
    def dynamic(self) -> bool:
        return self.lower != self.upper


def dynamic_shapes(inputs: Mapping[str, Any], config: DynamoConfig) -> dict[str, Any] | None:
    """``dynamic_shapes`` for ``torch.export.export``: every axis of every tensor is ``Dim.AUTO``, within bounds.

    torch makes an axis static where the model needs it so. ``None`` where the config asks for static shapes.
    """
    if not config.dynamic:
        return None
    if config.dynamic_shapes is not None:
        return _with_upper_bounds(config.dynamic_shapes, inputs, config.max_size)
    bounds = config.max_sizes or {}
    if unknown := sorted(bounds.keys() - inputs.keys()):
        raise ValueError(f"max_sizes names no input: {', '.join(unknown)}; inputs are {', '.join(inputs)}")
    return {name: _spec(value, config.max_size, bounds.get(name, {}), {}) for name, value in inputs.items()}


def _with_upper_bounds(given: Mapping[str, Any], inputs: Mapping[str, Any], max_size: int | None) -> dict[str, Any]:
    """A given specification, its open ends closed where the config bounds axes."""
    if max_size is None:
        return dict(given)
    tensors = (leaf for leaf in pytree.tree_leaves(dict(inputs)) if isinstance(leaf, torch.Tensor))
    upper = max(max_size, 2 * max((size for tensor in tensors for size in tensor.shape), default=0))

    def closed(dim: Any) -> Any:
        if dim is Dim.AUTO or dim is Dim.DYNAMIC:
            return dim(max=upper)
        if type(dim) is Dim and not isinstance(dim.max, int):  # torch's infinity is no int
            return Dim(dim.__name__, min=dim.min, max=upper)
        if hasattr(dim, "root"):  # such as 2 * Dim("length")
            return type(dim)(dim.__name__, closed(dim.root), dim.fn)
        return dim

    found: dict[str, Any] = pytree.tree_map(closed, dict(given))
    return found


def _spec(value: Any, max_size: int | None, bounds: Mapping[int, int], limits: Mapping[int, Mapping[int, Any]]) -> Any:
    """``bounds`` are asked for, by axis; ``limits`` come with a cache, by the id of a tensor and axis."""
    if isinstance(value, torch.Tensor):
        own = limits.get(id(value), {})
        if beyond := [axis for axis in bounds if not -value.dim() <= axis < value.dim()]:
            raise ValueError(f"max_sizes bounds axis {beyond[0]} of an input that has {value.dim()} axes")
        bounds = {axis % value.dim(): size for axis, size in bounds.items()}
        if small := [axis for axis, size in bounds.items() if size < value.shape[axis]]:
            axis = small[0]
            raise ValueError(
                f"max_sizes bounds axis {axis} by {bounds[axis]}; the sample has {value.shape[axis]} there"
            )
        return {axis: _dim(size, max_size, bounds.get(axis), own.get(axis)) for axis, size in enumerate(value.shape)}
    if type(value) is dict:  # a ModelOutput is a dict too, and a node of its own
        return {key: _spec(item, max_size, {}, limits) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_spec(item, max_size, {}, limits) for item in value)
    if type(value) in pytree.SUPPORTED_NODES:  # torch.export wants a custom node's children as a list
        children, _ = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)
        return [_spec(child, max_size, {}, axis_limits(value) or limits) for child in children]
    return None


def _dim(size: int, max_size: int | None, bound: int | None, limit: Any) -> Any:
    if limit is Dim.STATIC:
        return limit
    upper = max(max_size, 2 * size) if bound is None and max_size is not None else bound
    if limit is not None:
        upper = limit if upper is None else min(upper, limit)
    if upper is None:
        return Dim.AUTO
    return Dim.AUTO(max=upper) if upper > 1 else Dim.STATIC


def axis_bounds(program: ExportedProgram, names: list[str]) -> tuple[AxisBound, ...]:
    """The bounds a traced program really has, for its user inputs, which ``names`` names in order."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs = ((target, values[target]) for target in program.graph_signature.user_inputs if target in values)
    tensors = ((target, value) for target, value in inputs if isinstance(value, torch.Tensor))
    fixed = where_sizes_were_fixed(program)
    found = []
    for name, (target, value) in zip(names, tensors, strict=True):
        for axis, size in enumerate(value.shape):
            found.append(_bound(program, name, axis, size, fixed.get((target, axis), "")))
    return tuple(found)


def admit_single_units(program: ExportedProgram) -> None:
    """Let axes that are multiples of another have what they are for a size of one.

    torch traces sizes of two and up, and lets every traced size be one when it runs; a multiple, such as rows of codes
    by batch, it holds to twice its unit.
    """
    ranges = program.range_constraints
    singles = {
        symbol: ValueRanges(1 if interval.lower == 2 else interval.lower, interval.upper)
        for symbol, interval in ranges.items()
        if symbol.is_Symbol
    }
    for expression, interval in list(ranges.items()):
        if not expression.is_Symbol and expression.free_symbols <= singles.keys():
            lower = bound_sympy(expression, singles).lower
            ranges[expression] = ValueRanges(min(lower, interval.lower), interval.upper)


def _bound(program: ExportedProgram, name: str, axis: int, size: Any, fixed_at: str) -> AxisBound:
    if isinstance(size, int) or size.node.expr.is_Integer:
        return AxisBound(name, axis, int(size), int(size), fixed_at=fixed_at)
    expression = size.node.expr
    interval = bound_sympy(expression, program.range_constraints)
    upper = int(interval.upper) if interval.upper.is_Integer else None
    return AxisBound(name, axis, int(interval.lower), upper, str(expression))
