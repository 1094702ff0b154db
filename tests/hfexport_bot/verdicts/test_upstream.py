from __future__ import annotations

import pytest

from hfexport_bot.schema import STAGES, Backend, Outcome, OutcomeKind
from hfexport_bot.verdicts.upstream import candidates, known_issues, matches, read

STAGE_NAMES = {stage for stages in STAGES.values() for stage in stages}


def ids(found: object) -> list[str]:
    assert isinstance(found, tuple)
    return [issue.id for issue in found]


def test_entries_are_consistent() -> None:
    issues = known_issues()
    assert len({issue.id for issue in issues}) == len(issues)
    for issue in issues:
        assert issue.url in {
            f"https://github.com/{issue.repo}/issues/{issue.number}",
            f"https://github.com/{issue.repo}/pull/{issue.number}",
        }
        assert set(issue.stages) <= STAGE_NAMES


def test_a_message_is_matched_on_its_backend_stage_and_kind() -> None:
    message = "kernel 'aten::grid_sampler_2d.out' not found."
    missing = Outcome(kind=OutcomeKind.UNSUPPORTED, stage="load", message=message)
    assert ids(matches(Backend.EXECUTORCH, missing, known_issues())) == ["executorch-grid-sampler"]
    assert matches(Backend.ONNX, missing, known_issues()) == ()
    assert matches(Backend.EXECUTORCH, missing.model_copy(update={"stage": "trace"}), known_issues()) == ()
    other = missing.model_copy(update={"message": "kernel 'aten::erf.out' not found."})
    assert matches(Backend.EXECUTORCH, other, known_issues()) == ()


def test_a_branch_of_the_model_itself_matches_nothing() -> None:
    branch = Outcome(
        kind=OutcomeKind.ERROR,
        stage="trace",
        error_type="GuardOnDataDependentSymNode",
        message="Could not guard on data-dependent expression Eq(u0, 1)\nin forward: if x.sum() > 0:",
    )
    assert matches(Backend.DYNAMO, branch, known_issues()) == ()
    assert candidates(Backend.DYNAMO, branch, known_issues()) == ()


def test_wrong_numbers_only_have_candidates() -> None:
    wrong = Outcome(kind=OutcomeKind.PARITY, stage="parity", message="logits differ")
    assert matches(Backend.EXECUTORCH, wrong, known_issues()) == ()
    assert ids(candidates(Backend.EXECUTORCH, wrong, known_issues())) == ["xnnpack-gelu-tanh"]
    assert ids(candidates(Backend.ONNX, wrong, known_issues())) == ["onnx-masked-rows"]
    assert candidates(Backend.DYNAMO, wrong, known_issues()) == ()


@pytest.mark.parametrize("kind", [OutcomeKind.TIMEOUT, OutcomeKind.OOM, OutcomeKind.CRASH])
def test_timeouts_and_crashes_never_match(kind: OutcomeKind) -> None:
    for backend in Backend:
        for stage in STAGE_NAMES:
            outcome = Outcome(kind=kind, stage=stage, message="kernel 'aten::grid_sampler_2d.out' not found")
            assert matches(backend, outcome, known_issues()) == ()
            assert candidates(backend, outcome, known_issues()) == ()


ENTRY = """
- {id: x, repo: a/b, number: 1, url: u, title: t, state: open, backends: [onnx], stages: [run], advice: a, %s}
"""


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ("kinds: [timeout], signature: x", "timeout, oom and crash"),
        ("kinds: [error]", "only parity"),
        ("kinds: [error], signature: '('", "no regular expression"),
        ("kinds: [error], signature: x, extra: 1", "extra"),
    ],
)
def test_an_unspecific_or_broken_entry_is_refused(fields: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read(ENTRY % fields)
