"""Stage ``state_cleanup``: tracing leaves no trace on the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

#: Attributes in which models keep tensors from one forward to the next. They are emptied for the trace, so that an
#: earlier eager forward does not end up in the graph as a constant.
_STATEFUL_CACHE_ATTRS = (
    "cached_rotary_positional_embedding",
    "cached_sequence_length",
    "rope_deltas",
)

_REGISTRIES = ("_parameters", "_buffers", "_modules")


@contextmanager
def preserved_state(model: torch.nn.Module) -> Iterator[None]:
    """Empty the stateful attributes; on leaving, give every submodule the attributes it had on entering.

    What the trace planted on a module (a fake tensor in a memo, say) goes. Tensors are kept by reference, not copied.
    """
    saved = [
        (module, dict(vars(module)), {name: dict(vars(module)[name]) for name in _REGISTRIES})
        for module in model.modules()
    ]
    try:
        for module, attributes, _ in saved:
            for name in _STATEFUL_CACHE_ATTRS:
                if name in attributes:
                    setattr(module, name, None)
        yield
    finally:
        for module, attributes, registries in saved:
            vars(module).clear()
            vars(module).update(attributes)
            for name, entries in registries.items():
                registry = vars(module)[name]
                registry.clear()
                registry.update(entries)


def drop_unused_weights(program: ExportedProgram) -> int:
    """Take parameters and buffers that the graph does nothing with out of a program, in place; returns how many.

    A part of a model is traced on the whole of it, and would be saved with all of its weights.
    """
    signature = program.graph_signature
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    kept_alive = {*signature.buffers_to_mutate.values()}
    unused = [
        spec
        for spec in signature.input_specs
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
        and not placeholders[spec.arg.name].users
        and spec.target not in kept_alive
    ]
    for spec in unused:
        program.graph.erase_node(placeholders[spec.arg.name])
        signature.input_specs.remove(spec)
        for tensors in (program.state_dict, program.constants):
            tensors.pop(spec.target, None)
    if unused:
        program.graph_module.recompile()
    return len(unused)
