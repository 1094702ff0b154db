"""torch.export: a model becomes a ``torch.export.ExportedProgram``. The base of the other exporters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from exporters.artifacts import Artifact
from exporters.base import HfExporter, PreparedInputs
from exporters.configs import DynamoConfig
from exporters.dynamo import audio as _audio  # noqa: F401  registers the audio models' patches
from exporters.dynamo import detection as _detection  # noqa: F401  registers patches of modules
from exporters.dynamo import packed as _packed  # noqa: F401  registers what packed images need
from exporters.dynamo import patches as _patches  # noqa: F401  registers the model patches
from exporters.dynamo import scans as _scans  # noqa: F401  registers the recurrences
from exporters.dynamo import vision as _vision  # noqa: F401  registers the patches for images
from exporters.dynamo.pytree import register_cache_pytrees
from exporters.dynamo.shapes import AxisBound, admit_single_units, axis_bounds, dynamic_shapes
from exporters.dynamo.signature import flat_signature
from exporters.dynamo.state import drop_unused_weights, preserved_state
from exporters.leaves import named_leaves, spec_names
from exporters.refusals import refuse_ignored
from exporters.registry import Hits, apply_model_patches, apply_patches
from exporters.stages import StageRunner


@dataclass(frozen=True)
class Trace:
    """A traced program, the paths of its inputs and outputs in graph order, and the bounds of its axes."""

    program: ExportedProgram
    input_paths: tuple[str, ...]
    output_paths: tuple[str, ...]
    axes: tuple[AxisBound, ...]
    input_dtypes: tuple[str, ...]


class DynamoExporter(HfExporter):
    """Exports a model with ``torch.export``.

    Example::

        program = DynamoExporter().export(model, inputs, config=DynamoConfig(dynamic=True))
        outputs = program.module()(**inputs)
    """

    backend: ClassVar[str] = "dynamo"
    config_class: ClassVar[type[DynamoConfig]] = DynamoConfig
    #: Whether the format holds nothing but tensors.
    tensors_only: ClassVar[bool] = False

    def _export(
        self,
        model: torch.nn.Module,
        inputs: PreparedInputs,
        config: DynamoConfig,
        runner: StageRunner,
        hits: Hits,
    ) -> Artifact:
        trace = self._trace(model, inputs, config, runner, hits)
        return self._artifact(trace.program, trace, inputs, config, runner, hits)

    def _trace(
        self,
        model: torch.nn.Module,
        inputs: PreparedInputs,
        config: DynamoConfig,
        runner: StageRunner,
        hits: Hits,
    ) -> Trace:
        parameters = list(inspect.signature(model.forward).parameters)
        with _entered_by_stage(runner) as enter:
            enter("signature", preserved_state(model))
            enter("signature", flat_signature(model, inputs.tensors, inputs.constants, tensors_only=self.tensors_only))
            enter("model_patches", apply_patches("dynamo", "model_patches", hits, config.disabled))
            enter("model_patches", apply_model_patches("dynamo", model, hits, config.disabled))
            with runner.stage("pytree"):
                register_cache_pytrees(model)
            with runner.stage("shapes"):
                shapes = dynamic_shapes(inputs.tensors, config)
            with runner.stage("trace"):
                program = torch.export.export(
                    model, (), kwargs=dict(inputs.tensors), dynamic_shapes=shapes, strict=config.strict
                )
                admit_single_units(program)
                drop_unused_weights(program)
                leaves = named_leaves(inputs.tensors)
                input_paths = list(leaves)
                output_paths = _tensor_outputs(program)
                axes = axis_bounds(program, input_paths)
        refuse_ignored(type(model).__name__, parameters, dict(zip(input_paths, _used_inputs(program), strict=True)))
        if runner.on_trace is not None:
            runner.on_trace(program)
        dtypes = tuple(str(leaf.dtype).removeprefix("torch.") for leaf in leaves.values())
        return Trace(program, tuple(input_paths), tuple(output_paths), axes, dtypes)

    def _artifact(
        self,
        program: Any,
        trace: Trace,
        inputs: PreparedInputs,
        config: DynamoConfig,
        runner: StageRunner,
        hits: Hits,
    ) -> Artifact:
        return Artifact(
            backend=self.backend,
            program=program,
            input_paths=trace.input_paths,
            output_paths=trace.output_paths,
            axes=trace.axes,
            input_dtypes=trace.input_dtypes,
            config=config,
            constants=inputs.constants,
            made=inputs.made,
            prepare=inputs.prepare,
            skeleton=inputs.skeleton,
            stage_seconds=dict(runner.seconds),
            workarounds=dict(hits.counts),
        )


def _used_inputs(program: ExportedProgram) -> list[bool]:
    """Of each tensor among the inputs, in order, whether the graph does something with it."""
    names = {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    }
    return [bool(node.users) for node in program.graph.find_nodes(op="placeholder") if node.name in names]


def _tensor_outputs(program: ExportedProgram) -> list[str]:
    """The paths of the outputs that are tensors. A ``None`` or a number among them is a constant of the call."""
    names = spec_names(program.call_spec.out_spec)
    specs = [spec for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    return [name for name, spec in zip(names, specs, strict=True) if isinstance(spec.arg, TensorArgument)]


@contextmanager
def _entered_by_stage(runner: StageRunner) -> Iterator[Any]:
    """Contexts entered under their stage's name, and all left, in stage ``state_cleanup``, however the trace ended."""
    stack = ExitStack()

    def enter(stage: str, context: Any) -> None:
        with runner.stage(stage):
            stack.enter_context(context)

    try:
        yield enter
    except BaseException:
        stack.close()  # the failure keeps its own stage
        raise
    with runner.stage("state_cleanup"):
        stack.close()
