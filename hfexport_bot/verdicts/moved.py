"""What moved between two passing outcomes of one case: its interface, or its numbers and graph. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from hfexport_bot.schema import Axis, Component, Outcome, TensorType
from hfexport_bot.settings import DriftSettings

DEFAULT_DRIFT = DriftSettings()

#: The least size that torch gives a dynamic axis by itself: lower ones tell nothing of the model.
_SMALLEST = 2
#: Most names that one line lists.
NAMES_SHOWN = 8


def interface_changes(base: Outcome, head: Outcome) -> tuple[str, ...]:
    """One line for each thing that a caller of the artifact, or the runtime that holds it, would notice: components,
    inputs and outputs with their names, dtypes and ranks, dynamic axes, what is written into, opset, operators,
    delegates."""
    before, after = _by_name(base), _by_name(head)
    lines = [f"component {name} is gone" for name in before if name not in after]
    lines += [f"component {name} is new" for name in after if name not in before]
    for name, old in before.items():
        if name in after:
            lines += [_in_component(name, line) for line in _component_interface(old, after[name])]
    return tuple(lines)


def drifts(base: Outcome, head: Outcome, limits: DriftSettings = DEFAULT_DRIFT) -> tuple[str, ...]:
    """One line for each measure that moved past its limit: the error against eager, nodes, delegates, size."""
    lines = []
    after = _by_name(head)
    for name, old in _by_name(base).items():
        if name in after:
            lines += [_in_component(name, line) for line in _component_drift(old, after[name], limits)]
    return tuple(lines)


def _by_name(outcome: Outcome) -> dict[str, Component]:
    return {component.name: component for component in outcome.components}


def _in_component(name: str, line: str) -> str:
    return line if name == "model" else f"{name}: {line}"


def _component_interface(old: Component, new: Component) -> Iterable[str]:
    yield from _names("input", old.inputs, new.inputs)
    dtypes = [dict(zip(each.inputs, each.input_dtypes, strict=False)) for each in (old, new)]
    yield from (f"input {name}: {before} → {after}" for name, before, after in _both(*dtypes))
    yield from _names("output", *(list(_outputs(each)) for each in (old, new)))
    for name, before, after in _both(_outputs(old), _outputs(new)):
        if before.dtype != after.dtype:
            yield f"output {name}: {before.dtype} → {after.dtype}"
        if before.rank != after.rank:
            yield f"output {name}: rank {before.rank} → {after.rank}"
    yield from _axes(old.axes, new.axes)
    yield from _sets("inputs without use", old.unread, new.unread)
    yield from _sets("writes into", old.mutated, new.mutated)
    if old.opset is not None and new.opset is not None and old.opset != new.opset:
        yield f"opset {old.opset} → {new.opset}"
    if old.operators and new.operators:
        yield from _sets("operators", old.operators, new.operators)
        if old.operators_left_out != new.operators_left_out:
            yield f"operators beyond those listed: {old.operators_left_out} → {new.operators_left_out}"
    if old.computed and new.computed:
        yield from _sets("computes in", old.computed, new.computed)
    yield from _sets("delegated to", old.delegated_to, new.delegated_to)


_V = TypeVar("_V")


def _both(old: Mapping[str, _V], new: Mapping[str, _V]) -> Iterable[tuple[str, _V, _V]]:
    """What both have under a name and is not the same."""
    return ((name, before, new[name]) for name, before in old.items() if name in new and before != new[name])


def _outputs(component: Component) -> dict[str, TensorType]:
    """What a graph returns, by name: as the program says, or where it does not say, as the tensors were that were
    compared."""
    compared = {
        each.name: TensorType(name=each.name, dtype=each.dtype, rank=len(each.shape)) for each in component.outputs
    }
    if not component.returns:
        return compared
    return {
        each.name: compared[each.name] if each.rank is None and each.name in compared else each
        for each in component.returns
    }


def _sets(what: str, old: Sequence[str], new: Sequence[str]) -> Iterable[str]:
    """Names that came and went, in no order."""
    gone, added = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    if gone or added:
        parts = [f"{word} {_listed(names)}" for word, names in (("no more", gone), ("now", added)) if names]
        yield f"{what}: {'; '.join(parts)}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"


def _names(what: str, old: Sequence[str], new: Sequence[str]) -> Iterable[str]:
    gone = [name for name in old if name not in new]
    added = [name for name in new if name not in old]
    if gone:
        yield f"{what} gone: {_listed(gone)}"
    if added:
        yield f"{what} new: {_listed(added)}"
    if not gone and not added and list(old) != list(new):
        yield f"{what}s in another order: {_listed(new)}"


def _axes(old: Sequence[Axis], new: Sequence[Axis]) -> Iterable[str]:
    before, after = _axes_of(old), _axes_of(new)
    for name, axes in before.items():
        other = after.get(name)
        if other is None:
            continue  # told as an input that is gone
        if len(axes) != len(other):
            yield f"input {name}: rank {len(axes)} → {len(other)}"
        for number in sorted(axes.keys() & other.keys()):
            old_axis, new_axis = axes[number], other[number]
            if old_axis.dynamic != new_axis.dynamic:
                yield f"input {name}, axis {number}: {_kind(old_axis)} → {_kind(new_axis)}"
            elif new_axis.dynamic and _takes_less(old_axis, new_axis):
                yield f"input {name}, axis {number}: {_bounds(old_axis)} → {_bounds(new_axis)}"


def _axes_of(axes: Sequence[Axis]) -> Mapping[str, dict[int, Axis]]:
    found: dict[str, dict[int, Axis]] = {}
    for axis in axes:
        found.setdefault(axis.input, {})[axis.axis] = axis
    return found


def _kind(axis: Axis) -> str:
    return "dynamic" if axis.dynamic else "static"


def _takes_less(old: Axis, new: Axis) -> bool:
    """Whether an axis refuses sizes that it took. More than before is no fault of a caller's."""
    upper = new.upper is not None and (old.upper is None or new.upper < old.upper)
    return upper or new.lower > max(old.lower, _SMALLEST)


def _bounds(axis: Axis) -> str:
    """The sizes that an axis takes: ``any size``, ``at most 8``, ``9 or more, at most 64``."""
    lower = f"{axis.lower} or more" if axis.lower > _SMALLEST else ""
    upper = "" if axis.upper is None else f"at most {axis.upper}"
    return ", ".join(part for part in (lower, upper) if part) or "any size"


def _component_drift(old: Component, new: Component, limits: DriftSettings) -> Iterable[str]:
    if old.max_abs is not None and new.max_abs is not None:
        within = new.max_abs <= limits.error_factor * max(old.max_abs, limits.error_floor)
        if not within:  # also for a NaN
            yield f"max abs error {old.max_abs:.2g} → {new.max_abs:.2g}"
    yield from _count("nodes", old.nodes, new.nodes, limits.nodes)
    yield from _count("delegates", old.delegates, new.delegates, limits.delegates)
    yield from _count("bytes", old.size_bytes, new.size_bytes, limits.bytes)


def _count(what: str, old: int | None, new: int | None, share: float) -> Iterable[str]:
    if old is None or new is None:
        return
    if abs(new - old) > share * old:
        yield f"{old} → {new} {what}"
