"""What moved between two passing outcomes of one case: its interface, or its numbers and graph. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hfexport_bot.schema import Axis, Component, Outcome

#: An error that grew by this factor has drifted, unless it stays below ``MAX_ABS_FLOOR`` times the factor:
#: below that, two runs of one float32 graph differ as much.
MAX_ABS_FACTOR = 10.0
MAX_ABS_FLOOR = 1e-6
#: Node counts, delegate counts and bytes may move by this share.
COUNT_SHARE = 0.10


def interface_changes(base: Outcome, head: Outcome) -> tuple[str, ...]:
    """One line for each thing that a caller of the artifact would notice: components, input names, output
    names, dtypes and ranks, dynamic axes, opset."""
    before, after = _by_name(base), _by_name(head)
    lines = [f"component {name} is gone" for name in before if name not in after]
    lines += [f"component {name} is new" for name in after if name not in before]
    for name, old in before.items():
        if name in after:
            lines += [_in_component(name, line) for line in _component_interface(old, after[name])]
    return tuple(lines)


def drifts(base: Outcome, head: Outcome) -> tuple[str, ...]:
    """One line for each measure that moved past its threshold: the error against eager, nodes, delegates,
    size."""
    lines = []
    after = _by_name(head)
    for name, old in _by_name(base).items():
        if name in after:
            lines += [_in_component(name, line) for line in _component_drift(old, after[name])]
    return tuple(lines)


def _by_name(outcome: Outcome) -> dict[str, Component]:
    return {component.name: component for component in outcome.components}


def _in_component(name: str, line: str) -> str:
    return line if name == "model" else f"{name}: {line}"


def _component_interface(old: Component, new: Component) -> Iterable[str]:
    yield from _names("input", old.inputs, new.inputs)
    yield from _names("output", [o.name for o in old.outputs], [o.name for o in new.outputs])
    outputs = {output.name: output for output in new.outputs}
    for before in old.outputs:
        after = outputs.get(before.name)
        if after is None:
            continue
        if before.dtype != after.dtype:
            yield f"output {before.name}: {before.dtype} → {after.dtype}"
        if len(before.shape) != len(after.shape):
            yield f"output {before.name}: rank {len(before.shape)} → {len(after.shape)}"
    yield from _axes(old.axes, new.axes)
    if old.opset is not None and new.opset is not None and old.opset != new.opset:
        yield f"opset {old.opset} → {new.opset}"


def _names(what: str, old: Sequence[str], new: Sequence[str]) -> Iterable[str]:
    gone = [name for name in old if name not in new]
    added = [name for name in new if name not in old]
    if gone:
        yield f"{what} gone: {', '.join(gone)}"
    if added:
        yield f"{what} new: {', '.join(added)}"
    if not gone and not added and list(old) != list(new):
        yield f"{what}s in another order: {', '.join(new)}"


def _axes(old: Sequence[Axis], new: Sequence[Axis]) -> Iterable[str]:
    before, after = _axes_of(old), _axes_of(new)
    for name, axes in before.items():
        other = after.get(name)
        if other is None:
            continue  # told as an input that is gone
        if len(axes) != len(other):
            yield f"input {name}: rank {len(axes)} → {len(other)}"
        for axis in sorted(axes.keys() & other.keys()):
            if axes[axis] != other[axis]:
                yield f"input {name}, axis {axis}: {_kind(axes[axis])} → {_kind(other[axis])}"


def _axes_of(axes: Sequence[Axis]) -> Mapping[str, dict[int, bool]]:
    found: dict[str, dict[int, bool]] = {}
    for axis in axes:
        found.setdefault(axis.input, {})[axis.axis] = axis.dynamic
    return found


def _kind(dynamic: bool) -> str:
    return "dynamic" if dynamic else "static"


def _component_drift(old: Component, new: Component) -> Iterable[str]:
    if old.max_abs is not None and new.max_abs is not None:
        within = new.max_abs <= MAX_ABS_FACTOR * max(old.max_abs, MAX_ABS_FLOOR)
        if not within:  # also for a NaN
            yield f"max abs error {old.max_abs:.2g} → {new.max_abs:.2g}"
    yield from _count("nodes", old.nodes, new.nodes)
    yield from _count("delegates", old.delegates, new.delegates)
    yield from _count("bytes", old.size_bytes, new.size_bytes)


def _count(what: str, old: int | None, new: int | None) -> Iterable[str]:
    if old is None or new is None:
        return
    if abs(new - old) > COUNT_SHARE * old:
        yield f"{old} → {new} {what}"
