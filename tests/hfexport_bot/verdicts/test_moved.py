from __future__ import annotations

import math
from typing import Any

import pytest

from hfexport_bot.schema import Axis, Component, Outcome, OutcomeKind, TensorParity, TensorType
from hfexport_bot.settings import DriftSettings
from hfexport_bot.verdicts.moved import drifts, interface_changes

OUTPUT = TensorParity(name="logits", shape=(2, 8, 99), dtype="float32")
AXES = (
    Axis(input="input_ids", axis=0, dynamic=True, lower=1, upper=64),
    Axis(input="input_ids", axis=1, dynamic=True, lower=1, upper=64),
)
MODEL: dict[str, Any] = {
    "name": "model",
    "inputs": ("input_ids", "attention_mask"),
    "outputs": (OUTPUT,),
    "axes": AXES,
    "input_dtypes": ("int64", "int64"),
    "returns": (TensorType(name="logits", dtype="float32", rank=3),),
    "mutated": ("cache",),
    "operators": ("Add", "MatMul"),
    "computed": ("float32",),
    "delegated_to": ("XnnpackBackend",),
    "opset": 20,
    "max_abs": 2e-6,
    "nodes": 100,
    "delegates": 20,
    "size_bytes": 1_000_000,
}


def passing(*components: dict[str, Any]) -> Outcome:
    made = tuple(Component.model_validate(each) for each in components)
    return Outcome(kind=OutcomeKind.PASS, components=made)


def returning(**changes: Any) -> tuple[TensorType, ...]:
    return (TensorType(name="logits", dtype="float32", rank=3).model_copy(update=changes),)


BASE = passing(MODEL)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ()),
        ({"inputs": ("input_ids",)}, ("input gone: attention_mask",)),
        ({"inputs": ("input_ids", "attention_mask", "x", "y")}, ("input new: x, y",)),
        (
            {"inputs": ("attention_mask", "input_ids")},
            ("inputs in another order: attention_mask, input_ids",),
        ),
        ({"input_dtypes": ("int64", "bool")}, ("input attention_mask: int64 → bool",)),
        ({"returns": returning(name="scores")}, ("output gone: logits", "output new: scores")),
        ({"returns": returning(dtype="float16")}, ("output logits: float32 → float16",)),
        ({"returns": returning(rank=2)}, ("output logits: rank 3 → 2",)),
        ({"returns": (*returning(), *returning(name="cache.0"))}, ("output new: cache.0",)),
        # Where the program does not say, the tensors that were compared do.
        ({"returns": ()}, ()),
        ({"returns": returning(dtype="", rank=None)}, ()),
        ({"returns": (), "outputs": (OUTPUT.model_copy(update={"shape": (2, 99)}),)}, ("output logits: rank 3 → 2",)),
        ({"outputs": (OUTPUT.model_copy(update={"shape": (5, 9, 99)}),)}, ()),
        ({"mutated": ()}, ("writes into: no more cache",)),
        ({"mutated": ("cache", "count")}, ("writes into: now count",)),
        ({"operators": ("Add", "Gemm")}, ("operators: no more MatMul; now Gemm",)),
        ({"operators": ()}, ()),
        ({"operators_left_out": 3}, ("operators beyond those listed: 0 → 3",)),
        (
            {"operators": ("Add", "MatMul", *(f"Op{number}" for number in range(10)))},
            ("operators: now Op0, Op1, Op2, Op3, Op4, Op5, Op6, Op7 and 2 more",),
        ),
        ({"computed": ("float32", "float64")}, ("computes in: now float64",)),
        ({"computed": ()}, ()),
        ({"unread": ("attention_mask",)}, ("inputs without use: now attention_mask",)),
        ({"delegated_to": ()}, ("delegated to: no more XnnpackBackend",)),
        (
            {"axes": (AXES[0], AXES[1].model_copy(update={"dynamic": False}))},
            ("input input_ids, axis 1: dynamic → static",),
        ),
        ({"axes": AXES[:1]}, ("input input_ids: rank 2 → 1",)),
        ({"axes": (AXES[0], AXES[1].model_copy(update={"upper": 128, "symbol": "s9"}))}, ()),
        # Sizes that are refused and were not
        (
            {"axes": (AXES[0], AXES[1].model_copy(update={"upper": 8}))},
            ("input input_ids, axis 1: at most 64 → at most 8",),
        ),
        (
            {"axes": (AXES[0], AXES[1].model_copy(update={"lower": 9}))},
            ("input input_ids, axis 1: at most 64 → 9 or more, at most 64",),
        ),
        ({"axes": (AXES[0].model_copy(update={"lower": 2}), AXES[1].model_copy(update={"upper": None}))}, ()),
        ({"opset": 21}, ("opset 20 → 21",)),
        ({"opset": None}, ()),
    ],
)
def test_interface(changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert interface_changes(BASE, passing(MODEL | changes)) == expected


def test_a_bound_where_there_was_none() -> None:
    free, bound = (tuple(each.model_copy(update={"upper": upper}) for each in AXES) for upper in (None, 8))
    assert interface_changes(passing(MODEL | {"axes": free}), passing(MODEL | {"axes": bound})) == (
        "input input_ids, axis 0: any size → at most 8",
        "input input_ids, axis 1: any size → at most 8",
    )
    assert interface_changes(passing(MODEL | {"axes": bound}), passing(MODEL | {"axes": free})) == ()


def test_components_come_and_go_and_are_named() -> None:
    decode = MODEL | {"name": "decode"}
    prefill = MODEL | {"name": "prefill"}
    assert interface_changes(passing(prefill, decode), passing(prefill | {"opset": 21})) == (
        "component decode is gone",
        "prefill: opset 20 → 21",
    )
    assert interface_changes(BASE, passing(MODEL, decode)) == ("component decode is new",)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ()),
        ({"max_abs": 1.9e-5}, ()),
        ({"max_abs": 2.1e-5}, ("max abs error 2e-06 → 2.1e-05",)),
        ({"max_abs": 0.0}, ()),
        ({"max_abs": math.nan}, ("max abs error 2e-06 → nan",)),
        ({"max_abs": None}, ()),
        ({"nodes": 110}, ()),
        ({"nodes": 111}, ("100 → 111 nodes",)),
        ({"nodes": 50}, ("100 → 50 nodes",)),
        ({"delegates": 17}, ("20 → 17 delegates",)),
        ({"delegates": None}, ()),
        ({"size_bytes": 1_200_000}, ("1000000 → 1200000 bytes",)),
        ({"opset": 21}, ()),
    ],
)
def test_drift(changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert drifts(BASE, passing(MODEL | changes)) == expected


def test_the_settings_say_what_is_drift() -> None:
    moved = passing(MODEL | {"max_abs": 2.1e-5, "nodes": 111, "delegates": 17, "size_bytes": 1_200_000})
    wide = DriftSettings.model_validate({"error-factor": 20, "nodes": 0.2, "delegates": 0.2, "bytes": 0.2})
    assert drifts(BASE, moved, wide) == ()
    strict = DriftSettings.model_validate({"error-factor": 1, "error-floor": 0, "nodes": 0})
    barely = passing(MODEL | {"max_abs": 2.01e-6, "nodes": 101})
    assert drifts(BASE, barely) == ()
    assert drifts(BASE, barely, strict) == ("max abs error 2e-06 → 2e-06", "100 → 101 nodes")


def test_noise_near_zero_is_no_drift() -> None:
    assert drifts(passing(MODEL | {"max_abs": 0.0}), passing(MODEL | {"max_abs": 9e-6})) == ()
    assert drifts(passing(MODEL | {"max_abs": 0.0}), passing(MODEL | {"max_abs": 2e-5})) != ()


def test_a_first_delegate_or_the_loss_of_all_is_told() -> None:
    assert drifts(passing(MODEL | {"delegates": 0}), passing(MODEL | {"delegates": 1})) == ("0 → 1 delegates",)
    assert drifts(BASE, passing(MODEL | {"delegates": 0})) == ("20 → 0 delegates",)
