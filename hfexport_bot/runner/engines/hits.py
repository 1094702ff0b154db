"""Which patches and fixes of the exporters under test acted during an export, as far as their registries let see.

Their entries are replaced by counting ones for the time of an export. An id names the function where the package
defines it: ``repo:exporter_onnx._patch_where``.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram

from hfexport_bot.runner.engines.package import ExportersPackage
from hfexport_bot.schema import REPO_PREFIX

#: Names of the registries, each the same in every version so far: patches by backend, (owner or its path, attribute,
#: factory); fixes by backend; preparers by the inputs that they need; ONNX functions by operator; fixes of ONNX graphs.
PATCHES = "_PATCHES"
NODE_FIXES = "_FX_NODE_FIXES"
PROGRAM_FIXES = "_FX_PROGRAM_FIXES"
PREPARERS = "_EXPORT_INPUT_PREPARERS"
TRANSLATIONS = "_ONNX_TRANSLATION_TABLE"
IR_FIXES = "_IR_FIXES"


def identity(package: ExportersPackage, function: Any) -> str:
    """``repo:MODULE.NAME`` of a patch or a fix, the module below the package."""
    inner = inspect.unwrap(getattr(function, "function", function))  # an onnxscript function holds the Python one
    module = str(getattr(inner, "__module__", "")).removeprefix(f"{package.name}.")
    name = str(getattr(inner, "__qualname__", type(inner).__name__))
    return f"{REPO_PREFIX}{module}.{name.partition('.<locals>')[0]}"


@contextmanager
def counted(package: ExportersPackage, hits: Counter[str], disabled: Collection[str] = ()) -> Iterator[None]:
    """Count what acts while inside, and leave out what is in ``disabled``; the registries come back as they were."""
    counter = _Counting(package, hits, frozenset(disabled))
    kinds: tuple[tuple[str, Callable[[Any], Any], Callable[[Any], Any]], ...] = (
        (PATCHES, counter.patch, lambda entry: entry[-1]),
        (NODE_FIXES, counter.node_fix, lambda entry: entry),
        (PROGRAM_FIXES, counter.program_fix, lambda entry: entry),
        (PREPARERS, counter.preparer, lambda entry: entry),
        (IR_FIXES, counter.ir_fix, lambda entry: entry),
    )
    with ExitStack() as stack:
        for name, wrapped, function_of in kinds:
            for registry in package.registries(name):
                for entries in lists_in(registry):
                    stack.callback(entries.__setitem__, slice(None), list(entries))
                    entries[:] = [wrapped(e) for e in entries if not counter.is_disabled(function_of(e))]
                if name == PREPARERS and isinstance(registry, dict):
                    stack.callback(registry.update, dict(registry))
                    for markers, function in dict(registry).items():
                        if counter.is_disabled(function):
                            del registry[markers]
                        else:
                            registry[markers] = wrapped(function)
        for table in package.registries(TRANSLATIONS):
            if isinstance(table, dict):
                stack.callback(table.update, dict(table))
                for operator in [operator for operator, entry in table.items() if counter.is_disabled(entry)]:
                    del table[operator]
        yield


def count_translations(package: ExportersPackage, program: ExportedProgram, hits: Counter[str]) -> None:
    """Count the operators of a decomposed program that the package translates in its own way."""
    for table in package.registries(TRANSLATIONS):
        for node in program.graph.nodes if isinstance(table, Mapping) else ():
            if node.op == "call_function" and node.target in table:
                hits[identity(package, table[node.target])] += 1


def lists_in(registry: Any) -> list[list[Any]]:
    """The lists of entries: of a registry by backend, or the registry itself."""
    if isinstance(registry, list):
        return [registry]
    values = registry.values() if isinstance(registry, Mapping) else ()
    return [value for value in values if isinstance(value, list)]


class _Counting:
    def __init__(self, package: ExportersPackage, hits: Counter[str], disabled: frozenset[str]) -> None:
        self._package = package
        self._hits = hits
        self._disabled = disabled

    def is_disabled(self, function: Any) -> bool:
        return bool(self._disabled) and identity(self._package, function) in self._disabled

    def patch(self, entry: Any) -> Any:
        """An entry whose factory's replacement counts its calls."""
        *place, factory = entry
        name = identity(self._package, factory)

        @functools.wraps(factory)
        def counted_factory(original: Any) -> Any:
            replacement = factory(original)
            if not isinstance(replacement, types.FunctionType):
                return replacement  # a value or a descriptor, which nothing else may stand for

            @functools.wraps(replacement)
            def counted_replacement(*args: Any, **kwargs: Any) -> Any:
                if not torch.compiler.is_dynamo_compiling():  # which would trace the counting too
                    self._hits[name] += 1
                return replacement(*args, **kwargs)

            return counted_replacement

        return (*place, counted_factory)

    def node_fix(self, fix: Any) -> Any:
        @functools.wraps(fix)
        def counted_fix(*args: Any, **kwargs: Any) -> Any:
            changed = fix(*args, **kwargs)
            self._count(fix, bool(changed))
            return changed

        return counted_fix

    def program_fix(self, fix: Any) -> Any:
        return self._counted_by(_state_of_program, fix)

    def ir_fix(self, fix: Any) -> Any:
        return self._counted_by(_state_of_graph, fix)

    def _counted_by(self, state: Callable[[Any], Any], fix: Any) -> Any:
        """Most fixes return nothing, so what they fix itself tells whether it changed."""

        @functools.wraps(fix)
        def counted_fix(fixed: Any, *args: Any, **kwargs: Any) -> Any:
            before = state(fixed)
            found = fix(fixed, *args, **kwargs)
            self._count(fix, state(fixed) != before)
            return found

        return counted_fix

    def preparer(self, prepare: Any) -> Any:
        @functools.wraps(prepare)
        def counted_preparer(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            before = dict(inputs)
            found = prepare(model, inputs, *args, **kwargs)
            self._count(prepare, any(value is not before.get(name) for name, value in inputs.items()))
            return found

        return counted_preparer

    def _count(self, function: Any, acted: bool) -> None:
        if acted:
            self._hits[identity(self._package, function)] += 1


def _state_of_program(program: Any) -> Any:
    values = [node.meta.get("val") is None for node in program.graph.nodes]
    return str(program.graph), dict(program.range_constraints), values


def _state_of_graph(graph: Any) -> Any:
    return [
        (node.op_type, [value and value.name for value in node.inputs], _plain_attributes(node.attributes))
        for node in graph
    ]


def _plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: getattr(attribute, "value", None) for name, attribute in attributes.items()}
    return {name: value for name, value in found.items() if isinstance(value, int | float | str)}
