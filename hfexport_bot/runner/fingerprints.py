"""What a case depends on, in short texts that are the same in any process.

Two sides that have the same eager fingerprint have the same weights, inputs and eager outputs, bit by bit. Two that
have the same graph fingerprints too, and in them the same exporters, cannot differ in what follows the trace.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from exporters.artifacts import versions
from hfexport_bot.runner.engines.package import PACKAGE
from hfexport_bot.schema import CaseId, Engine, RunnerSetup

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_DIGEST_BYTES = 16


class _Digest:
    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def add(self, value: Any) -> None:
        """Take in a text, or a tensor with its dtype, shape and values."""
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized:
            self.add(f"{value.dtype} {list(value.shape)}")
            data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        else:
            data = _without_addresses(value).encode()
        self._hash.update(str(len(data)).encode() + b":")
        self._hash.update(data)

    def __str__(self) -> str:
        return self._hash.hexdigest()


def eager_fingerprint(
    model: torch.nn.Module, inputs: Mapping[str, Any], others: Mapping[str, Any], outputs: Mapping[str, Any]
) -> str:
    """Of a model's weights and buffers, what its forward was given and gave, and what it will be given besides."""
    digest = _Digest()
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        digest.add(name)
        digest.add(tensor)
    for values in (dict(inputs), dict(others), dict(outputs)):
        leaves, spec = pytree.tree_flatten(values)
        digest.add(str(spec))
        for leaf in leaves:
            digest.add(leaf)
    return str(digest)


def exporters_fingerprint(case: CaseId, setup: RunnerSetup) -> str:
    """Of who exports a case and how: packages, the repository's own exporters and workarounds, and settings."""
    digest = _Digest()
    files = [Path(setup.tree or "", setup.workarounds_file)] if setup.workarounds_file else []
    if case.engine is Engine.REPO and (found := importlib.util.find_spec(PACKAGE)) is not None:
        files += sorted(path for root in found.submodule_search_locations or () for path in Path(root).rglob("*.py"))
    settings = {"limits": setup.limits.model_dump(), "disabled": setup.disabled_workarounds, "seed": setup.seed}
    digest.add(json.dumps([str(case), versions(), settings], sort_keys=True))
    for file in files:
        digest.add(file.name)
        digest.add(file.read_bytes().decode(errors="replace"))
    return str(digest)


def program_fingerprint(program: ExportedProgram, case: CaseId, setup: RunnerSetup) -> str:
    """`graph_fingerprint` and `exporters_fingerprint` in one; one of its own for what has no text or bytes."""
    try:
        return graph_fingerprint(program, exporters_fingerprint(case, setup))
    except Exception:  # a foreign program may hold anything; it is like no other then, and both sides run whole
        traceback.print_exc()
        return uuid.uuid4().hex


def graph_fingerprint(program: ExportedProgram, exporters: str) -> str:
    """Of a traced program right after its trace, and of ``exporters`` who go on with it.

    Weights count by name, shape and dtype, since they are what a checkpoint brings; all other constants by value. So do
    inputs that are no floating point numbers: exporters make some of them with the model's own code.
    """
    digest = _Digest()
    digest.add(exporters)
    digest.add("\n".join(_Text(program).lines()))
    for name, tensor in sorted(program.state_dict.items()):
        digest.add(f"{name} {tensor.dtype} {list(tensor.shape)}")
    for name, constant in sorted(program.constants.items()):
        digest.add(name)
        digest.add(constant)
    for leaf in pytree.tree_leaves(program.example_inputs):
        if not (isinstance(leaf, torch.Tensor) and leaf.is_floating_point()):
            digest.add(leaf)
    return str(digest)


class _Text:
    """A program as text, with sizes named in the order they appear in."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._sizes: dict[Any, Any] = {}
        self._expressions: dict[Any, str] = {}

    def lines(self) -> Iterator[str]:
        yield from self._graph(self._program.graph_module, "")
        signature = self._program.graph_signature
        yield from (str(spec) for spec in chain(signature.input_specs, signature.output_specs))
        yield _without_addresses(self._program.call_spec)
        for symbol, interval in self._program.range_constraints.items():
            yield f"{self._expression(symbol)} in {interval.lower} .. {interval.upper}"
        yield str(getattr(self._program, "_guards_code", ""))

    def _graph(self, module: torch.fx.GraphModule, indent: str) -> Iterator[str]:
        for node in module.graph.nodes:
            made = self._value(node.meta.get("val"))
            target = self._value(node.target) if callable(node.target) else str(node.target)
            yield f"{indent}{node.op} {node.name} {target} {self._value(node.args)} {self._value(node.kwargs)} {made}"
            held = getattr(module, str(node.target), None) if node.op == "get_attr" else None
            if isinstance(held, torch.fx.GraphModule):
                yield from self._graph(held, f"{indent}  ")
            elif isinstance(held, torch.Tensor):
                digest = _Digest()
                digest.add(held)
                yield f"{indent}  {digest}"

    def _value(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return value.name
        if isinstance(value, torch.Tensor):
            return f"{value.dtype}{self._value(list(value.shape))}{self._value(list(value.stride()))} on {value.device}"
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return self._expression(value.node.expr)
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{key}: {self._value(item)}' for key, item in value.items())}}}"
        if isinstance(value, slice):
            return f"slice{self._value([value.start, value.stop, value.step])}"
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return f"[{', '.join(map(self._value, value))}]"
        if callable(value) and not isinstance(value, torch._ops.OpOverload) and hasattr(value, "__qualname__"):
            return f"{value.__module__}.{value.__qualname__}"
        return _without_addresses(value)

    def _expression(self, expression: Any) -> str:
        if expression not in self._expressions:
            for symbol in sorted(getattr(expression, "free_symbols", ()), key=str):
                if symbol not in self._sizes:
                    self._sizes[symbol] = type(symbol)(f"size_{len(self._sizes)}", integer=True)
            named = expression.xreplace(self._sizes) if hasattr(expression, "xreplace") else expression
            self._expressions[expression] = str(named)
        return self._expressions[expression]


def _without_addresses(value: Any) -> str:
    return _ADDRESS.sub("", value if isinstance(value, str) else repr(value))
