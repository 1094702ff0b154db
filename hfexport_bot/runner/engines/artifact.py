"""A foreign program as an `exporters.Artifact`, so that it is bound, run and measured as one of ours.

Names come from the trace, by our naming; those of an ONNX graph are its own, since a wrong name there is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

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
        held: the traced values of inputs that our naming leaves out, since they repeat a cache's settings: they are
            among what is ``made``. left_out: such outputs, which are not returned.
    """

    traced: Traced | None = None
    nodes: CacheNodes = field(default_factory=CacheNodes)
    held: dict[str, torch.Tensor] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()

    def bind(self, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
        """As of the base class, without what has no tensors and cannot be compared either, such as an empty cache."""
        seen = {name: value for name, value in inputs.items() if named_leaves({name: value}) or is_plain(value)}
        return super().bind({**self.held, **seen})

    def __call__(self, **inputs: Any) -> dict[str, torch.Tensor]:
        """As of the base class, without what is ``left_out``."""
        return {name: value for name, value in super().__call__(**inputs).items() if name not in self.left_out}

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
    arguments = _leaf_names(traced.in_spec, nodes, lambda tree: tree[1])
    results = _leaf_names(traced.out_spec, nodes, lambda tree: tree)
    taken = [leaf for index, leaf in enumerate(arguments) if index not in traced.constants]
    returned = [results[index] for index in traced.tensor_outputs]
    inputs, outputs = tuple(leaf.name for leaf in taken), tuple(leaf.name for leaf in returned)
    dtypes = traced.dtypes
    axes = tuple(replace(axis, input=inputs[int(axis.input)]) for axis in traced.axes)
    held = {leaf.name: value for leaf, value in zip(taken, traced.tensors, strict=True) if leaf.is_foreign}
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
        made=(*made, *(name for name in held if name in inputs)),
        prepare=prepare,
        traced=traced,
        nodes=nodes,
        held={name: value for name, value in held.items() if name in inputs},  # a graph drops what it does not read
        left_out=frozenset(leaf.name for leaf in returned if leaf.is_foreign),
    )


class _Leaf(NamedTuple):
    """``is_foreign``: our naming leaves it out."""

    name: str
    is_foreign: bool


def _leaf_names(spec: pytree.TreeSpec, nodes: CacheNodes, part: Callable[[Any], Any]) -> list[_Leaf]:
    """The name that `named_leaves` gives each leaf of a structure that was flattened in another way. What ours leave
    out, as a cache's tensors that repeat a setting, is named alike, by the attributes that lead to it."""
    stand_ins = [torch.empty(0) for _ in range(spec.num_leaves)]
    with nodes.used():
        tree = part(pytree.tree_unflatten(stand_ins, spec))
    ours = {id(leaf): name for name, leaf in named_leaves(tree).items()}
    foreign = dict(_attributes(tree, "", set()))
    return [
        _Leaf(ours.get(id(leaf)) or foreign.get(id(leaf), f"leaf_{index}"), id(leaf) not in ours)
        for index, leaf in enumerate(stand_ins)
    ]


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


def is_plain(value: Any) -> bool:
    """Whether a value that holds no tensor is itself all there is to compare."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return isinstance(value, bool | int | float | str | None)


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
