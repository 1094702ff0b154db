"""Stage ``translate``: operators that torchlib translates wrongly or not at all, translated here.

A translation is a function ``_aten_*`` over onnxscript with its reason as docstring, registered for the operators that
it translates::

    @register_translation(torch.ops.aten.gelu.default, upstream="https://github.com/...")
    def _aten_gelu(x, approximate="none"): ...
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from onnx_ir import DataType
from onnxscript import opset18 as op

from exporters.registry import Hits, Workaround, register_translation, workarounds


class TranslationTable(Mapping[Any, Callable[..., Any]]):
    """Operators to the functions that are registered for them: a live view, which the exporter reads.

    An entry is made with `exporters.utils.register_translation`. Of two for one operator the later counts.
    """

    def active(self, disabled: Iterable[str] = ()) -> dict[Any, Workaround]:
        """Operators to their workarounds, without those whose ids are in ``disabled``."""
        found = workarounds("onnx", "translate", kind="translation", disabled=disabled)
        return {operator: workaround for workaround in found for operator in workaround.targets}

    def counted(self, hits: Hits, disabled: Iterable[str] = ()) -> dict[Any, Callable[..., Any]]:
        """As ``torch.onnx.export(custom_translation_table=...)`` takes it; a translated node counts as a hit."""
        return {operator: _counted(workaround, hits) for operator, workaround in self.active(disabled).items()}

    def __getitem__(self, operator: Any) -> Callable[..., Any]:
        return self.active()[operator].function

    def __iter__(self) -> Iterator[Any]:
        return iter(self.active())

    def __len__(self) -> int:
        return len(self.active())


def _counted(workaround: Workaround, hits: Hits) -> Callable[..., Any]:
    @functools.wraps(workaround.function)  # torch.onnx reads the signature through __wrapped__
    def translate(*args: Any, **kwargs: Any) -> Any:
        hits.add(workaround)
        return workaround.function(*args, **kwargs)

    return translate


_ONNX_TRANSLATION_TABLE = TranslationTable()


def _grouped_mm_operators() -> Iterator[Any]:
    """torch's operator, and the one that transformers has for CPUs since its experts multiply in groups."""
    yield torch.ops.aten._grouped_mm.default
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("transformers.integrations.moe")  # defines it
        yield torch.ops.transformers.grouped_mm_fallback.default


@register_translation(
    *_grouped_mm_operators(),
    upstream="https://github.com/onnx/onnx/issues/7589",
)
def _aten_grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: int | None = None) -> Any:
    """ONNX multiplies no groups of rows by matrices of their own; each group is cut out, multiplied, and put back.

    self: (rows, inner). mat2: (groups, inner, outer). offs: (groups), the row at which each group ends; the last
    group ends with the rows.
    """
    if offs is None:
        product = op.MatMul(self, mat2)
    elif len(self.shape) != 2 or len(mat2.shape) != 3:
        raise NotImplementedError("groups of rows are multiplied by stacked matrices only")
    else:
        first = op.Constant(value_ints=[0])
        ends = op.Cast(offs, to=DataType.INT64)
        bounds = [first, *(op.Slice(ends, [group], [group + 1], first) for group in range(mat2.shape[0]))]
        groups = [
            op.MatMul(op.Slice(self, start, end, first), op.Gather(mat2, op.Constant(value_int=group), axis=0))
            for group, (start, end) in enumerate(itertools.pairwise(bounds))
        ]
        product = op.Concat(*groups, axis=0)
    if bias is not None:
        product = op.Add(product, bias)
    return product if out_dtype is None else op.Cast(product, to=out_dtype)


@register_translation(
    torch.ops.aten._upsample_bicubic2d_aa.default, upstream="https://github.com/microsoft/onnxscript/pull/2916"
)
def _aten_upsample_bicubic_antialiased(
    self: Any, output_size: Any, align_corners: bool, scales_h: float | None = None, scales_w: float | None = None
) -> Any:
    """Resizing by a factor, with antialiasing, uses the factor itself, not the ratio of the rounded sizes.

    self: (batch, channels, height, width). output_size: (2), int64. torch's kernel for it takes another cubic
    coefficient than the one without antialiasing, and leaves out what lies beyond the border.
    """
    return _resized(self, output_size, align_corners, scales_h, scales_w, mode="cubic", cubic_coeff_a=-0.5)


@register_translation(
    torch.ops.aten._upsample_bilinear2d_aa.default, upstream="https://github.com/microsoft/onnxscript/pull/2916"
)
def _aten_upsample_bilinear_antialiased(
    self: Any, output_size: Any, align_corners: bool, scales_h: float | None = None, scales_w: float | None = None
) -> Any:
    """Resizing by a factor, with antialiasing, uses the factor itself, not the ratio of the rounded sizes."""
    return _resized(self, output_size, align_corners, scales_h, scales_w, mode="linear")


def _resized(
    image: Any,
    output_size: Any,
    align_corners: bool,
    scale_height: float | None,
    scale_width: float | None,
    **attributes: Any,
) -> Any:
    if align_corners:
        raise NotImplementedError("ONNX has no resizing with antialias and align_corners that gives torch's numbers")
    scales = sizes = None
    if scale_height is not None and scale_width is not None:
        scales = op.Constant(value_floats=[1.0, 1.0, scale_height, scale_width])
    else:
        sizes = op.Concat(op.Shape(image, end=2), op.Cast(output_size, to=DataType.INT64), axis=0)
    return op.Resize(
        image,
        None,
        scales,
        sizes,
        coordinate_transformation_mode="half_pixel",
        antialias=1,
        exclude_outside=1,
        **attributes,
    )


@register_translation(
    torch.ops.aten.repeat_interleave.self_int,
    model_change="expand along a new axis and flatten it, where the number of repeats is a size of an input",
)
def _aten_repeat_interleave(self: Any, repeats: Any, dim: int | None = None, output_size: Any = None) -> Any:
    """torchlib repeats a symbolic number of times along the axis itself, not along the new one behind it.

    ONNX Runtime then refuses the graph, or an axis of one is broadcast.
    """
    if dim is None:
        self, dim, rank = op.Reshape(self, op.Constant(value_ints=[-1])), 0, 1
    else:
        rank = len(self.shape)
    axis = dim % rank
    fixed = isinstance(repeats, int)
    last = op.Constant(value_ints=[-1])
    times = op.Constant(value_ints=[repeats]) if fixed else op.Reshape(repeats, last)
    before, behind = [1] * (axis + 1), [1] * (rank - axis - 1)
    wanted = [op.Constant(value_ints=before), times, *([op.Constant(value_ints=behind)] if behind else ())]
    repeated = op.Expand(op.Unsqueeze(self, op.Constant(value_ints=[axis + 1])), op.Concat(*wanted, axis=0))
    sizes = [op.Shape(self, start=0, end=axis)] if axis else []
    sizes += [last, *([op.Shape(self, start=axis + 1)] if behind else ())]
    return op.Reshape(repeated, op.Concat(*sizes, axis=0) if len(sizes) > 1 else last)
