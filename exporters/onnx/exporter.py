"""ONNX: a traced model becomes an ``OnnxProgram``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import torch
from onnx_ir.passes.common import NameFixPass
from torch.export import ExportedProgram

from exporters.artifacts import Artifact
from exporters.base import PreparedInputs
from exporters.configs import DynamoConfig, OnnxConfig
from exporters.dynamo.exporter import DynamoExporter, Trace
from exporters.onnx import node_fixes as _node_fixes  # noqa: F401  registers the node fixes
from exporters.onnx import torch_patches as _torch_patches  # noqa: F401  registers them
from exporters.onnx.ir_fixes import _IR_FIXES
from exporters.onnx.program import OnnxProgram
from exporters.onnx.torchlib import shared_registry
from exporters.onnx.translations import _ONNX_TRANSLATION_TABLE
from exporters.origins import telling_where
from exporters.registry import (
    Hits,
    apply_fx_node_fixes,
    apply_patches,
    replaced,
    resolve,
)
from exporters.skips import skips_optimize
from exporters.stages import StageRunner

#: torch.onnx's step between decomposition and translation. Private, so it is looked up, not imported: without it the
#: node fixes run before the decomposition only.
_DECOMPOSE = "torch.onnx._internal.exporter._core._prepare_exported_program_for_export"


class OnnxExporter(DynamoExporter):
    """Exports a model to ONNX.

    Example::

        program = OnnxExporter().export(model, inputs, config=OnnxConfig(dynamic=True))
        outputs = program(**inputs)
        program.save("model.onnx")
    """

    backend: ClassVar[str] = "onnx"
    config_class: ClassVar[type[DynamoConfig]] = OnnxConfig
    tensors_only: ClassVar[bool] = True

    def _export(
        self, model: torch.nn.Module, inputs: PreparedInputs, config: Any, runner: StageRunner, hits: Hits
    ) -> Artifact:
        disabled = config.disabled
        with ExitStack() as stack:
            for stage in ("torch_patches", "onnx_patches"):
                with runner.stage(stage):
                    stack.enter_context(apply_patches("onnx", stage, hits, disabled))
            trace = self._trace(model, inputs, config, runner, hits)
            with runner.stage("node_fixes"):
                apply_fx_node_fixes("onnx", trace.program.graph_module, hits, disabled)
            program = _translate(trace, config, runner, hits)
        if config.optimize and not skips_optimize(type(model), hits, disabled):
            with runner.stage("optimize"):
                program.optimize()
        with runner.stage("ir_fixes"):
            _IR_FIXES.apply(program.model, hits, disabled)
            _name_values(program.model, trace)
        return self._artifact(
            OnnxProgram(program, trace.input_paths, inputs.constants), trace, inputs, config, runner, hits
        )


def _translate(trace: Trace, config: OnnxConfig, runner: StageRunner, hits: Hits) -> torch.onnx.ONNXProgram:
    graphs = [trace.program.graph]
    with runner.stage("decompose") as move_on:

        def fix_decomposed(program: ExportedProgram) -> None:
            move_on("node_fixes")
            apply_fx_node_fixes("onnx", program.graph_module, hits, config.disabled)
            graphs.append(program.graph)
            move_on("translate")

        with (
            shared_registry(),
            _after_decomposition(fix_decomposed),
            telling_where(graphs),
            warnings.catch_warnings(),
        ):
            # torch.onnx warns of torchvision's absence and of its own deprecated internals; neither is the caller's.
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                trace.program,
                (),
                dynamo=True,
                verbose=False,
                optimize=False,
                opset_version=config.opset,
                custom_translation_table=_ONNX_TRANSLATION_TABLE.counted(hits, config.disabled),
            )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    return program


@contextmanager
def _after_decomposition(callback: Callable[[ExportedProgram], None]) -> Iterator[None]:
    place = resolve(_DECOMPOSE)
    if place is None:
        yield
        return
    owner, name = place
    original = getattr(owner, name)

    def decompose(*args: Any, **kwargs: Any) -> ExportedProgram:
        program: ExportedProgram = original(*args, **kwargs)
        callback(program)
        return program

    with replaced(owner, name, decompose):
        yield


def _name_values(model: Any, trace: Trace) -> None:
    """Name graph inputs and outputs by their paths in the model; an output that shares an input's name says so.

    Every other value that already has such a name, a weight or an intermediate result, gets another one.
    """
    taken: set[str] = set()
    for value, path in zip(model.graph.inputs, trace.input_paths, strict=True):
        taken.add(path)
        value.name = path
    for value, path in zip(model.graph.outputs, trace.output_paths, strict=True):
        name = path
        while name in taken:
            name = f"output.{name}"
        taken.add(name)
        value.name = name
    NameFixPass()(model)
