"""ExecuTorch: a traced model becomes an ``ExecutorchProgramManager``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, ClassVar

import torch
from torch.utils import _pytree as pytree

from exporters.artifacts import Artifact
from exporters.base import PreparedInputs
from exporters.configs import DynamoConfig, ExecutorchConfig
from exporters.dynamo.exporter import DynamoExporter
from exporters.executorch import convolutions as _convolutions  # noqa: F401  registers the convolutions
from exporters.executorch import dim_order as _dim_order  # noqa: F401  registers it
from exporters.executorch import interpolation as _interpolation  # noqa: F401  registers the interpolation
from exporters.executorch import node_fixes as _node_fixes  # noqa: F401  registers the node fixes
from exporters.executorch import partitions as _partitions  # noqa: F401  registers the merging of partitions
from exporters.executorch import program_fixes as _program_fixes  # noqa: F401  registers the program fixes
from exporters.executorch import scan_emission as _scan_emission  # noqa: F401  registers the emission of scan
from exporters.executorch import torch_patches as _torch_patches  # noqa: F401  registers the torch patches
from exporters.executorch.backends import prepare
from exporters.origins import telling_where
from exporters.registry import Hits, apply_fx_node_fixes, apply_fx_program_fixes, apply_patches
from exporters.stages import StageRunner

#: Operators on sizes that the runtime has and the verifier of edge programs doesn't know:
#: https://github.com/pytorch/executorch/issues/11988
_SIZE_OPS = (torch.sym_float, torch.sym_int, torch.sym_ite, torch.sym_max, torch.sym_min, torch.sym_not)

#: Constant methods of a ``.pte`` that hold the paths of its inputs and outputs, JSON lists in UTF-8 bytes.
INPUT_PATHS_METHOD = "input_paths"
OUTPUT_PATHS_METHOD = "output_paths"


class ExecutorchExporter(DynamoExporter):
    """Exports a model to ExecuTorch.

    Example::

        program = ExecutorchExporter().export(model, inputs, config=ExecutorchConfig(backend="xnnpack"))
        with open("model.pte", "wb") as file:
            program.write_to_file(file)
    """

    backend: ClassVar[str] = "executorch"
    config_class: ClassVar[type[DynamoConfig]] = ExecutorchConfig
    tensors_only: ClassVar[bool] = True

    def _export(
        self, model: torch.nn.Module, inputs: PreparedInputs, config: Any, runner: StageRunner, hits: Hits
    ) -> Artifact:
        from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

        _refuse_nested_constants(inputs.tensors)
        with runner.stage("backend_preparation"):
            partitioner = prepare(config.backend, model)
        with ExitStack() as stack:
            for stage in ("torch_patches", "executorch_patches"):
                with runner.stage(stage):
                    stack.enter_context(apply_patches("executorch", stage, hits, config.disabled))
            trace = self._trace(model, inputs, config, runner, hits)
            with runner.stage("program_fixes"):
                apply_fx_program_fixes("executorch", trace.program, hits, config.disabled)
            with runner.stage("node_fixes"):
                apply_fx_node_fixes("executorch", trace.program.graph_module, hits, config.disabled)
            graphs = [trace.program.graph]
            with runner.stage("lower"), telling_where(graphs):
                edge = to_edge_transform_and_lower(
                    trace.program,
                    partitioner=partitioner,
                    compile_config=EdgeCompileConfig(_core_aten_ops_exception_list=list(_SIZE_OPS)),
                    constant_methods={
                        INPUT_PATHS_METHOD: _as_bytes(trace.input_paths),
                        OUTPUT_PATHS_METHOD: _as_bytes(trace.output_paths),
                    },
                )
            graphs.append(edge.exported_program().graph)
            with runner.stage("emit"), telling_where(graphs):
                program = edge.to_executorch()
        return self._artifact(program, trace, inputs, config, runner, hits)


def _refuse_nested_constants(inputs: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for what is no tensor beside tensors: the runtime would want it among its inputs."""
    for name, value in inputs.items():
        odd = [leaf for leaf in pytree.tree_leaves(value) if not isinstance(leaf, torch.Tensor)]
        if odd:
            raise ValueError(
                f"{name} holds {odd[0]!r} beside tensors, and an ExecuTorch program takes tensors only; "
                "leave it out, or give it to the forward as an argument of its own"
            )


def _as_bytes(paths: tuple[str, ...]) -> torch.Tensor:
    """Paths as a one-dimensional uint8 tensor."""
    return torch.tensor(list(json.dumps(paths).encode()), dtype=torch.uint8)


def paths_from_bytes(stored: torch.Tensor) -> tuple[str, ...]:
    """The inverse of what the exporter stores: a uint8 tensor to paths."""
    return tuple(json.loads(bytes(stored.tolist()).decode()))
