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
