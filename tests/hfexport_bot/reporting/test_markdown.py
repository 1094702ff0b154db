from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hfexport_bot.changes.selection import ONLY_TEXT
from hfexport_bot.reporting.markdown import ISSUES_OFFERED, render
from hfexport_bot.schema import (
    Backend,
    Blame,
    CaseId,
    CaseReport,
    Component,
    Location,
    NotRun,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    Shapes,
    Task,
    VerdictKind,
)
from hfexport_bot.verdicts.entries import read_entries
from hfexport_bot.verdicts.upstream import UpstreamIssue

GITHUB_LIMIT = 65_536


def parse(markdown: str) -> list[Token]:
    """All tokens, inline ones included."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        found += [token, *(token.children or ())]
    return found


def section(markdown: str, title: str) -> str:
    match = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^### |\Z)", markdown, re.MULTILINE | re.DOTALL)
    assert match, f"no section {title}"
    return match[1]


def test_title_and_facts(run_report: Report) -> None:
    lines = render(run_report).splitlines()
    counted = "4 regressions in 2 causes · 1 fixed · 1 changed · 1 interface moved"
    assert lines[0] == f"## Export check: {counted} · safe to merge: no"
    assert lines[2] == "12 cases on 7 classes in 1m 52s · head aaaaaaa on base ddddddd · `torch 2.13.0`"


def test_the_table_has_a_line_for_each_class_worst_first(run_report: Report) -> None:
    table = [line for line in render(run_report).splitlines() if line.startswith("|")]
    why = "`modeling_tiny.py changed`"
    assert table == [
        "| Class | torch.export | ONNX | ExecuTorch | why it ran |",
        "| --- | --- | --- | --- | --- |",
        f"| `Branch` | ❌ trace | ❌ trace | ❌ trace | {why} |",
        f"| `Gelu` | ✅ 0 | ✅ 3e-7 · interface | ❌ parity 0.031 | {why} |",
        f"| `Mended` | ✅ 3e-7 · fixed | ❌ parity 0.031 · changed |  | {why} |",
        f"| `Broken` | ❌ trace · known |  |  | {why} |",
        f"| `Grown` |  | ✅ 3e-7 · drift |  | {why} |",
        f"| `Fresh` | ✅ 3e-7 · new |  |  | {why} |",
        f"| `Gone` | ✅ 3e-7 · removed |  |  | {why} |",
    ]


def test_shapes_and_tasks_get_lines_of_their_own(run_report: Report) -> None:
    first = run_report.cases[0]
    update = {"shapes": Shapes.STATIC, "task": Task.GENERATE}
    other = first.model_copy(update={"id": first.id.model_copy(update=update)})
    markdown = render(run_report.model_copy(update={"cases": (first, other)}))
    assert "| `Branch (dynamic, forward)` |" in markdown
    assert "| `Branch (static, generate)` |" in markdown


def test_namesakes_are_told_apart(run_report: Report) -> None:
    first = run_report.cases[0]
    other = first.model_copy(update={"id": first.id.model_copy(update={"model": "other"})})
    markdown = render(run_report.model_copy(update={"cases": (first, other)}))
    assert "| `models/modeling_tiny/Branch` |" in markdown
    assert "| `other/Branch` |" in markdown


def test_the_line_that_is_blamed_is_shown_with_those_around_it(run_report: Report) -> None:
    blame = Blame(
        location=Location(file="models/modular_tiny.py", line=100, function="forward"),
        changed=True,
        ran=Location(file="models/modeling_tiny.py", line=31),
        first=99,
        source=("x = x + 1", "if x.sum() > 0:", "    ```</details> @someone"),
    )
    cases = [case.model_copy(update={"blame": blame}) for case in run_report.cases[:1]]
    text = section(render(run_report.model_copy(update={"cases": tuple(cases)})), "Regressions")
    assert "at <code>models/modular_tiny.py:100</code>" in text
    assert (
        "`models/modular_tiny.py:100` in `forward`, a line of this change; it ran as `models/modeling_tiny.py:31`:"
        in (text)
    )
    assert "\n   99 | x = x + 1\n> 100 | if x.sum() > 0:\n  101 |     ```</details> @someone\n````\n" in text


def test_one_cause_is_one_entry_with_all_that_helps(run_report: Report) -> None:
    text = section(render(run_report), "Regressions")
    assert text.count("<details>") == text.count("</details>") == 2 * 2  # each with the text of an issue
    assert (
        "<summary>torch.export, ONNX, ExecuTorch · trace · <code>GuardOnDataDependentSymNode</code> at "
        "<code>models/modeling_tiny.py:31</code> · <code>Branch</code></summary>" in text
    )
    assert "```text\nCould not guard on data-dependent expression Eq(u0, 1)\n\nif x.sum() > 0:\n```" in text
    assert "`hfexport-bot reproduce models/modeling_tiny/Branch/dynamo/dynamic/forward`" in text


def test_a_cause_of_several_classes_counts_them(run_report: Report) -> None:
    first = run_report.cases[0]
    other = first.model_copy(update={"id": first.id.model_copy(update={"class_name": "Twin"})})
    text = section(render(run_report.model_copy(update={"cases": (first, other)})), "Regressions")
    assert "· 2 classes</summary>" in text


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "texts: [data-dependent], versions: {torch: '>=2.5'}, advice: ask less",
            "may be `a/b#7` (`@t`, open; affects torch >=2.5): ask less",
        ),
        (
            "texts: [data-dependent], workaround: dynamo/trace/mine",
            "may be `a/b#7` (`@t`, open): our exporters work around it: `dynamo/trace/mine`",
        ),
        ("texts: [something else], advice: x", ""),
    ],
)
def test_the_upstream_issue_is_offered_and_not_linked(
    run_report: Report, monkeypatch: pytest.MonkeyPatch, entry: str, said: str
) -> None:
    issues = read_entries(
        "- {id: x, repo: a/b, number: 7, url: u, title: '@t', state: open, backends: [dynamo], stages: [trace], "
        f"{entry}}}",
        UpstreamIssue,
    )
    monkeypatch.setattr("hfexport_bot.reporting.upstream.known_issues", lambda: issues)
    markdown = render(run_report)
    assert said in section(markdown, "Regressions")
    assert ("a/b#7" in markdown) == bool(said)
    assert "https://" not in markdown


def test_wrong_numbers_that_an_operator_is_known_for_are_told_so(run_report: Report) -> None:
    case = next(case for case in run_report.cases if case.outcome is OutcomeKind.PARITY)
    wrong = Outcome(
        kind=OutcomeKind.PARITY,
        stage="parity",
        message="logits: max abs 0.031",
        fed=("span_mask",),
        components=(Component(name="model", operators=("Softmax",)),),
    )
    identity = case.id.model_copy(update={"backend": Backend.ONNX})
    markdown = render(
        run_report.model_copy(update={"cases": (case.model_copy(update={"id": identity, "head": wrong}),)})
    )
    assert "wrong numbers on this backend are also known from `microsoft/onnxscript#2479`" in markdown


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("Interface", "`models/modeling_tiny/Gelu/onnx/dynamic/forward`: ✅ 3e-7 · interface (`input new: y`)"),
        ("Fixed", "`models/modeling_tiny/Mended/dynamo/dynamic/forward`"),
        ("Changed", "`before: error at trace: Could not guard on data-dependent expression Eq(u0, 1)`"),
        ("Drift", "`models/modeling_tiny/Grown/onnx/dynamic/forward`: ✅ 3e-7 · drift (`100 → 200 nodes`)"),
        ("New", "`models/modeling_tiny/Fresh/dynamo/dynamic/forward`"),
        ("Removed", "- `models/modeling_tiny/Gone/dynamo/dynamic/forward`\n"),
        ("Known, not from this change", "classes: `Broken`"),
        ("Not run, and why", "- file `models/modeling_doc.py`: `only docstrings changed`"),
        ("Workarounds hit", "- `onnx.patch.sdpa`: 4 classes"),
        ("Notes", "- `the settings change after merge`"),
    ],
)
def test_sections(run_report: Report, title: str, said: str) -> None:
    assert said in section(render(run_report), title)


def test_a_check_has_failures_and_no_verdicts(check_report: Report) -> None:
    markdown = render(check_report)
    assert markdown.startswith("## Export check: 5 of 11 cases pass\n")
    assert "head `transformers 5.24.0`" in markdown
    failures = section(markdown, "Failures")
    assert failures.count("<details>") == 2 * 3
    assert "safe to merge" not in markdown
    assert "no-baseline" not in markdown


def test_nothing_affected_is_a_green_report() -> None:
    report = Report(
        command="run",
        base=Revision(name="a", sha="1" * 40),
        head=Revision(name="b", sha="2" * 40),
        not_run=(NotRun(kind="file", name="modeling_x.py", reason=ONLY_TEXT),),
    )
    markdown = render(report)
    assert markdown.startswith("## Export check: nothing affected · safe to merge: yes\n")
    assert "modeling_x.py" in section(markdown, "Not run, and why")


def test_files_that_were_not_run_for_one_reason_are_one_entry_where_they_are_many() -> None:
    reasons = {ONLY_TEXT: 7, "syntax error": 3}
    left = tuple(
        NotRun(kind="file", name=f"{reason[:1]}{number}.py", reason=reason)
        for reason, count in reasons.items()
        for number in range(count)
    )
    report = Report(command="run", head=Revision(name="b"), not_run=left)
    lines = [line for line in section(render(report), "Not run, and why").splitlines() if line.startswith("- ")]
    assert lines == [
        f"- file `7 files: o0.py, o1.py, o2.py, o3.py, o4.py and 2 more`: `{ONLY_TEXT}`",
        *(f"- file `s{number}.py`: `syntax error`" for number in range(3)),
    ]


def test_symbols_of_one_file_that_were_not_run_are_one_entry() -> None:
    names = [*(f"processing_x.py:X.m{number}" for number in range(8)), "modeling_x.py:f"]
    left = tuple(NotRun(kind="symbol", name=name, reason="not on an exported path") for name in names)
    report = Report(
        command="run", head=Revision(name="b"), not_run=(*left, left[-1].model_copy(update={"reason": "!"}))
    )
    lines = [line for line in section(render(report), "Not run, and why").splitlines() if line.startswith("- ")]
    assert lines == [
        "- symbol `processing_x.py: X.m0, X.m1, X.m2, X.m3, X.m4 and 3 more`: `not on an exported path`",
        "- symbol `modeling_x.py:f`: `not on an exported path`",
        "- symbol `modeling_x.py:f`: `!`",
    ]


def test_files_that_were_not_judged_are_not_called_safe() -> None:
    files = [("modeling_x.py", ONLY_TEXT), ("ops.py", "not a modeling file"), ("modeling_y.py", "syntax error")]
    not_run = tuple(NotRun(kind="file", name=name, reason=reason) for name, reason in files)
    report = Report(command="run", head=Revision(name="b"), not_run=not_run)
    title = render(report).splitlines()[0]
    assert title == "## Export check: nothing was run · 2 changed files were not judged, see what was not run"
    title = render(report.model_copy(update={"not_run": not_run[:2]})).splitlines()[0]
    assert title.endswith("1 changed file was not judged, see what was not run")


def with_notes(report: Report, notes: dict[str, tuple[str, ...]]) -> Report:
    """The report with notes in head's outcomes of the named classes."""
    cases = [
        case.model_copy(update={"head": case.head.model_copy(update={"notes": notes.get(case.id.class_name, ())})})
        for case in report.cases
        if case.head
    ]
    return report.model_copy(update={"cases": tuple(cases)})


def test_what_the_checks_could_not_see_is_told_once_with_its_classes(run_report: Report) -> None:
    blind, left_out = "the check is nearly blind to attention_mask", "probe batch_3 left out"
    markdown = render(with_notes(run_report, {"Branch": (left_out, blind), "Gelu": (blind,)}))
    assert section(markdown, "Blind spots").strip().splitlines() == [
        f"- `{blind}`: `Branch`, `Gelu`",
        f"- `{left_out}`: `Branch`",
    ]
    assert "### Blind spots" not in render(run_report)


def test_a_run_that_failed_is_not_called_safe(run_report: Report) -> None:
    markdown = render(run_report.model_copy(update={"failure": "transformers does not import"}))
    assert markdown.startswith("## Export check: the run failed · safe to merge: unknown\n")
    assert "`transformers does not import`" in markdown


# -- Whatever comes in -----------------------------------------------------------------------------------------

NASTY = (
    "@octocat </summary></details><img src=x onerror=y> [a](https://evil.example) ![b](https://evil.example/c) "
    "| x | `` ``` ~~~ https://evil.example www.evil.example owner/repo#1 #2 \u202e\x1b[31m\x00\n\n"
    "# heading\n```\n</details>\n| a | b |\n|---|---|\n"
)


def hostile(number: int, verdict: VerdictKind) -> CaseReport:
    outcome = Outcome(
        kind=OutcomeKind.ERROR,
        stage=NASTY[:300],
        component=NASTY[:300],
        message=NASTY * 20,
        error_type=NASTY[:300],
        location=Location(file=NASTY[:300], line=number, function=NASTY[:300]),
        workarounds={f"{number}{NASTY}": 1},
        notes=(NASTY,),
    )
    # model_construct: as if a name had slipped through the plan.
    case = CaseId.model_construct(
        model=f"m{number}{NASTY}",
        class_name=f"C{number}{NASTY}",
        backend=list(Backend)[number % 3],
        shapes=Shapes.DYNAMIC,
        task=Task.FORWARD,
    )
    return CaseReport.model_construct(
        id=case,
        verdict=verdict,
        outcome=OutcomeKind.ERROR,
        stage=outcome.stage,
        message=outcome.message,
        seconds=0.0,
        components=(),
        signature=f"{number}{NASTY}",
        reason=NASTY,
        base=None,
        head=outcome,
        details=(NASTY,) * 30,
    )


def report_of(cases: Sequence[CaseReport]) -> Report:
    return Report.model_construct(
        command="run",
        base=Revision(name=NASTY),
        head=Revision.model_construct(name=NASTY, sha=NASTY),
        cases=tuple(cases),
        not_run=tuple(NotRun(kind="class", name=NASTY, reason=NASTY) for _ in cases),
        notes=(NASTY,) * len(cases),
        failure="",
        seconds=1e9,
        versions={f"{number}{NASTY}": NASTY for number in range(50)},
        fail_on=(VerdictKind.REGRESSION,),
    )


def test_hostile_text_renders_as_text() -> None:
    verdicts = list(VerdictKind)
    markdown = render(report_of([hostile(number, verdicts[number]) for number in range(len(verdicts))]))
    tokens = parse(markdown)
    kinds = {token.type for token in tokens}
    assert not kinds & {"link_open", "image", "html_inline", "code_block", "blockquote_open", "hr"}

    html = [token.content.strip() for token in tokens if token.type == "html_block"]
    assert {re.sub(r"<summary>.*</summary>", "<summary/>", block) for block in html} == {
        "<details><summary/>",
        "</details>",
    }
    for block in html:
        tags = re.findall(r"</?([a-z]+)", block)
        assert set(tags) <= {"details", "summary", "code"}
        prose = re.sub(r"<code>[^<]*</code>", "", block)
        assert "@" not in prose
        assert "evil" not in prose

    prose_outside_code = " ".join(token.content for token in tokens if token.type == "text")
    assert "@" not in prose_outside_code
    assert "evil" not in prose_outside_code
    assert "#2" not in prose_outside_code
    headings = [token.content for token in tokens if token.type == "inline"]
    assert "heading" not in headings
    assert not re.search(r"[\u202e\x1b\x00]", markdown)


def test_hostile_rows_keep_the_columns_of_the_table() -> None:
    markdown = render(report_of([hostile(number, VerdictKind.REGRESSION) for number in range(3)]))
    kinds = [token.type for token in parse(markdown)]
    assert kinds.count("table_open") == 1
    assert kinds.count("tr_open") == 1 + 3
    assert kinds.count("td_open") == 5 * 3


@pytest.mark.parametrize("verdict", [VerdictKind.REGRESSION, VerdictKind.KNOWN, VerdictKind.DRIFT])
def test_five_thousand_hostile_cases_fit_and_what_was_cut_is_counted(verdict: VerdictKind) -> None:
    markdown = render(report_of([hostile(number, verdict) for number in range(5000)]))
    assert len(markdown) < GITHUB_LIMIT
    assert len(markdown.encode("utf-16-le")) / 2 < GITHUB_LIMIT
    html = [token.content for token in parse(markdown) if token.type == "html_block"]
    assert sum("<details>" in block for block in html) == sum("</details>\n" in block for block in html)
    rows = len(re.findall(r"^\| `C", markdown, re.MULTILINE))
    assert rows > 10
    assert f"_{5000 - rows:,} more rows, not shown here; report.json has all._" in markdown
    for noun in ("entries", "notes", "workarounds"):
        assert re.search(rf"_[\d,]+ more {noun},", markdown)


def test_what_moved_comes_first_and_leaves_room_for_the_regressions(run_report: Report) -> None:
    markdown = render(run_report)
    assert markdown.index("### Interface") < markdown.index("### Regressions")
    moved = [hostile(number, VerdictKind.INTERFACE) for number in range(500)]
    crowded = render(run_report.model_copy(update={"cases": (*moved, *run_report.cases)}))
    assert crowded.count("<details>") == markdown.count("<details>")
    assert re.search(r"_4\d\d more cases, not shown here", section(crowded, "Interface"))


@pytest.mark.parametrize("limit", [10_000, 30_000])
def test_a_smaller_limit_holds_too(limit: int) -> None:
    verdicts = list(VerdictKind)
    cases = [hostile(number, verdicts[number % len(verdicts)]) for number in range(500)]
    assert len(render(report_of(cases), limit)) <= limit


def test_five_thousand_plain_failures_show_as_many_causes_as_fit(run_report: Report) -> None:
    first = run_report.cases[0]
    cases = tuple(
        first.model_copy(
            update={
                "id": first.id.model_copy(update={"class_name": f"Model{number}"}),
                "signature": f"cause {number % 1000}",
            }
        )
        for number in range(5000)
    )
    markdown = render(run_report.model_copy(update={"cases": cases}))
    assert markdown.startswith("## Export check: 5,000 regressions in 1,000 causes · safe to merge: no")
    shown = markdown.count("<details>") - ISSUES_OFFERED
    assert shown > 20
    assert f"_{1000 - shown} more causes, not shown here; report.json has all._" in markdown
    assert 60_000 < len(markdown) < GITHUB_LIMIT
