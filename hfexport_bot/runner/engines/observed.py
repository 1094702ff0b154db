"""What can be seen of a foreign export from outside: which stage runs, and what was traced.

Stages are told by the calls into torch and ExecuTorch that every exporter has to make; what happens before the trace
counts as part of it.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from exporters.dynamo.shapes import AxisBound, axis_bounds
from exporters.registry import replaced, resolve
from exporters.stages import OnTrace
from hfexport_bot.runner.engines.hits import count_translations, counted
from hfexport_bot.runner.engines.package import ExportersPackage
from hfexport_bot.schema import Backend

#: The stage in force once ``torch.export`` is through.
_AFTER_TRACE = {Backend.DYNAMO: "state_cleanup", Backend.ONNX: "node_fixes", Backend.EXECUTORCH: "program_fixes"}

#: Calls by path, with the stage that begins as each is entered, and as it is left. A path that leads nowhere, as the
#: private ones may, leaves its time to the stage before it.
_CALLS: dict[Backend, tuple[tuple[str, str, str | None], ...]] = {
    Backend.DYNAMO: (),
    Backend.ONNX: (
        ("torch.onnx.export", "decompose", "ir_fixes"),
        ("torch.onnx._internal.exporter._core._prepare_exported_program_for_export", "decompose", "node_fixes"),
        ("torch.onnx._internal.exporter._core._exported_program_to_onnx_program", "translate", None),
        ("torch.onnx._internal.exporter._onnx_program.ONNXProgram.optimize", "optimize", None),
    ),
    Backend.EXECUTORCH: (
        ("executorch.exir.to_edge_transform_and_lower", "lower", "emit"),
        ("executorch.exir.program._program.EdgeProgramManager.to_executorch", "emit", None),
    ),
}

#: Functions that split a model into the parts that are exported one by one.
_SPLITTERS = ("decompose_for_generation", "decompose_prefill_decode")


@dataclass(frozen=True)
class Traced:
    """What ``torch.export`` made of a forward.

    Attributes:
        in_spec, out_spec: how its arguments and its result are flattened, by the exporters' own registrations.
        constants: its arguments that are no tensors, by their index among all leaves.
        tensor_outputs: the indices of the tensors among the leaves of the result.
        axes: of each tensor, whose ``input`` is its index among the tensors.
        dtypes: of each tensor among its arguments. tensors: those it was traced with.
    """

    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    constants: dict[int, Any]
    tensor_outputs: tuple[int, ...]
    axes: tuple[AxisBound, ...]
    dtypes: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, program: ExportedProgram, tensors: Sequence[torch.Tensor]) -> Traced:
        signature = program.graph_signature
        inputs = [spec.arg for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
        outputs = [spec.arg for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
        constants = {index: arg.value for index, arg in enumerate(inputs) if isinstance(arg, ConstantArgument)}
        held = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
        values = [value for arg in inputs if isinstance(value := held.get(arg.name), torch.Tensor)]
        return cls(
            in_spec=program.call_spec.in_spec,
            out_spec=program.call_spec.out_spec,
            constants=constants,
            tensor_outputs=tuple(index for index, arg in enumerate(outputs) if isinstance(arg, TensorArgument)),
            axes=axis_bounds(program, [str(index) for index in range(len(values))]),
            dtypes=tuple(str(value.dtype).removeprefix("torch.") for value in values),
            tensors=tuple(tensors),
        )


class Observer:
    """Watches the exports of one case.

    Attributes:
        stage: the one that runs. component: what it is exported for, where a model was split. traced: an entry for each
            export so far. hits: how often each patch or fix acted, by id. parts: what the model was split into, in the
            order of their exports.
    """

    def __init__(
        self,
        package: ExportersPackage,
        backend: Backend,
        on_stage: Callable[[str, str], None],
        on_trace: OnTrace | None = None,
    ) -> None:
        self.stage = self.component = ""
        self.traced: list[Traced] = []
        self.hits: Counter[str] = Counter()
        self.parts: tuple[str, ...] = ()
        self._package = package
        self._backend = backend
        self._on_stage = on_stage
        self._on_trace = on_trace
        self._calls = 0

    @contextmanager
    def watching(self, disabled: Collection[str] = ()) -> Iterator[None]:
        """Watch while inside. Patches and fixes whose ids are in ``disabled`` do not act."""
        self._begin("trace")
        with ExitStack() as stack:
            self._watch(stack, "torch.export.export", self._trace)
            for path, entered, left in _CALLS[self._backend]:
                self._watch(stack, path, functools.partial(self._call, entered, left))
            for name in _SPLITTERS:
                if (original := self._package.function(name)) is not None:
                    for module, bound in list(self._package.bindings(original)):
                        stack.enter_context(replaced(module, bound, functools.partial(self._split, original)))
            stack.enter_context(counted(self._package, self.hits, disabled))
            yield

    def _begin(self, stage: str) -> None:
        self.stage = stage
        self._on_stage(stage, self.component)

    def _watch(self, stack: ExitStack, path: str, around: Callable[..., Any]) -> None:
        """Put ``around(original, …)`` in the place of a function, also where the package holds it by a name."""
        place = resolve(path)
        if place is None:
            return
        original = getattr(*place)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        for owner, name in (place, *self._package.bindings(original)):
            stack.enter_context(replaced(owner, name, watched))

    def _trace(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._calls:  # a backend traces the patterns that it looks for
            return original(*args, **kwargs)
        done = len(self.traced)
        self.component = self.parts[done] if done < len(self.parts) else ""
        self._begin("trace")
        called = inspect.signature(original).bind(*args, **kwargs).arguments
        leaves = pytree.tree_leaves((called.get("args") or (), called.get("kwargs") or {}))
        program = original(*args, **kwargs)
        self.traced.append(Traced.of(program, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]))
        if self._on_trace is not None:
            self._on_trace(program)
        self._begin(_AFTER_TRACE[self._backend])
        return program

    def _call(self, entered: str, left: str | None, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._begin(entered)
        given = args[0] if args else None
        if isinstance(given, ExportedProgram) and entered == "translate":
            count_translations(self._package, given, self.hits)
        elif isinstance(given, ExportedProgram) and entered == "lower" and self.traced:
            self.traced[-1] = Traced.of(given, self.traced[-1].tensors)  # whose ranges were bounded since
        self._calls += 1
        try:
            found = original(*args, **kwargs)
        finally:
            self._calls -= 1
        if left is not None:
            self._begin(left)
        return found

    def _split(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        parts = original(*args, **kwargs)
        self.parts = tuple(parts)
        return parts
