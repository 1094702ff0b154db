from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hfexport_bot.schema import (
    STAGES,
    Backend,
    CaseId,
    CaseReport,
    Component,
    Location,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    VerdictKind,
)
from hfexport_bot.verdicts.entries import read_entries
from hfexport_bot.verdicts.upstream import UpstreamIssue, best_match, known_issues, stale

STAGE_NAMES = {stage for stages in STAGES.values() for stage in stages}
MESSAGES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("upstream_messages.yml").read_text(encoding="utf-8")
)
ISSUES = {issue.id: issue for issue in known_issues()}
NOW = {"torch": "2.13.0+cpu", "transformers": "5.24.0", "onnxscript": "0.7.2", "executorch": "1.5.1"}


def failure(name: str) -> tuple[Backend, Outcome]:
    """The recorded failure of an entry, where it happens."""
    issue, told = ISSUES[name], MESSAGES[name]
    place = told.get("location")
    outcome = Outcome(
        kind=told.get("kind", OutcomeKind.ERROR),
        stage=told.get("stage", issue.stages[0]),
        error_type=told.get("error_type", ""),
        message=told["message"],
        location=Location(**place) if place else None,
        components=(Component(name="model", operators=tuple(told.get("operators", ()))),),
    )
    return Backend(told.get("backend", issue.backends[0])), outcome


def matched(backend: Backend, outcome: Outcome, versions: dict[str, str] | None = None) -> str:
    issue = best_match(backend, outcome, NOW if versions is None else versions, known_issues())
    return issue.id if issue else ""


def error(message: str, stage: str = "trace", error_type: str = "RuntimeError") -> Outcome:
    return Outcome(kind=OutcomeKind.ERROR, stage=stage, error_type=error_type, message=message)


def test_entries_are_consistent() -> None:
    assert len(ISSUES) == len(known_issues())
    for issue in known_issues():
        assert issue.url in {
            f"https://github.com/{issue.repo}/issues/{issue.number}",
            f"https://github.com/{issue.repo}/pull/{issue.number}",
        }
        assert set(issue.stages) <= STAGE_NAMES


def test_every_entry_has_a_recorded_failure() -> None:
    assert MESSAGES.keys() == ISSUES.keys()


@pytest.mark.parametrize("name", list(MESSAGES))
def test_an_entry_is_the_one_for_its_recorded_failure(name: str) -> None:
    backend, outcome = failure(name)
    assert matched(backend, outcome, NOW | MESSAGES[name].get("versions", {})) == name


@pytest.mark.parametrize("name", list(MESSAGES))
def test_an_entry_is_for_no_other_kind_stage_or_backend(name: str) -> None:
    issue = ISSUES[name]
    backend, outcome = failure(name)
    for kind in set(OutcomeKind) - set(issue.kinds):
        assert matched(backend, outcome.model_copy(update={"kind": kind})) != name
    for stage in STAGE_NAMES - set(issue.stages):
        assert matched(backend, outcome.model_copy(update={"stage": stage})) != name
    for other in set(Backend) - set(issue.backends):
        assert matched(other, outcome) != name


#: What a fault of the model itself, or of its use, comes to.
FAULTS = {
    "branch": error(
        "Could not guard on data-dependent expression Eq(u0, 1) (unhinted: Eq(u0, 1)).  (Size-like symbols: none)\n"
        'File "models/modeling_tiny.py", line 31, in forward\n    if x.sum() > 0:',
        error_type="GuardOnDataDependentSymNode",
    ),
    "item": error("Could not extract specialized integer from data-dependent expression u0 (unhinted: u0)."),
    "loop": error(
        "Could not guard on data-dependent expression u0 < 0 (unhinted: u0 < 0).\n    for row in rows.tolist():",
        error_type="GuardOnDataDependentSymNode",
    ),
    "baked size": error("Constraints violated (batch)! Not all values of batch are valid", error_type="UserError"),
    "mutated constant": error("Constant c_lifted_tensor_0 is mutated in the forward method."),
    "attribute": error("'TinyConfig' object has no attribute 'hidden_sizes'", error_type="AttributeError"),
    "none": error("'NoneType' object has no attribute 'ndim'", stage="translate", error_type="AttributeError"),
    "shapes": error("The size of tensor a (8) must match the size of tensor b (9) at non-singleton dimension 1"),
    "key": error("'decoder.embed'", stage="lower", error_type="KeyError"),
    "memory": error("std::bad_alloc", stage="lower", error_type="MemoryError"),
    "no kernel": error("kernel 'tiny::op.out' not found.", stage="load"),
    "no translation": error(
        "No ONNX function found for <OpOverload(op='tiny.op', overload='default')>. "
        "Failure message: No decompositions registered for the real-valued input",
        stage="translate",
    ),
    "no implementation": error("NOT_IMPLEMENTED : Could not find an implementation for Erf(13)", stage="load"),
    "static size": error("Attempted to resize a static tensor to a new shape at dimension 0", stage="run"),
    "not core": error("Operator torch._ops.tiny.op.default is not Aten Canonical.", stage="lower"),
    "types": error("Type parameter (T) of Optype (Add) bound to different types", stage="load"),
    "numbers": Outcome(kind=OutcomeKind.PARITY, stage="parity", message="logits: 12 of 96 elements differ"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_model_itself_matches_nothing(name: str) -> None:
    for backend in Backend:
        assert matched(backend, FAULTS[name]) == ""


def test_wrong_numbers_are_told_by_the_operators_of_the_graph() -> None:
    backend, outcome = failure("onnx-masked-rows")
    assert matched(backend, outcome) == "onnx-masked-rows"
    unpadded = outcome.model_copy(update={"message": "logits: 12 of 96 elements differ"})
    assert matched(backend, unpadded) == ""
    assert matched(backend, unpadded.model_copy(update={"fed": ("input_ids", "attention_mask")})) == ""
    assert matched(backend, unpadded.model_copy(update={"fed": ("input_ids", "span_mask")})) == "onnx-masked-rows"
    other = (Component(name="model", operators=("Add", "MatMul")),)
    assert matched(backend, outcome.model_copy(update={"components": other})) == ""


def test_an_issue_is_offered_for_the_versions_that_it_affects() -> None:
    backend, outcome = failure("onnx-optimizer-output-lost")
    assert matched(backend, outcome, {"onnxscript": "0.5.6"}) == "onnx-optimizer-output-lost"
    assert matched(backend, outcome, {"onnxscript": "0.7.2"}) == ""
    assert matched(backend, outcome, {}) == "onnx-optimizer-output-lost"
    assert matched(backend, outcome, {"onnxscript": "::add-mask::"}) == "onnx-optimizer-output-lost"


ENTRY = """
- {id: %s, repo: a/b, number: 1, url: u, title: t, advice: a, %s}
"""
MISSING = error("kernel 'aten::erf.out' not found", stage="run")


@pytest.mark.parametrize(
    ("first", "second", "best"),
    [
        ("texts: [kernel], state: open", "texts: [\"kernel '[\\\\w:.]+' not\"], state: open", "second"),
        ("texts: [kernel], state: open", "texts: [found], state: open, versions: {torch: '>2'}", "first"),
        ("texts: [kernel], state: open", "texts: [kernel], state: open, versions: {torch: '>2'}", "second"),
        ("texts: [kernel], state: open, stages: [load, run]", "texts: [kernel], state: open", "second"),
        ("texts: [kernel], state: open, backends: [onnx, dynamo]", "texts: [kernel], state: open", "second"),
        ("texts: [kernel], state: closed", "texts: [kernel], state: open", "second"),
        ("texts: [kernel, missing], state: open", "texts: [found], state: open", "second"),
        ("texts: [kernel], state: open", "texts: [kernel], state: open", "first"),
    ],
)
def test_the_most_specific_one_is_offered(first: str, second: str, best: str) -> None:
    defaults = {"stages": "[run]", "backends": "[onnx]"}
    texts = []
    for name, fields in (("first", first), ("second", second)):
        missing = [f"{key}: {value}" for key, value in defaults.items() if key not in fields]
        texts.append(ENTRY % (name, ", ".join([fields, *missing])))
    issues = read_entries("".join(texts), UpstreamIssue)
    for order in (issues, issues[::-1]):
        found = best_match(Backend.ONNX, MISSING, NOW, order)
        assert found is not None
        assert found.id == best


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ("kinds: [timeout], texts: [x]", "timeout, oom and crash"),
        ("kinds: [parity]", "give texts or operators"),
        ("kinds: [parity], texts: [x], inputs: [x]", "inputs only narrow what operators tell"),
        ("kinds: [error], operators: [x]", "only wrong numbers"),
        ("texts: ['(']", "no regular expression"),
        ("texts: [x], versions: {torch: new}", "no range of versions"),
        ("texts: [x], advice: ''", "name a workaround"),
        ("texts: [x], extra: 1", "extra"),
    ],
)
def test_an_unspecific_or_broken_entry_is_refused(fields: str, complaint: str) -> None:
    entry = "- {id: x, repo: a/b, number: 1, url: u, title: t, state: open, backends: [onnx], stages: [run], %s}"
    with pytest.raises(ValueError, match=complaint):
        read_entries(entry % (fields if "advice" in fields else f"{fields}, advice: a"), UpstreamIssue)


def report(*sides: tuple[str, Outcome | None, Outcome | None], backend: Backend = Backend.ONNX) -> Report:
    cases = tuple(
        CaseReport(
            id=CaseId(model="tiny", class_name=name, backend=backend),
            verdict=VerdictKind.KNOWN,
            outcome=OutcomeKind.ERROR,
            base=base,
            head=head,
        )
        for name, base, head in sides
    )
    return Report(command="run", head=Revision(name="topic"), cases=cases, versions=NOW)


def issue(name: str, text: str, **more: Any) -> UpstreamIssue:
    """An entry that is told by one text."""
    place = {"backends": ("onnx",), "stages": ("run",), "state": "open", "advice": "a"}
    return UpstreamIssue.model_validate(
        {"id": name, "repo": "a/b", "number": 1, "url": "u", "title": "t", "texts": (text,), **place, **more}
    )


def test_entries_that_nothing_is_an_instance_of_are_stale() -> None:
    on_base, on_head = error("first fault", stage="run"), error("second fault", stage="run")
    passing = Outcome(kind=OutcomeKind.PASS, workarounds={"onnx/node_fixes/mine": 3})
    entries = (
        issue("base", "first fault"),
        issue("head", "second fault"),
        issue("gone", "third fault"),
        issue("elsewhere", "first fault", backends=("dynamo",)),
        issue("of old", "first fault", versions={"onnxscript": "<0.5"}),
        issue("worked around", "fourth fault", workaround="onnx/node_fixes/mine"),
        issue("no longer worked around", "fifth fault", workaround="onnx/node_fixes/other"),
    )
    reports = [report(("A", on_base, None)), report(("B", passing, on_head))]
    found = [entry.id for entry in stale(reports, entries)]
    assert found == ["gone", "of old", "no longer worked around"], "none of a backend that was not run"
    assert stale([], entries) == ()
