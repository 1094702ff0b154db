"""Stage ``executorch_patches``: how the emitter writes torch's ``scan``, a loop over the leading axis of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exporters.registry import register_patch


@register_patch(
    "executorch",
    "executorch.exir.emit._emitter._Emitter._emit_scan",
    upstream="https://github.com/pytorch/executorch/pull/16028",
)
def _patch_scan_emission(original: Callable[..., Any]) -> Callable[..., Any]:
    """ExecuTorch's loop for ``scan`` never resizes its states and outputs, so it runs at the upper bounds only.

    States are copied by an operator that takes over the source's sizes, and the outputs get theirs from the first
    step's output.
    """

    def emit_scan(self: Any, args: Any, outputs: Any) -> Any:
        start = len(self.chain.instructions)
        emitted = original(self, args, outputs)
        collected = {output.id for output in outputs[len(args[1]) :]}
        emitter = _Instructions(self)
        # The loop's jump goes back to an instruction before those that are put in, so its destination stays.
        written: list[Any] = []
        for instruction in self.chain.instructions[start:]:
            call = instruction.instr_args
            if emitter.calls(call, "aten::copy_"):
                target, source, non_blocking, _ = call.args
                call.op_index = emitter.operator("aten::copy", "out")
                call.args = [source, source, non_blocking, target, target]
            elif emitter.calls(call, "executorch_prim::et_copy_index", "tensor") and call.args[0] in collected:
                target, source, step = call.args[:3]
                here = self.instruction_start_offset + start + len(written)
                written += emitter.resize_at_first_step(target, source, step, here)
            written.append(instruction)
        self.chain.instructions[start:] = written
        return emitted

    return emit_scan


class _Instructions:
    """Makes single instructions through ExecuTorch's emitter."""

    def __init__(self, emitter: Any) -> None:
        from executorch.exir.schema import Bool, EValue, Int

        self._emitter = emitter
        self._zero = emitter._emit_evalue(EValue(Int(0))).id
        self._flag = emitter._emit_evalue(EValue(Bool(False))).id

    def operator(self, name: str, overload: str = "") -> int:
        """The operator's place in the program's table."""
        place: int = self._emitter._get_operator(name=name, overload=overload)[0]
        return place

    def calls(self, call: Any, name: str, overload: str = "") -> bool:
        """Whether ``call`` calls that operator."""
        return getattr(call, "op_index", None) == self.operator(name, overload)

    def resize_at_first_step(self, outputs: int, output: int, step: int, here: int) -> list[Any]:
        """Three instructions, the first of them at ``here``: where ``step`` is 0, ``outputs`` becomes ``output`` with
        a leading axis of 1. All but ``here`` are ids of values."""
        from executorch.exir.schema import Instruction, JumpFalseCall, KernelCall

        at_first = self.operator("executorch_prim::eq", "Scalar")
        unsqueeze = self.operator("aten::unsqueeze_copy", "out")
        return [
            Instruction(KernelCall(op_index=at_first, args=[step, self._zero, self._flag])),
            Instruction(JumpFalseCall(cond_value_index=self._flag, destination_instruction=here + 3)),
            Instruction(KernelCall(op_index=unsqueeze, args=[output, self._zero, outputs, outputs])),
        ]
