from __future__ import annotations

import re
from pathlib import Path

import pytest

from hfexport_bot.schema import STAGES, Blame, CaseId, CaseReport, Location, Outcome, OutcomeKind, VerdictKind
from hfexport_bot.verdicts.advice import Advice, advice_on, known_advice
from hfexport_bot.verdicts.entries import read_entries

DOCUMENT = Path(__file__).parents[3] / "docs" / "extending.md"
HERE = Blame(location=Location(file="zoo/modeling_a.py", line=7), source=("x = 1",))
ELSEWHERE = Blame(location=Location(file="transformers/masking_utils.py", line=900))

#: Failures in the words of torch 2.13 and of our exporters, and what is to be done about each.
FAILURES = {
    "branch": (
        "trace",
        "branch-on-a-value",
        "GuardOnDataDependentSymNode: Could not guard on data-dependent expression",
    ),
    "item": (
        "trace",
        "branch-on-a-value",
        "Could not guard on data-dependent expression zuf0 > 1.0 (unhinted: zuf0 > 1.0)",
    ),
    "float": ("trace", "branch-on-a-value", "float() argument must be a string or a real number, not 'SymBool'"),
    "size": (
        "trace",
        "size-from-a-value",
        "GuardOnDataDependentSymNode: Could not extract specialized integer from data-dependent expression u0",
    ),
    "numpy": ("trace", "numpy-in-forward", ".numpy() is not supported for tensor subclasses."),
    "branch on a length": (
        "run",
        "one-size-only",
        "probe length_11: axis 1 of input_ids is 11, at most 8 was exported",
    ),
    "fixed": ("run", "one-size-only", "probe length_11: axis 1 of input_ids is 11 and was exported as 8, fixed"),
    "half a length": ("run", "one-size-only", "Guard failed: math.trunc(attention_mask.size()[1] / 2) == 4"),
    # what may be anybody's
    "attribute": ("trace", "", "'TinyConfig' object has no attribute 'hidden_sizes'"),
    "translation": ("translate", "", "No ONNX function found for <OpOverload(op='tiny.op', overload='default')>."),
    "lowering": ("lower", "", "Could not guard on data-dependent expression u0 < 0"),
    "kernel": ("run", "", "NOT_IMPLEMENTED : Could not find an implementation for Erf(13)"),
}


def failed(stage: str, message: str, blame: Blame | None = HERE, kind: OutcomeKind = OutcomeKind.ERROR) -> CaseReport:
    error, _, rest = message.partition(": ") if message.startswith("GuardOn") else ("", "", message)
    outcome = Outcome(kind=kind, stage=stage, error_type=error, message=rest)
    case_id = CaseId.parse("zoo/modeling_a/Tagger/dynamo/dynamic/forward")
    return CaseReport(id=case_id, verdict=VerdictKind.REGRESSION, outcome=kind, head=outcome, blame=blame)


def given(case: CaseReport) -> str:
    found = advice_on(case)
    return found.id if found else ""


def test_entries_are_consistent_and_each_is_a_row_of_the_document() -> None:
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len({each.id for each in known_advice()}) == len(known_advice())
    for each in known_advice():
        assert set(each.stages) <= {stage for stages in STAGES.values() for stage in stages}
        assert [row for row in rows if row.startswith(f"| {each.row}")], each.row


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_gets_the_advice_that_fits(name: str) -> None:
    stage, wanted, message = FAILURES[name]
    assert given(failed(stage, message)) == wanted
    assert given(failed(stage, message, kind=OutcomeKind.TIMEOUT)) == ""


def test_random_draws_in_eager() -> None:
    drawn = failed("eager", "eager draws random numbers", None, OutcomeKind.NONDETERMINISTIC)
    assert given(drawn) == "random-draws"
    assert given(drawn.model_copy(update={"blame": HERE})) == "random-draws"


def test_a_line_of_somebody_elses_code_or_none_is_not_the_models_own() -> None:
    _, _, branch = FAILURES["branch"]
    assert given(failed("trace", branch, ELSEWHERE)) == ""
    assert given(failed("trace", branch, None)) == ""
    _, _, size = FAILURES["half a length"]
    assert given(failed("run", size, None)) == "one-size-only"  # it never names a line


def test_an_expression_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is no regular expression"):
        read_entries("- {id: x, row: y, stages: [trace], texts: ['('], advice: z}", Advice)


@pytest.mark.export
def test_torch_still_says_what_the_entries_are_recognised_by() -> None:
    import torch

    class Model(torch.nn.Module):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            match self.kind:
                case "branch-on-a-value":
                    return x / 2 if x.max() > 1 else x
                case "float":
                    return x + float(x.sum().item() > 1)
                case "size-from-a-value":
                    return x[: int(x.sum().item())]
                case _:
                    return x + torch.from_numpy(x.numpy())

    for kind, wanted in (
        ("branch-on-a-value", "branch-on-a-value"),
        ("float", "branch-on-a-value"),
        ("size-from-a-value", "size-from-a-value"),
        ("numpy", "numpy-in-forward"),
    ):
        with pytest.raises(Exception, match=re.compile(".")) as caught:
            torch.export.export(Model(kind).eval(), (torch.ones(4, 3),))
        case = failed("trace", str(caught.value))
        outcome = case.head.model_copy(update={"error_type": type(caught.value).__name__}) if case.head else None
        assert given(case.model_copy(update={"head": outcome})) == wanted, caught.value
