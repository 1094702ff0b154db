"""Compare outputs of a runtime with eager's. Pure functions; no share of mismatches is forgiven."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tolerance:
    """``|actual - expected| <= atol + rtol * |expected|``, element by element."""

    rtol: float
    atol: float

    def excess(self, expected: torch.Tensor, actual: torch.Tensor) -> torch.Tensor:
        """The error in multiples of what is allowed, float64, of the tensors' shape; over 1 is a mismatch."""
        wanted, got = expected.double(), actual.double()
        return (got - wanted).abs() / (self.atol + self.rtol * wanted.abs())


#: float32 is the project's rule. The half types get about ten units in the last place (2**-10 and 2**-7), float64 what
#: ``torch.testing.assert_close`` gives it.
TOLERANCES: Mapping[torch.dtype, Tolerance] = {
    torch.float32: Tolerance(1e-4, 1e-4),
    torch.float64: Tolerance(1e-7, 1e-7),
    torch.float16: Tolerance(1e-2, 1e-2),
    torch.bfloat16: Tolerance(8e-2, 8e-2),
}


@dataclass(frozen=True)
class TensorComparison:
    """One output against eager's.

    Attributes:
        shape, dtype: what eager gives.
        max_abs, max_rel: largest absolute and relative error among the positions that count; ``None`` where the
            tensors cannot be compared element by element.
        mismatched: share of those positions outside the tolerance, 0 to 1.
        problem: why the output fails, empty where it passes.
        note: what was left out of the comparison.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_abs: float | None = None
    max_rel: float | None = None
    mismatched: float = 0.0
    problem: str = ""
    note: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem


def packed_like(expected: Mapping[str, torch.Tensor], names: Collection[str]) -> dict[str, torch.Tensor]:
    """``expected``, with lists that an export holds as one packed tensor packed in the same way.

    Eager gives features as a list with an entry an image (``features.0``, ``features.1``, ..., each [places, width]);
    an export holds all of them as the list's only entry (`exporters.dynamo.packed`). ``names`` are the export's.
    """
    found = {}
    for name, value in expected.items():
        stem, _, index = name.rpartition(".")
        packed = stem and index.isdecimal() and f"{stem}.0" in names and f"{stem}.1" not in names
        if not packed or f"{stem}.1" not in expected:
            found[name] = value
        elif index == "0":
            entries = [expected[each] for each in expected if re.fullmatch(rf"{re.escape(stem)}\.\d+", each)]
            found[name] = torch.cat([entry.reshape(-1, entry.shape[-1]) for entry in entries])
    return found


def compare(
    expected: Mapping[str, torch.Tensor],
    actual: Mapping[str, torch.Tensor],
    exempt: Mapping[str, torch.Tensor] | None = None,
    weights: torch.dtype | None = None,
) -> tuple[TensorComparison, ...]:
    """Compare every output by name.

    Args:
        expected, actual: eager's and the runtime's outputs by path.
        exempt: boolean tensors by output, broadcast from the left onto its shape: positions whose values are undefined,
            required to be finite where eager's are and nothing more.
        weights: the widest dtype of the model's weights. An output of a wider one is held to its tolerance: what was
            computed in float32 and then made float64 is no more exact for that.
    """
    exempt = exempt or {}
    results = [
        _compare_tensor(name, value, actual[name], exempt.get(name), weights)
        if name in actual
        else _failed(name, value, "missing from the exported graph")
        for name, value in expected.items()
    ]
    extra = (name for name in actual if name not in expected)
    return (*results, *(_failed(name, actual[name], "not among eager's outputs") for name in extra))


def _compare_tensor(
    name: str,
    expected: torch.Tensor,
    actual: torch.Tensor,
    exempt: torch.Tensor | None,
    weights: torch.dtype | None,
) -> TensorComparison:
    if expected.shape != actual.shape:
        return _failed(name, expected, f"shape {tuple(actual.shape)} where eager gives {tuple(expected.shape)}")
    if expected.dtype != actual.dtype:
        return _failed(name, expected, f"dtype {_short(actual.dtype)} where eager gives {_short(expected.dtype)}")
    if expected.numel() == 0:
        return _result(name, expected)
    if expected.is_complex():
        expected, actual = torch.view_as_real(expected), torch.view_as_real(actual)
    counts = torch.ones(expected.shape, dtype=torch.bool)
    if exempt is not None:
        counts &= ~exempt.reshape(*exempt.shape, *[1] * (expected.dim() - exempt.dim())).expand(expected.shape)
    undefined = int((~counts).sum())
    note = f"{undefined} of {expected.numel()} positions are undefined" if undefined else ""
    if bool((expected.isfinite() & ~actual.isfinite()).any()):
        error = (actual.double() - expected.double())[expected.isfinite()].abs().max()
        return _failed(name, expected, "not finite where eager is", max_abs=float(error), note=note)
    return _compare_elements(name, expected, actual, counts, _tolerance(expected.dtype, weights), note)


def _tolerance(dtype: torch.dtype, weights: torch.dtype | None) -> Tolerance | None:
    """What is allowed of an output; None where it has to be equal."""
    own, theirs = TOLERANCES.get(dtype), TOLERANCES.get(weights) if weights is not None else None
    return theirs if own and theirs and weights and weights.itemsize < dtype.itemsize else own


def _compare_elements(
    name: str,
    expected: torch.Tensor,
    actual: torch.Tensor,
    counts: torch.Tensor,
    tolerance: Tolerance | None,
    note: str,
) -> TensorComparison:
    wanted, got = expected[counts].double(), actual[counts].double()
    if wanted.numel() == 0:
        return _result(name, expected, note=note)
    same = (wanted == got) | (wanted.isnan() & got.isnan())
    error = torch.where(same, 0.0, (got - wanted).abs())
    error = torch.where(error.isnan(), torch.inf, error)
    allowed = torch.zeros_like(wanted)
    if tolerance is not None:  # a value that is not finite allows no error at all
        allowed = torch.where(wanted.isfinite(), tolerance.atol + tolerance.rtol * wanted.abs(), 0.0)
    wrong = error > allowed
    relative = torch.where(same | (wanted == 0), 0.0, error / wanted.abs())
    share = float(wrong.double().mean())
    problem = f"{int(wrong.sum())} of {wrong.numel()} elements differ, by up to {float(error.max()):.3g}"
    return _result(
        name,
        expected,
        max_abs=float(error.max()),
        max_rel=float(relative.max()),
        mismatched=share,
        problem=problem if share else "",
        note=note,
    )


def _failed(
    name: str, expected: torch.Tensor, problem: str, *, max_abs: float | None = None, note: str = ""
) -> TensorComparison:
    return _result(name, expected, max_abs=max_abs, mismatched=1.0, problem=problem, note=note)


def _result(
    name: str,
    expected: torch.Tensor,
    *,
    max_abs: float | None = None,
    max_rel: float | None = None,
    mismatched: float = 0.0,
    problem: str = "",
    note: str = "",
) -> TensorComparison:
    return TensorComparison(
        name=name,
        shape=tuple(expected.shape),
        dtype=_short(expected.dtype),
        max_abs=max_abs,
        max_rel=max_rel,
        mismatched=mismatched,
        problem=problem,
        note=note,
    )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
