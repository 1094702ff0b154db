from __future__ import annotations

import math

import pytest
import torch

from exporters.parity import compare, packed_like


def _only(expected: torch.Tensor, actual: torch.Tensor, exempt: torch.Tensor | None = None):  # type: ignore[no-untyped-def]
    (result,) = compare({"y": expected}, {"y": actual}, None if exempt is None else {"y": exempt})
    return result


def test_equal_outputs_pass_with_error_zero() -> None:
    result = _only(torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3))
    assert result.passed
    assert (result.max_abs, result.max_rel, result.mismatched, result.shape) == (0.0, 0.0, 0.0, (2, 3))


@pytest.mark.parametrize(("error", "passed"), [(0.9e-4, True), (1.1e-4, False)])
def test_the_absolute_tolerance_decides_near_zero(error: float, passed: bool) -> None:
    assert _only(torch.zeros(4), torch.full((4,), error)).passed is passed


@pytest.mark.parametrize(("error", "passed"), [(0.09, True), (0.11, False)])
def test_the_relative_tolerance_decides_for_large_values(error: float, passed: bool) -> None:
    assert _only(torch.full((4,), 1000.0), torch.full((4,), 1000.0 + error)).passed is passed


def test_one_element_in_a_million_is_not_forgiven() -> None:
    actual = torch.zeros(1000, 1000)
    actual[7, 7] = 0.01
    result = _only(torch.zeros(1000, 1000), actual)
    assert not result.passed
    assert result.problem == "1 of 1000000 elements differ, by up to 0.01"
    assert result.mismatched == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("expected", "actual", "problem"),
    [
        (torch.ones(2, 3), torch.ones(3, 2), "shape (3, 2) where eager gives (2, 3)"),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "dtype float64 where eager gives float32"),
    ],
)
def test_what_cannot_be_compared_fails(expected: torch.Tensor, actual: torch.Tensor, problem: str) -> None:
    result = _only(expected, actual)
    assert (result.passed, result.problem, result.mismatched, result.max_abs) == (False, problem, 1.0, None)


def test_non_finite_values_of_eager_must_be_met() -> None:
    expected = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    same = _only(expected, expected.clone())
    assert (same.passed, same.max_abs, same.max_rel) == (True, 0.0, 0.0)
    assert _only(expected, torch.tensor([0.0, math.inf, -math.inf, 1.0])).max_abs == math.inf
    assert not _only(expected, torch.tensor([0.0, math.inf, -math.inf, 1.0])).passed
    assert not _only(expected, torch.tensor([math.nan, -math.inf, -math.inf, 1.0])).passed


def test_integers_and_booleans_must_be_equal() -> None:
    assert _only(torch.tensor([1, 2]), torch.tensor([1, 2])).passed
    result = _only(torch.tensor([1, 2]), torch.tensor([1, 5]))
    assert (result.passed, result.max_abs, result.mismatched) == (False, 3.0, 0.5)
    assert not _only(torch.tensor([True]), torch.tensor([False])).passed


def test_what_is_made_wider_than_the_weights_is_held_to_their_tolerance() -> None:
    expected, actual = {"y": torch.ones(4).double()}, {"y": torch.ones(4).double() + 1e-6}
    for weights, passed in ((None, False), (torch.float64, False), (torch.float32, True), (torch.int8, False)):
        (result,) = compare(expected, actual, None, weights)
        assert result.passed is passed
    one, none = torch.ones(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    (result,) = compare({"y": one}, {"y": none}, None, torch.half)
    assert not result.passed


def test_half_precision_has_its_own_tolerance() -> None:
    one = torch.ones(1, dtype=torch.bfloat16)
    assert _only(one, one + 2**-5).passed
    assert not _only(one, one + 0.5).passed


def test_complex_outputs_are_compared_by_part() -> None:
    expected = torch.tensor([1 + 1j])
    assert _only(expected, expected.clone()).passed
    assert not _only(expected, torch.tensor([1 + 2j])).passed


def test_undefined_positions_do_not_count_but_must_be_finite() -> None:
    expected, actual = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)
    exempt = torch.zeros(2, 3, dtype=torch.bool)
    exempt[0, 2] = True
    actual[0, 2] = 9.0
    result = _only(expected, actual, exempt)
    assert (result.passed, result.note) == (True, "4 of 24 positions are undefined")
    actual[0, 2] = math.nan
    assert _only(expected, actual, exempt).problem == "not finite where eager is"
    actual[0, 2] = 0.0
    actual[0, 1] = 9.0
    assert not _only(expected, actual, exempt).passed


def test_an_output_that_is_all_undefined_passes_without_an_error() -> None:
    result = _only(torch.zeros(2), torch.ones(2), torch.ones(2, dtype=torch.bool))
    assert (result.passed, result.max_abs) == (True, None)


def test_missing_and_extra_outputs_fail() -> None:
    results = {r.name: r.problem for r in compare({"a": torch.ones(1)}, {"b": torch.ones(1)})}
    assert results == {"a": "missing from the exported graph", "b": "not among eager's outputs"}


def test_empty_outputs_are_equal() -> None:
    assert _only(torch.ones(0, 3), torch.ones(0, 3)).passed


def test_a_list_that_the_export_holds_packed_is_packed_to_compare() -> None:
    expected = {"f.0": torch.ones(2, 3), "f.1": torch.zeros(1, 3), "g.0": torch.ones(1), "g.1": torch.ones(1)}
    packed = packed_like(expected, ["f.0", "g.0", "g.1"])
    assert {name: tuple(value.shape) for name, value in packed.items()} == {"f.0": (3, 3), "g.0": (1,), "g.1": (1,)}
    assert torch.equal(packed["f.0"], torch.cat([torch.ones(2, 3), torch.zeros(1, 3)]))
    assert packed_like(expected, expected) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_output_that_is_no_longer_finite_fails_with_an_error_that_says_so(value: float) -> None:
    result = _only(torch.tensor([1.0, 2.0, math.inf]), torch.tensor([1.5, value, math.inf]))
    assert (result.passed, result.problem, result.mismatched) == (False, "not finite where eager is", 1.0)
    assert str(result.max_abs) == str(value)
