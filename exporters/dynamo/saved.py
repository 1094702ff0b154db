"""Read ``torch.export`` programs in a process that has not seen the model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from exporters.registry import replaced


def pytree_classes(program: ExportedProgram) -> list[str]:
    """The classes, ``module:name``, that a program's inputs and outputs are made of, beside Python's containers."""
    specs = (program.call_spec.in_spec, program.call_spec.out_spec)
    classes = {node.type for spec in specs if spec is not None for node in _nodes(spec) if node.type is not None}
    return sorted(f"{cls.__module__}:{cls.__qualname__}" for cls in classes if cls.__module__ != "builtins")


def _nodes(spec: pytree.TreeSpec) -> Iterator[pytree.TreeSpec]:
    yield spec
    for child in spec.children():
        yield from _nodes(child)


def load_pt2(file: Path, classes: Iterable[str]) -> ExportedProgram:
    """Read a ``.pt2`` file after importing and registering ``classes``.

    Raises ``ValueError`` where one is not to be found, or the file cannot be read.
    """
    found = [_imported(file, path) for path in classes]
    if any(cls not in pytree.SUPPORTED_NODES for cls in found):  # a ModelOutput is registered by its import
        from exporters.dynamo.pytree import register_cache_pytrees

        register_cache_pytrees(torch.nn.Module())
    if unknown := [cls.__qualname__ for cls in found if cls not in pytree.SUPPORTED_NODES]:
        raise ValueError(
            f"{file} takes or gives a {unknown[0]}, which torch.export knows only where the model was made"
        )
    try:
        # torch warns, in a broken message, that the sample caches in the file need pickle; leave for it was given.
        with replaced(logging.getLogger("torch._export.serde.serialize"), "disabled", True):
            return torch.export.load(file)
    except Exception as error:  # zip, JSON, schema: torch has no error of its own for a damaged file
        raise ValueError(f"{file} cannot be read as a torch.export program: {error}") from error


def _imported(file: Path, path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{file} takes or gives a {name} of {module}, not to be found here ({error}); make it importable, "
            "or export to ONNX or ExecuTorch, which need no class"
        ) from error
    return found
