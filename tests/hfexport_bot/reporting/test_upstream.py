from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from hfexport_bot.changes.targets import EVERY_MODEL
from hfexport_bot.reporting.upstream import TITLE_CHARS, issue_text, render_stale, what_to_do
from hfexport_bot.schema import (
    Backend,
    Blame,
    CaseId,
    CaseReport,
    Engine,
    Location,
    Outcome,
    OutcomeKind,
    Report,
    Rerun,
    Revision,
    Sample,
    Shard,
)
from hfexport_bot.verdicts.upstream import known_issues


def inside(markdown: str) -> str:
    """What stands in the only fenced block of a collapsed block: what a person copies."""
    tokens = MarkdownIt("commonmark").parse(markdown)
    assert [token.type for token in tokens] == ["html_block", "fence", "html_block"]
    assert tokens[0].content.startswith("<details><summary>")
    assert tokens[2].content.strip() == "</details>"
    return tokens[1].content


def broken(report: Report, **changes: object) -> CaseReport:
    """The first case of the report, which fails in the trace, with some of its outcome changed."""
    case = report.cases[0]
    assert case.head is not None
    return case.model_copy(update={"head": case.head.model_copy(update=changes)})


def test_an_issue_to_file_has_title_error_command_and_versions(run_report: Report) -> None:
    assert inside(issue_text(run_report.cases[0], run_report)) == (
        "Title: [torch.export] Branch: GuardOnDataDependentSymNode: Could not guard on data-dependent expression "
        "Eq(u0, 1)\n"
        "\n"
        "Exporting with torch.export fails in stage `trace`.\n"
        "\n"
        "```text\nCould not guard on data-dependent expression Eq(u0, 1)\n\nif x.sum() > 0:\n```\n"
        "\n"
        "To reproduce:\n"
        "\n"
        "```text\nhfexport-bot check --backend dynamo --engine own models/modeling_tiny.py:Branch\n```\n"
        "\n"
        "(with the code of the class, or what is left of it that still fails)\n"
        "\n"
        "Versions: `torch 2.13.0`\n"
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            OutcomeKind.PARITY,
            "Exporting with torch.export works, but the program gives other numbers than eager PyTorch.",
        ),
        (OutcomeKind.UNSUPPORTED, "Exporting with torch.export works, but the runtime does not take the program."),
    ],
)
def test_it_says_what_is_wrong(run_report: Report, kind: OutcomeKind, said: str) -> None:
    assert said in inside(issue_text(broken(run_report, kind=kind), run_report))


def test_a_program_that_fails_at_other_sizes_is_told_as_that(run_report: Report) -> None:
    message = "probe length_11: eager takes it, but: RuntimeError: Attempted to resize a static tensor"
    case = broken(run_report, stage="run", message=message, error_type="")
    text = inside(issue_text(case, run_report)).splitlines()
    assert text[0] == "Title: [torch.export] Branch: RuntimeError: Attempted to resize a static tensor"
    assert text[2] == "Exporting with torch.export works, but the program fails in stage `run`."


def test_an_issue_says_whose_exporters_they_are_where_they_are_not_ours(run_report: Report) -> None:
    case = run_report.cases[0]
    theirs = case.model_copy(update={"id": case.id.model_copy(update={"engine": Engine.REPO})})
    text = inside(issue_text(theirs, run_report))
    assert "Exporting with torch.export by `transformers.exporters` fails in stage `trace`.\n" in text


def test_the_models_own_fault_is_to_be_mended_and_not_filed(run_report: Report) -> None:
    line = Blame(location=Location(file="models/modeling_tiny.py", line=31), source=("if x.sum() > 0:",))
    case = run_report.cases[0]
    assert what_to_do(case, {}) == ""
    assert issue_text(case, run_report)  # on no line of the repository
    own = case.model_copy(update={"blame": line})
    assert "torch.where" in what_to_do(own, {})
    assert issue_text(own, run_report) == ""
    known = broken(run_report, message="argument 'is_causal' must be bool, not SymBool")
    assert what_to_do(known.model_copy(update={"blame": line}), {}) == "", "the issue is more specific"


def test_a_failing_workaround_of_the_repository_is_to_be_looked_at(run_report: Report) -> None:
    line = Blame(location=Location(file="workarounds.py", line=11), source=("return x / 3",), workaround=True)
    case = broken(run_report, kind=OutcomeKind.PARITY, stage="parity", message="logits differ")
    case = case.model_copy(update={"blame": line})
    assert "workaround of this repository" in what_to_do(case, {})
    assert issue_text(case, run_report) == ""


def test_an_issue_about_a_line_of_the_change_comes_with_a_condition(run_report: Report) -> None:
    line = Blame(location=Location(file="models/modeling_tiny.py", line=31), source=("x = new(x)",), changed=True)
    case = broken(run_report, stage="translate", message="No ONNX function found", error_type="DispatchError")
    for blame, said in ((line, "if the code of this change is right"), (None, "no upstream issue is known")):
        assert said in issue_text(case.model_copy(update={"blame": blame}), run_report)


def test_nothing_is_to_be_filed_where_no_exporter_is_at_fault(run_report: Report) -> None:
    for kind in set(OutcomeKind) - {OutcomeKind.ERROR, OutcomeKind.UNSUPPORTED, OutcomeKind.PARITY}:
        assert issue_text(broken(run_report, kind=kind), run_report) == ""
    for stage in ("source", "eager"):
        assert issue_text(broken(run_report, stage=stage), run_report) == ""
    assert issue_text(run_report.cases[0].model_copy(update={"head": None, "base": None}), run_report) == ""


NASTY = (
    "@octocat </details> [a](https://evil.example) #2\n```\n````text\n# heading\n<img src=x>\n~~~\n\x1b[31m\u202e" * 30
)


def test_hostile_text_is_text_in_the_report_and_where_it_is_pasted(run_report: Report) -> None:
    case = broken(run_report, message=NASTY, error_type=NASTY[:300], stage=NASTY[:300], kind=OutcomeKind.ERROR)
    versions = {f"torch{NASTY}": NASTY}
    pasted = inside(issue_text(case, run_report.model_copy(update={"versions": versions})))
    assert len(pasted) < 5_000
    title, _, body = pasted.partition("\n")
    assert len(title) <= TITLE_CHARS + len("Title: ")
    assert not re.search(r"[\u202e\x1b]", pasted)
    tokens = list(MarkdownIt("commonmark").parse(body))
    assert [token.type for token in tokens if token.type in ("fence", "heading_open", "html_block")] == ["fence"] * 2
    children = [child for token in tokens for child in token.children or ()]
    assert "octocat" not in "".join(child.content for child in children if child.type == "text")
    assert not {"link_open", "image", "html_inline"} & {child.type for child in children}


def test_an_empty_outcome_has_a_text_too(run_report: Report) -> None:
    empty = run_report.cases[0].model_copy(update={"head": Outcome(kind=OutcomeKind.ERROR, stage="lower")})
    assert "Title: [torch.export] Branch: error\n" in inside(issue_text(empty, run_report))


def test_stale_entries_are_listed_and_counted() -> None:
    known = known_issues()
    experts = next(issue for issue in known if issue.id == "experts-hit")
    passing = Outcome(kind=OutcomeKind.PASS)
    case = CaseReport(
        id=CaseId.parse("a/A/dynamo/dynamic/forward"), verdict="ok", outcome="pass", reason=EVERY_MODEL, head=passing
    )
    sweep = Report(command="sweep", head=Revision(name="main"), cases=(case,))
    lines = render_stale([sweep], (experts,)).splitlines()
    assert lines[2].split() == [
        "experts-hit",
        "https://github.com/huggingface/transformers/issues/38518",
        "(open)",
        "dynamo/model_patches/patch_eager_experts",
    ]
    assert lines[-1] == "1 of 1 known upstream issues were not met"
    hit = passing.model_copy(update={"workarounds": {experts.workaround: 1}})
    met = sweep.model_copy(update={"cases": (case.model_copy(update={"head": hit}),)})
    assert render_stale([met], (experts,)) == "each of the 1 known upstream issues was met"
    elsewhere = experts.model_copy(update={"id": "other", "backends": (Backend.EXECUTORCH,)})
    assert render_stale([met], (experts, elsewhere)).splitlines()[1:] == [
        "1 known upstream issue of backends that were not run: not counted"
    ]
    only = render_stale([sweep], (elsewhere,))
    assert only == "1 known upstream issue of backends that were not run: not counted"


@pytest.mark.parametrize(
    "changes",
    [
        {"cases": ()},
        {"failure": "the run was interrupted"},
        {"shard": Shard(number=1, of=2, plan="p")},
        {"sample": Sample(classes=1, affected=2, limits=("max-models: 1",), estimated_seconds=1.0)},
        {},
    ],
)
def test_what_is_no_full_sweep_is_told_not_to_be(run_report: Report, changes: dict[str, object]) -> None:
    said = "not of a full sweep (`hfexport-bot sweep`, no models named)"
    if not changes:
        assert said in render_stale([run_report], known_issues())  # its cases are of a change
        return
    case = run_report.cases[0].model_copy(update={"reason": EVERY_MODEL})
    sweep = Report(command="sweep", head=Revision(name="main"), cases=(case,))
    assert said not in render_stale([sweep], known_issues())
    assert said in render_stale([sweep, sweep.model_copy(update=changes)], known_issues())


def test_wrong_numbers_are_not_taken_for_a_fault_elsewhere(run_report: Report) -> None:
    wrong = broken(run_report, kind=OutcomeKind.PARITY, stage="parity", message="logits differ")
    again = run_report.model_copy(update={"rerun": Rerun(tree=".", rev="c" * 40, out="secret")})
    text = issue_text(wrong, again)
    assert "<summary>if the code of this model is right: the text of an upstream issue</summary>" in text
    assert "c" * 40 not in text
    assert "secret" not in text
