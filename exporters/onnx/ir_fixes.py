"""Stage ``ir_fixes``: changes to the finished ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import onnx_ir as ir

from exporters.registry import Hits, Workaround, register_ir_fix, times_of, workarounds


class IrFixes(Sequence[Callable[[ir.Model], int]]):
    """The registered functions ``fix(onnx_ir.Model) -> int`` in the order in which they run: a live view, which the
    exporter reads. One is added with `exporters.utils.register_ir_fix`."""

    def active(self, disabled: Iterable[str] = ()) -> tuple[Workaround, ...]:
        """Their workarounds, without those whose ids are in ``disabled``."""
        return workarounds("onnx", "ir_fixes", kind="ir_fix", disabled=disabled)

    def apply(self, model: ir.Model, hits: Hits, disabled: Iterable[str] = ()) -> None:
        """Run them on ``model``, in place; what they say they changed counts as hits."""
        for fix in self.active(disabled):
            hits.add(fix, times_of(fix, fix.function(model)))

    @overload
    def __getitem__(self, index: int) -> Callable[[ir.Model], int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Callable[[ir.Model], int]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return tuple(fix.function for fix in self.active())[index]

    def __len__(self) -> int:
        return len(self.active())


_IR_FIXES = IrFixes()


@register_ir_fix(model_change="return each tensor once, and no input as an output")
def _fix_ir_shared_outputs(model: Any) -> int:
    """ONNX Runtime refuses a graph output that is also an input or another output; each gets a value of its own."""
    graph = model.graph
    seen = set(graph.inputs) | set(graph.initializers.values())
    changed = 0
    for index, value in enumerate(list(graph.outputs)):
        if value in seen:
            node = ir.node("Identity", inputs=[value])
            copy = node.outputs[0]
            copy.name = f"{value.name}_output_{index}"
            copy.type, copy.shape = value.type, value.shape
            graph.append(node)
            graph.outputs[index] = copy
            changed += 1
        seen.add(value)
    return changed


@register_ir_fix(model_change="pass position_ids of (batch, length)")
def _fix_ir_rotation_of_a_batch(model: Any) -> int:
    """Positions that all rows share have a batch of 1; from opset 23 on a rotation asks for as many as it has rows.

    The optimizer makes the operator out of a product that was broadcast. ONNX Runtime broadcasts nothing there.
    """
    changed = 0
    for node in list(model.graph.all_nodes()):
        if node.domain or node.op_type != "RotaryEmbedding" or len([value for value in node.inputs if value]) != 3:
            continue
        caches = [(index, node.inputs[index]) for index in (1, 2)]
        if all(_rows(cache) == _rows(node.inputs[0]) is not None for _, cache in caches):
            continue
        rows = ir.node("Shape", inputs=[node.inputs[0]], attributes={"start": 0, "end": 1})
        ones = ir.node("Constant", inputs=[], attributes={"value_ints": [1, 1]})
        shape = ir.node("Concat", inputs=[rows.outputs[0], ones.outputs[0]], attributes={"axis": 0})
        expanded = [ir.node("Expand", inputs=[cache, shape.outputs[0]]) for _, cache in caches]
        node.graph.insert_before(node, [rows, ones, shape, *expanded])
        for (index, _), expand in zip(caches, expanded, strict=True):
            node.replace_input_with(index, expand.outputs[0])
        changed += 1
    return changed


def _rows(value: Any) -> Any:
    """The first axis of a value as far as it is known: a number, a symbol, or ``None``."""
    producer = value.producer()
    if value.shape is None and producer is not None and producer.op_type in ("Cos", "Sin"):  # what a fusion has made
        value = producer.inputs[0]
    return None if value.shape is None else value.shape[0]
