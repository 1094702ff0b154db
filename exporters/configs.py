"""What an export can be told. Every config can also be given as a dict of its fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

ConfigT = TypeVar("ConfigT", bound="DynamoConfig")

#: The ONNX operator sets that torch.onnx (2.13, with onnxscript 0.7) really writes. Asked for another one it keeps 18
#: without a word, or writes a graph that ONNX Runtime 1.32 refuses.
MIN_OPSET, MAX_OPSET = 18, 25


#: Upper bound of ExecuTorch's dynamic axes, in elements, where none is given.
DEFAULT_MAX_SIZE = 64


@dataclass(frozen=True)
class DynamoConfig:
    """How to trace with ``torch.export``.

    Attributes:
        dynamic: let every input axis vary that the model lets vary; false bakes the traced sizes in.
        dynamic_shapes: a specification as ``torch.export.export`` takes it, by input name, in place of the
            automatic one.
        max_size: upper bound of each dynamic axis, in elements; an axis traced at more than half of it gets twice the
            traced size. ``None`` leaves the axes unbounded.
        max_sizes: bounds of single axes, ``{input name: {axis: size}}``, taken as they are.
        strict: trace through TorchDynamo's bytecode analysis instead of running the Python code.
        disabled: ids of workarounds to leave out.
    """

    dynamic: bool = True
    dynamic_shapes: Mapping[str, Any] | None = None
    max_size: int | None = None
    max_sizes: Mapping[str, Mapping[int, int]] | None = None
    strict: bool = False
    disabled: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        if not all(isinstance(axes, Mapping) for axes in (self.max_sizes or {}).values()):
            raise TypeError("max_sizes is a size by axis by input, such as {'input_ids': {1: 512}}")
        sizes = [size for axes in (self.max_sizes or {}).values() for size in axes.values()]
        for size in (*sizes, *(() if self.max_size is None else (self.max_size,))):
            if not isinstance(size, int) or size < 2:
                raise ValueError(f"the bound of a dynamic axis is a size of at least 2, got {size!r}")


@dataclass(frozen=True)
class OnnxConfig(DynamoConfig):
    """How to translate to ONNX.

    Attributes:
        opset: ONNX operator set, from 18 to 25; ``None`` takes torch's default.
        optimize: run onnxscript's optimizer (constant folding, fusions) on the translated graph.
    """

    opset: int | None = None
    optimize: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        known = isinstance(self.opset, int) and MIN_OPSET <= self.opset <= MAX_OPSET
        if self.opset is not None and not known:
            raise ValueError(
                f"opset {self.opset!r} cannot be exported; give a number from {MIN_OPSET} to {MAX_OPSET}, or None for "
                "torch's default"
            )


@dataclass(frozen=True)
class ExecutorchConfig(DynamoConfig):
    """How to lower to ExecuTorch.

    Attributes:
        max_size: as in `DynamoConfig`, but never unbounded (``None`` is 64): the runtime reserves memory for the upper
            bound of every tensor at load, so the default is small and a real deployment states its own. Axes that
            ``dynamic_shapes`` leaves open get it, too.
        backend: the delegate: ``xnnpack``, ``cuda``, or ``portable`` for none.
    """

    max_size: int | None = DEFAULT_MAX_SIZE
    backend: str = "xnnpack"

    def __post_init__(self) -> None:
        from exporters.executorch.backends import require_backend

        if self.max_size is None:
            object.__setattr__(self, "max_size", DEFAULT_MAX_SIZE)
        super().__post_init__()
        require_backend(self.backend)


def coerce(config: ConfigT | Mapping[str, Any] | None, kind: type[ConfigT]) -> ConfigT:
    """A config of ``kind`` from one, from a dict of its fields, or from nothing. Raises ``TypeError`` otherwise."""
    if config is None:
        return kind()
    if isinstance(config, Mapping):
        unknown = sorted(set(config) - set(kind.__dataclass_fields__))
        if unknown:
            raise TypeError(
                f"{kind.__name__} has no {', '.join(unknown)}; it takes {', '.join(kind.__dataclass_fields__)}"
            )
        return kind(**config)
    if type(config) is not kind:
        raise TypeError(f"expected {kind.__name__} or a dict of its fields, got {type(config).__name__}")
    return config
