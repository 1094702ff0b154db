"""What crosses processes: the path that a case id is."""

from __future__ import annotations

import json
import math

import jsonschema
import pytest
from pydantic import ValidationError

from hfexport_bot.schema import (
    Backend,
    CaseFinished,
    CaseId,
    CaseReport,
    Component,
    EagerChange,
    Engine,
    Outcome,
    OutcomeKind,
    OutputChange,
    ProbeResult,
    Report,
    Shapes,
    Task,
    TensorParity,
    Variant,
    largest,
)

PLAIN = CaseId(model="llama", class_name="LlamaModel", backend=Backend.ONNX)


@pytest.mark.parametrize(
    ("case", "path"),
    [
        (PLAIN, "llama/LlamaModel/onnx/dynamic/forward"),
        (
            PLAIN.model_copy(update={"model": "pkg/models/modeling_x"}),
            "pkg/models/modeling_x/LlamaModel/onnx/dynamic/forward",
        ),
        (PLAIN.model_copy(update={"engine": Engine.REPO}), "llama/LlamaModel/onnx/dynamic/forward@repo"),
        (
            CaseId(
                model="t5",
                class_name="T5Model",
                backend=Backend.DYNAMO,
                shapes=Shapes.STATIC,
                task=Task.GENERATE,
                variant=Variant.EAGER_ATTENTION,
                engine=Engine.REPO,
            ),
            "t5/T5Model/dynamo/static/generate+eager_attention@repo",
        ),
    ],
)
def test_a_case_id_is_a_path_and_comes_back_from_it(case: CaseId, path: str) -> None:
    assert str(case) == path
    assert CaseId.parse(path) == case
    event = CaseFinished(id=case, outcome=Outcome(kind=OutcomeKind.PASS))
    assert CaseFinished.model_validate_json(event.model_dump_json()).id == case


@pytest.mark.parametrize(
    "path",
    [
        "llama/LlamaModel/onnx/dynamic",
        "llama/LlamaModel/onnx/dynamic/forward+",
        "llama/LlamaModel/onnx/dynamic/forward@theirs",
        "llama/LlamaModel/onnx/dynamic/forward+flash",
        "llama/LlamaModel/onnx/dynamic/forward@repo+cache",
        "llama/Llama Model/onnx/dynamic/forward",
        "../x/LlamaModel/onnx/dynamic/for ward",
        "",
    ],
)
def test_what_is_no_case_id_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"case id|valid Engine|valid Variant"):
        CaseId.parse(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", "a\n::add-mask::x"), ("model", "/etc"), ("model", ""), ("class_name", "X/y"), ("class_name", "<img>")],
)
def test_a_case_id_in_parts_is_no_way_around_its_path(field: str, value: str) -> None:
    parts = {"model": "llama", "class_name": "LlamaModel", "backend": "onnx", field: value}
    with pytest.raises(ValidationError, match=f"{field}\n.*should match pattern"):
        CaseId.model_validate_json(json.dumps(parts))


@pytest.mark.parametrize("error", [math.nan, math.inf, 3e-7])
def test_errors_that_are_no_numbers_come_back_from_json(error: float) -> None:
    probe = ProbeResult(name="batch_3", status="parity", max_abs=error)
    output = TensorParity(name="y", shape=(2,), dtype="float32", max_abs=error, max_rel=error)
    component = Component(name="model", max_abs=error, outputs=(output,), probes=(probe,))
    eager = EagerChange(max_abs=error, moved=(OutputChange(name="y", max_abs=error),))
    case = CaseReport(
        id=PLAIN, verdict="new", outcome="parity", head=Outcome(kind="parity", components=(component,), eager=eager)
    )
    report = Report(command="run", head={"name": "topic"}, cases=(case,))
    text = report.model_dump_json()
    jsonschema.validate(json.loads(text), Report.model_json_schema(mode="serialization"))
    found = Report.model_validate_json(text).cases[0].head
    assert found is not None
    assert found.eager is not None
    (after,) = found.components
    values = (after.max_abs, after.outputs[0].max_abs, after.outputs[0].max_rel, after.probes[0].max_abs)
    assert all(str(each) == str(error) for each in (*values, found.eager.max_abs, found.eager.moved[0].max_abs))


@pytest.mark.parametrize("share", ["NaN", "Infinity", "-0.1", "1.5", '"NaN"'])
def test_a_share_is_one(share: str) -> None:
    with pytest.raises(ValidationError, match="share"):
        OutputChange.model_validate_json(f'{{"name": "y", "share": {share}}}')


def test_no_number_is_larger_than_a_nan() -> None:
    assert str(largest([1.0, math.nan, math.inf, None])) == "nan"
    assert (largest([1.0, math.inf]), largest([None, 0.0]), largest([None])) == (math.inf, 0.0, None)


@pytest.mark.parametrize("seconds", ["Infinity", "NaN", "-1", "1e999", '"NaN"', '"Infinity"'])
def test_a_duration_is_one(seconds: str) -> None:
    with pytest.raises(ValidationError, match="seconds"):
        Outcome.model_validate_json(f'{{"kind": "pass", "seconds": {seconds}}}')
    with pytest.raises(ValidationError, match="stage_seconds"):
        Outcome.model_validate_json(f'{{"kind": "pass", "stage_seconds": {{"trace": {seconds}}}}}')
