"""What holds of every report, whatever the untrusted side says and however much of it there is."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hfexport_bot.reporting.markdown import ISSUES_OFFERED, MAX_CHARS, render
from hfexport_bot.schema import (
    Backend,
    CaseId,
    CaseReport,
    Component,
    Engine,
    Location,
    NotRun,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    Shapes,
    Task,
    TensorType,
    VerdictKind,
)
from hfexport_bot.verdicts.compare import cause_of

GITHUB_LIMIT = 65_536

_MARKDOWN = [
    "```",
    "````",
    "~~~",
    "`",
    "|",
    "#",
    "*",
    "_",
    "---",
    ">",
    "[a](https://evil.example)",
    "![b](c)",
    "@octocat",
    "#1",
    "$x$",
    "::error::",
    "\\",
    "word",
    "é",
    "😀",
]
_HTML = ["</details>", "<summary>", "<!--", "-->", "<img>", "&lt;"]
_BLANKS = ["\n", "\r", "\n\n", "    ", " ", "\x1b[31m", "\u202e", "\u2028", "\x00", "\ud800", "x" * 400]
_PARTS = st.sampled_from([*_MARKDOWN, *_HTML, *_BLANKS])
#: Those with an entry a cause more often than others.
_VERDICTS = st.sampled_from([VerdictKind.REGRESSION, VerdictKind.REGRESSION, VerdictKind.KNOWN, *VerdictKind])
_HOSTILE = st.lists(_PARTS, max_size=30).map("".join)
_BRIEF = st.lists(_PARTS, max_size=2).map("".join)
_NAMES = _HOSTILE.map(lambda text: text[:300])


def _cases(draw: Any, count: int) -> list[CaseReport]:
    """Some cases of few kinds, repeated with other names: a large report does not take long to draw. Brief ones leave
    room for many causes."""
    kinds = []
    brief = draw(st.booleans())
    texts, times = (_BRIEF, [1]) if brief else (_HOSTILE, [1, 30])
    names = texts.map(lambda text: text[:300])
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(OutcomeKind))
        outcome = Outcome.model_construct(
            kind=kind,
            stage=draw(names),
            component=draw(names),
            message=draw(texts) * draw(st.sampled_from(times)),
            error_type=draw(names),
            location=draw(
                st.none() | st.builds(Location.model_construct, file=names, line=st.integers(), function=names)
            ),
            components=(
                Component.model_construct(
                    name=draw(names),
                    max_abs=draw(st.none() | st.floats()),
                    operators=tuple(draw(st.lists(names, max_size=3))),
                    returns=(TensorType.model_construct(name=draw(names), dtype=draw(names), rank=1),),
                ),
            ),
            workarounds={draw(names): 1},
            notes=tuple(draw(st.lists(texts, max_size=2))),
            source=draw(names),
        )
        kinds.append((draw(_VERDICTS), outcome, tuple(draw(st.lists(texts, max_size=12)))))
    spread = draw(st.sampled_from([1, 7, 1_000_000]))  # few causes, or one a case
    return [
        CaseReport.model_construct(
            id=CaseId.model_construct(
                model=f"m{number}",
                class_name=f"C{number}{name}",
                backend=list(Backend)[number % 3],
                shapes=Shapes.DYNAMIC,
                task=Task.FORWARD,
                engine=Engine.OWN,
                variant=None,
            ),
            verdict=verdict,
            outcome=outcome.kind,
            stage=outcome.stage,
            message=outcome.message,
            components=outcome.components,
            signature=str(number % spread),
            reason=name,
            base=None,
            head=outcome,
            details=details,
        )
        for name in [draw(names)]
        for number in range(count)
        for verdict, outcome, details in [kinds[number % len(kinds)]]
    ]


#: A cause begins with its backends, the text of an issue with neither.
_CAUSE = r"^<details><summary>(?:torch\.export|ONNX|ExecuTorch)"
_DETAILS = r"<details><summary>(?:[^<>]|<code>[^<>]*</code>)*</summary>|</details>"


@st.composite
def reports(draw: Any) -> Report:
    many = st.sampled_from([0, 1, 3, 40, 40, 400])
    return Report.model_construct(
        command=draw(st.sampled_from(["run", "check"])),
        base=Revision.model_construct(name=draw(_HOSTILE), sha=draw(_HOSTILE)),
        head=Revision.model_construct(name=draw(_HOSTILE), sha=draw(st.sampled_from(["a" * 40, "", "@x"]))),
        cases=tuple(_cases(draw, draw(many))),
        not_run=(NotRun.model_construct(kind="class", name=draw(_HOSTILE), reason=draw(_HOSTILE)),) * draw(many),
        notes=(draw(_HOSTILE),) * draw(many),
        failure=draw(st.sampled_from(["", "x"]) | _HOSTILE),
        seconds=draw(st.floats(0, 1e9)),
        versions=dict.fromkeys(draw(st.lists(_NAMES, max_size=20)), draw(_HOSTILE)),
        fail_on=(VerdictKind.REGRESSION,),
    )


@given(reports(), st.sampled_from([10_000, MAX_CHARS, MAX_CHARS]))
@settings(max_examples=50, phases=[Phase.generate])  # to make one smaller takes minutes
def test_a_report_fits_closes_what_it_opens_and_counts_what_it_cuts(report: Report, limit: int) -> None:
    markdown = render(report, limit)
    assert_fits_and_closes(markdown, limit)
    assert_counts(markdown, report)


def test_some_reports_show_more_causes_than_have_the_text_of_an_issue() -> None:
    """Their entries are of another form, which has to close what it opens too."""

    def shows_many(report: Report) -> bool:
        sections = render(report).split("\n### ")
        return max(len(re.findall(_CAUSE, section, re.MULTILINE)) for section in sections) > ISSUES_OFFERED + 1

    find(reports(), shows_many, settings=settings(max_examples=50, phases=[Phase.generate], database=None))


def assert_fits_and_closes(markdown: str, limit: int) -> None:
    assert len(markdown) <= limit < GITHUB_LIMIT
    markdown.encode()  # no half of a surrogate pair
    assert "\r" not in markdown
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    kinds = {token.type for token in tokens}
    assert not kinds & {"code_block", "blockquote_open", "hr", "ordered_list_open"}
    open_details = 0
    for token in tokens:
        if token.type == "fence":
            assert set(token.markup) == {"`"}
            assert markdown.splitlines()[token.map[1] - 1] == token.markup, "a fence that is never closed"
        if token.type == "html_block":
            assert re.fullmatch(_DETAILS, token.content.strip())
            open_details += token.content.count("<details>") - token.content.count("</details>")
            assert 0 <= open_details <= 2
    assert open_details == 0
    children = [child for token in tokens for child in token.children or ()]
    assert not {"link_open", "image", "html_inline"} & {child.type for child in children}
    assert not any("octocat" in child.content for child in children if child.type == "text")


def shown_and_cut(markdown: str, title: str, entry: str) -> int:
    """How many entries a section shows, and how many it says that it does not."""
    found = re.search(rf"^### {title}\n(.*?)(?=^### |\Z)", markdown, re.MULTILINE | re.DOTALL)
    if found is None:
        return 0
    cut = re.search(r"^_([\d,]+) more \w+, not shown here", found[1], re.MULTILINE)
    return len(re.findall(entry, found[1], re.MULTILINE)) + (int(cut[1].replace(",", "")) if cut else 0)


def assert_counts(markdown: str, report: Report) -> None:
    assert shown_and_cut(markdown, "Not run, and why", r"^- class") == len(report.not_run)
    assert shown_and_cut(markdown, "Notes", r"^-(?: |$)") == len(report.notes)
    if report.command == "run":
        interface = [case for case in report.cases if case.verdict is VerdictKind.INTERFACE]
        assert shown_and_cut(markdown, "Interface", r"^- `") == len(interface)
        regressions = {cause_of(case) for case in report.cases if case.verdict is VerdictKind.REGRESSION}
        assert shown_and_cut(markdown, "Regressions", _CAUSE) == len(regressions)
    rows = len(re.findall(r"^\| `C", markdown, re.MULTILINE))
    cut = re.search(r"^_([\d,]+) more rows, not shown here", markdown, re.MULTILINE)
    assert rows + (int(cut[1].replace(",", "")) if cut else 0) == len(report.cases)
