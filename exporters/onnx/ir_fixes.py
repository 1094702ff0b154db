"""Stage ``ir_fixes``: changes to the finished ONNX graph."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from exporters.registry import register_ir_fix


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
