"""A foreign program as an `exporters.Artifact`, so that it is bound, run and measured as one of ours.

Names come from the trace, by our naming; those of an ONNX graph are its own, since a wrong name there is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporters import Artifact
from exporters.leaves import named_leaves
from exporters.runtime import Session
from hfexport_bot.runner.engines.cache_nodes import CacheNodes
from hfexport_bot.runner.engines.observed import Traced
from hfexport_bot.schema import Backend

#: What `make_artifact` is given to make further inputs with.
Prepare = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass
class RepoArtifact(Artifact):
    """An artifact whose program was traced with another registration of caches than ours.

    Attributes:
        traced: what the program was made of. nodes: that registration.
        held: what caches among the traced inputs held, by the input.
    """

    traced: Traced | None = None
    nodes: CacheNodes = field(default_factory=CacheNodes)
    held: dict[str, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def session(self) -> Session:
        """As of the base class."""
        if self.backend == Backend.ONNX or self.traced is None:
            return super().session
        if self.backend == Backend.EXECUTORCH:
            return _ExecutorchSession(self, self.traced)
        return _DynamoSession(self, self.traced)


def make_artifact(
    backend: Backend,
    program: Any,
    traced: Traced,
    nodes: CacheNodes,
    *,
    constants: Mapping[str, Any],
    made: Sequence[str] = (),
    prepare: Prepare | None = None,
) -> RepoArtifact:
    """Wrap what an exporter gave.

    Args:
        program: an ``ExportedProgram``, an ``ONNXProgram`` or the ``onnx_ir.Model`` in it, or ExecuTorch's program
            manager.
        constants: arguments of the forward that are no tensors; they may be given again.
        made: names of the inputs that ``prepare`` makes from the others.
    """
    inputs, outputs = _names(traced, nodes)
    dtypes = traced.dtypes
    axes = tuple(replace(axis, input=inputs[int(axis.input)]) for axis in traced.axes)
    held = {path: value for path, value in zip(inputs, traced.tensors, strict=True) if ".layers." in path}
    if backend is Backend.ONNX:
        from exporters.onnx.program import OnnxProgram

        graph = getattr(program, "model", program)
        inputs, outputs = _graph_names(graph.graph.inputs, "input."), _graph_names(graph.graph.outputs, "output.")
        dtypes = tuple(_dtype(value) for value in graph.graph.inputs)
        exported = getattr(program, "exported_program", None)
        program = OnnxProgram(torch.onnx.ONNXProgram(graph, exported), inputs, constants)
    return RepoArtifact(
        backend=str(backend),
        program=program,
        input_paths=inputs,
        output_paths=outputs,
        axes=axes,
        input_dtypes=dtypes,
        constants=dict(constants),
        made=tuple(made),
        prepare=prepare,
        traced=traced,
        nodes=nodes,
        held=held,
    )


def _names(traced: Traced, nodes: CacheNodes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Our names of the tensors among the arguments and among the outputs, in order."""
    arguments = _leaf_names(traced.in_spec, nodes, lambda tree: tree[1])
    outputs = _leaf_names(traced.out_spec, nodes, lambda tree: tree)
    return (
        tuple(name for index, name in enumerate(arguments) if index not in traced.constants),
        tuple(outputs[index] for index in traced.tensor_outputs),
    )


def _leaf_names(spec: pytree.TreeSpec, nodes: CacheNodes, part: Callable[[Any], Any]) -> list[str]:
    """The name that `named_leaves` gives each leaf of a structure that was flattened in another way; what ours leave
    out, as a cache's tensors that repeat a setting, is named alike, by the attributes that lead to it."""
    stand_ins = [torch.empty(0) for _ in range(spec.num_leaves)]
    with nodes.used():
        tree = part(pytree.tree_unflatten(stand_ins, spec))
    names = dict(_attributes(tree, "", set())) | {id(leaf): name for name, leaf in named_leaves(tree).items()}
    return [names.get(id(leaf), f"leaf_{index}") for index, leaf in enumerate(stand_ins)]


def _attributes(value: Any, path: str, seen: set[int]) -> Iterator[tuple[int, str]]:
    """Every tensor held by ``value``, by its id, with the keys and attributes that lead to it."""
    if isinstance(value, torch.Tensor):
        yield id(value), path
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        held = [(str(key), each) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        held = [(str(index), each) for index, each in enumerate(value)]
    else:
        held = list(getattr(value, "__dict__", {}).items())
    for key, each in held:
        yield from _attributes(each, f"{path}.{key}" if path else key, seen)


def _graph_names(values: Sequence[Any], prefix: str) -> tuple[str, ...]:
    """Names of an ONNX graph's values, without the prefix that tells an input from an output of the same name."""
    return tuple(str(value.name).removeprefix(prefix) for value in values)


def _dtype(value: Any) -> str:
    """torch's name of an ONNX value's dtype."""
    return str(value.dtype.numpy()) if value.dtype is not None else ""


def _filled(traced: Traced, tensors: Sequence[torch.Tensor]) -> list[Any]:
    """All leaves of the arguments, constants among them."""
    given = iter(tensors)
    return [
        traced.constants[index] if index in traced.constants else next(given)
        for index in range(traced.in_spec.num_leaves)
    ]


class _DynamoSession:
    """With the guards of ``torch.export`` on."""

    def __init__(self, artifact: RepoArtifact, traced: Traced) -> None:
        self._traced = traced
        self._nodes = artifact.nodes
        self._outputs = artifact.output_paths
        with self._nodes.used():
            self._module = artifact.program.module()

    def run(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        with self._nodes.used(), torch.no_grad():
            args, kwargs = pytree.tree_unflatten(_filled(self._traced, tensors), self._traced.in_spec)
            leaves = pytree.tree_leaves(self._module(*args, **kwargs))
        return {name: leaves[index] for name, index in zip(self._outputs, self._traced.tensor_outputs, strict=True)}


class _ExecutorchSession:
    """A program that may take constants among its inputs, whose places have to be filled."""

    def __init__(self, artifact: RepoArtifact, traced: Traced) -> None:
        from exporters.runtime.executorch import ExecutorchSession

        self._session = ExecutorchSession(artifact)
        self._traced = traced

    def run(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        # The runtime has no strings: the place of one takes nothing.
        leaves = [None if isinstance(leaf, str) else leaf for leaf in _filled(self._traced, tensors)]
        return self._session.run(leaves)
