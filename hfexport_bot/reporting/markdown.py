"""A report as GitHub shows it: one comment, short enough whatever comes in. Pure.

All text that the code under test can influence passes through `hfexport_bot.reporting.text`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hfexport_bot.reporting.audits import audit_items
from hfexport_bot.reporting.eager import eager_cell, eager_changes
from hfexport_bot.reporting.expectations import ExpectationLine, expectation_lines
from hfexport_bot.reporting.failures import blamed_line, error_name, largest_error_line, whose
from hfexport_bot.reporting.reproduce import reproduce, reproduce_rest
from hfexport_bot.reporting.summary import (
    Cause,
    Remark,
    Row,
    causes,
    cell,
    column_title,
    columns,
    duration,
    headline,
    line_ranges,
    not_run_entries,
    origins,
    plural,
    remarks,
    row_labels,
    rows,
    sample_lines,
    source_lines,
    why_no_baseline,
)
from hfexport_bot.reporting.text import code, command_code, fenced, html_code
from hfexport_bot.reporting.upstream import issue_line, issue_text, known_issue, what_to_do
from hfexport_bot.schema import Blame, CaseReport, NotRun, Report, Revision, Unreached, VerdictKind
from hfexport_bot.verdicts.compare import CLEAN, counts, first_line, is_accepted_change
from hfexport_bot.verdicts.stability import how_often

#: GitHub refuses a comment of more than 65,536 characters; the rest is left for a marker.
MAX_CHARS = 65_000
#: The parts of it that the table and what moved may take, since both come before the regressions.
TABLE_SHARE = 0.35
#: The part that what was not run may take: what a sample left out is told in report.json.
NOT_RUN_SHARE = 0.2
INTERFACE_SHARE = 0.15
#: Room kept for the heading and the "more" line of each section.
SECTION_RESERVE = 300

NAMES_SHOWN = 20
DETAILS_SHOWN = 8
#: How many causes of a section come with the text of an issue to file: it is half of an entry.
ISSUES_OFFERED = 10


_T = TypeVar("_T")


@dataclass(frozen=True)
class Section(Generic[_T]):
    """A heading and one block of Markdown for each item, of which the last are left out when there is no
    room. ``noun`` counts them; ``glue`` stands between two blocks; ``part`` of the limit is the most it takes."""

    title: str
    noun: str
    items: Sequence[_T]
    block: Callable[[_T], str]
    glue: str = "\n"
    intro: str = ""
    part: float = 1.0

    def fit(self, room: int) -> str:
        """The section with as many blocks as ``room`` characters hold."""
        kept: list[str] = []
        for item in self.items:
            block = self.block(item)
            room -= len(block) + len(self.glue)
            if room < 0:
                break
            kept.append(block)
        title = f"### {self.title}\n\n" if self.title else ""
        left = len(self.items) - len(kept)
        more = f"\n\n_{plural(left, f'more {self.noun}')}, not shown here; report.json has all._" if left else ""
        return f"{title}{self.intro}{self.glue.join(kept)}{more}\n"


def render(report: Report, limit: int = MAX_CHARS) -> str:
    """The report as GitHub-flavoured Markdown of at most ``limit`` characters (10,000 or more). What did
    not fit is counted in its section."""
    head = f"## Export check: {headline(report)}\n\n{_facts(report)}\n"
    if lines := sample_lines(report):
        head += "\n" + "".join(f"- {code(line, 1_000)}\n" for line in lines)
        head += f"- To run the rest: {command_code(reproduce_rest(report))}\n"
    if report.failure:
        head += f"\nThe run failed: {code(report.failure, 1_000)}\n"
    parts = [head]
    room = limit - len(head)
    sections = [section for section in (_table(report), *_sections(report)) if section.items]
    for position, section in enumerate(sections):
        left = room - SECTION_RESERVE * (len(sections) - position)
        text = section.fit(min(left, int(limit * section.part)))
        parts.append(text)
        room -= len(text)
    return "\n".join(parts).rstrip() + "\n"


def _facts(report: Report) -> str:
    found = counts(report)
    ran = f"{plural(found.cases, 'case')} on {plural(found.classes, 'class')}"
    revisions = f"head {_revision(report.head)}"
    if report.base is not None:
        revisions += f" on base {_revision(report.base)}"
    versions = [code(f"{name} {version}", 60) for name, version in list(report.versions.items())[:12]]
    parts = [f"{ran} in {duration(report.seconds)}", revisions, origins(report.cases), ", ".join(versions)]
    return " · ".join(part for part in parts if part)


def _revision(revision: Revision) -> str:
    sha = revision.sha
    if len(sha) == 40 and all(character in "0123456789abcdef" for character in sha):
        return sha[:7]  # GitHub links it
    return code(revision.name, 80) or "`?`"


def _table(report: Report) -> Section[tuple[Row, str]]:
    shown = columns(report.cases)
    table = rows(report.cases)
    eager = any(case.eager for case in report.cases)
    titles = ["Class", *map(column_title, shown), *(["eager"] if eager else []), "why it ran"]

    def line(labelled: tuple[Row, str]) -> str:
        row, label = labelled
        cells = [cell(row.cases[column]) if column in row.cases else "" for column in shown]
        cells += [eager_cell(row.cases.values())] if eager else []
        return _line([code(label), *cells, code(row.reason, 120)])

    return Section(
        title="",
        noun="row",
        items=list(zip(table, row_labels(table), strict=True)),
        block=line,
        intro=_line(titles) + "\n" + _line(["---"] * len(titles)) + "\n",
        part=TABLE_SHARE,
    )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _sections(report: Report) -> Iterable[Section[Any]]:
    def by_cause(title: str, cases: Iterable[CaseReport], intro: str = "") -> Section[tuple[int, Cause]]:
        numbered = list(enumerate(causes(cases)))

        def block(item: tuple[int, Cause]) -> str:
            return _cause(item[1], report, item[0] < ISSUES_OFFERED)

        return Section(title, "cause", numbered, block, "\n\n", intro)

    if not report.compared:
        yield by_cause("Failures", [case for case in report.cases if case.outcome not in CLEAN])
    else:
        for verdict, title in _TITLES.items():
            cases = [case for case in report.cases if case.verdict is verdict]
            if verdict is VerdictKind.KNOWN:
                yield by_cause("Accepted", [case for case in cases if is_accepted_change(case)])
                cases = [case for case in cases if not is_accepted_change(case)]
            part = INTERFACE_SHARE if verdict is VerdictKind.INTERFACE else 1.0
            if verdict in _EITHER:
                why = why_no_baseline(report) if verdict is VerdictKind.NO_BASELINE else ""
                intro = f"{why[:1].upper()}{why[1:]}.\n\n" if why else ""
                yield by_cause(_EITHER[verdict], [case for case in cases if case.outcome not in CLEAN], intro)
                cases = [case for case in cases if case.outcome in CLEAN]
            yield by_cause(title, cases) if verdict in _BY_CAUSE else Section(title, "case", cases, _item, part=part)
    yield Section("Expectations", "entry", expectation_lines(report), _expectation, part=0.1)
    yield Section("Changed lines that no case ran", "function", report.unreached, _unreached)
    yield Section("Eager outputs, on base's weights and inputs", "model", eager_changes(report.cases), _eager)
    yield Section("Workarounds that this change is about", "line", audit_items(report.audit), str)
    yield Section("Not run, and why", "entry", not_run_entries(report), _not_run, part=NOT_RUN_SHARE)
    yield Section("Blind spots", "note", remarks(report.cases), _remark)
    yield Section("Workarounds hit", "workaround", _workarounds(report.cases), _workaround)
    yield Section("Notes", "note", report.notes, lambda note: f"- {code(note, 400)}")


_TITLES = {
    VerdictKind.INTERFACE: "Interface",
    VerdictKind.REGRESSION: "Regressions",
    VerdictKind.FLAKY: "Flaky, and failing on base",
    VerdictKind.FIXED: "Fixed",
    VerdictKind.CHANGED: "Changed",
    VerdictKind.DRIFT: "Drift",
    VerdictKind.NEW: "New",
    VerdictKind.REMOVED: "Removed",
    VerdictKind.KNOWN: "Known, not from this change",
    VerdictKind.NO_BASELINE: "Without a baseline",
}
_BY_CAUSE = frozenset({VerdictKind.REGRESSION, VerdictKind.CHANGED, VerdictKind.KNOWN})
#: Of these head passes or fails: the title of those that fail.
_EITHER = {
    VerdictKind.NEW: "New, and failing",
    VerdictKind.NO_BASELINE: "Without a baseline, and failing",
    VerdictKind.FLAKY: "Flaky",
}


def _eager(change: tuple[CaseReport, str]) -> str:
    return f"- {code(change[0].id.class_name)}: {code(change[1], 600)}"


def _expectation(line: ExpectationLine) -> str:
    return f"- {code(line.entry)}, {line.said}" + (f" ({code(line.reason)})" if line.reason else "")


def _not_run(item: NotRun) -> str:
    return f"- {item.kind} {code(item.name)}: {code(item.reason, 300)}"


def _unreached(item: Unreached) -> str:
    where = f" in {code(item.function)}" if item.function else ""
    return f"- {code(f'{item.file}:{line_ranges(item.lines)}', 300)}{where}"


def _item(case: CaseReport) -> str:
    details = "; ".join(code(detail) for detail in case.details[:DETAILS_SHOWN])
    if len(case.details) > DETAILS_SHOWN:
        details += f" and {len(case.details) - DETAILS_SHOWN} more"
    said = "" if case.verdict is VerdictKind.REMOVED else f": {cell(case)}"
    return f"- {code(str(case.id), 300)}{said}" + (f" ({details})" if details else "")


def _cause(cause: Cause, report: Report, offer_issue: bool) -> str:
    first = cause.first
    error, location = html_code(error_name(first), 80), blamed_line(first)
    place = f"at {html_code(str(location), 160)}" if location else ""
    what = " ".join(part for part in (error, place) if part)
    several = len(cause.classes) > 1
    which = plural(len(cause.classes), "class") if several else html_code(cause.classes[0], 80)
    summary = " · ".join(part for part in (cause.where, what, which) if part)
    lines = [f"<details><summary>{summary}</summary>", ""]
    if first.message.strip():
        lines += [fenced(first.message), ""]
    if first.blame:
        lines += _blame(first.blame)
    lines.append(f"- classes: {_names(cause.classes)}")
    if len(cause.cases) > 1 or len(cause.classes) == 1:
        lines.append(f"- cases: {_cases(cause.cases)}")
    lines += _each(cause)
    own = [each for each in first.details if each not in _often(first)]
    details = [largest_error_line(first), *own[:DETAILS_SHOWN]]
    lines += [f"- {code(detail, 300)}" for detail in details if detail]
    issue = known_issue(first, report.versions)
    lines += [f"- {issue_line(issue)}"] if issue else []
    advice = what_to_do(first, report.versions)
    lines += [f"- what to do: {advice}"] if advice else []
    lines += [f"- reproduce: {command_code(reproduce(first.id, report.rerun))}", ""]
    offer_issue = offer_issue and issue is None and first.verdict is not VerdictKind.FLAKY
    text = issue_text(first, report) if offer_issue else ""
    lines += [text, ""] if text else []
    lines.append("</details>")
    return "\n".join(lines)


def _each(cause: Cause) -> list[str]:
    """What each class fails with, where that names no place in the code and is not the same: it may be several
    faults."""
    messages: dict[str, str] = {}
    for case in cause.cases:
        messages.setdefault(case.id.class_name, first_line(case.message))
    side = cause.first.head or cause.first.base
    if (side and side.location) or len(set(messages.values())) < 2:
        return []
    told = [f"- {code(name)}: {code(said, 300)}" for name, said in messages.items()]
    return [*told[:NAMES_SHOWN], *([f"- and {len(told) - NAMES_SHOWN:,} more"] if len(told) > NAMES_SHOWN else [])]


def _cases(cases: Sequence[CaseReport]) -> str:
    """Their ids; of flaky ones with how often each failed, since cases of one cause differ in that."""
    if cases[0].verdict is not VerdictKind.FLAKY:
        return _names([str(case.id) for case in cases])
    shown = [f"{code(str(case.id), 300)} ({'; '.join(_often(case))})" for case in cases[:NAMES_SHOWN]]
    return ", ".join(shown) + (f" and {len(cases) - NAMES_SHOWN:,} more" if len(cases) > NAMES_SHOWN else "")


def _often(case: CaseReport) -> list[str]:
    return [*how_often(case.tried)] if case.verdict is VerdictKind.FLAKY and case.tried else []


def _blame(blame: Blame) -> list[str]:
    where = code(str(blame.location), 300) + (f" in {code(blame.location.function)}" if blame.location.function else "")
    said = [where + whose(blame)]
    if blame.ran:
        said.append(f"it ran as {code(str(blame.ran), 300)}")
    text = source_lines(blame)
    return ["; ".join(said) + (":" if text else ""), "", *([fenced(text), ""] if text else [])]


def _names(names: Sequence[str]) -> str:
    text = ", ".join(code(name, 300) for name in names[:NAMES_SHOWN])
    return text + (f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else "")


def _remark(remark: Remark) -> str:
    return f"- {code(remark.text, 400)}: {_names(remark.classes)}"


def _workarounds(cases: Iterable[CaseReport]) -> list[tuple[str, int]]:
    """The ids of the workarounds that head's exports hit, each with its number of classes, the most first."""
    hits: dict[str, set[str]] = {}
    for case in cases:
        for name in case.head.workarounds if case.head else ():
            hits.setdefault(name, set()).add(case.id.class_name)
    counted = [(name, len(classes)) for name, classes in hits.items()]
    return sorted(counted, key=lambda hit: (-hit[1], hit[0]))


def _workaround(hit: tuple[str, int]) -> str:
    return f"- {code(hit[0])}: {plural(hit[1], 'class')}"
