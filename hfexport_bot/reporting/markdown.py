"""A report as GitHub shows it: one comment, short enough whatever comes in. Pure.

All text that the code under test can influence passes through `hfexport_bot.reporting.text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hfexport_bot.reporting.summary import (
    BACKENDS,
    Cause,
    backends_of,
    causes,
    cell,
    duration,
    headline,
    plural,
    reproduce,
    row_label,
    rows,
)
from hfexport_bot.reporting.text import code, fenced, html_code
from hfexport_bot.schema import CaseReport, OutcomeKind, Report, Revision, VerdictKind
from hfexport_bot.verdicts.compare import CLEAN, counts, failing
from hfexport_bot.verdicts.upstream import UpstreamIssue, candidates, known_issues, matches

#: GitHub refuses a comment of more than 65,536 characters; the rest is left for a marker.
MAX_CHARS = 65_000
#: The part of it that the table may take.
TABLE_SHARE = 0.35
#: Room kept for the heading and the "more" line of each section.
SECTION_RESERVE = 300

NAMES_SHOWN = 20
DETAILS_SHOWN = 8


@dataclass(frozen=True)
class Section:
    """A heading and blocks of Markdown, of which the last are left out when there is no room. ``noun`` counts
    them; ``glue`` stands between two."""

    title: str
    blocks: Sequence[str]
    noun: str
    glue: str = "\n"
    intro: str = ""


def render(report: Report, limit: int = MAX_CHARS) -> str:
    """The report as GitHub-flavoured Markdown of at most ``limit`` characters (5,000 or more). What did not
    fit is counted in its section."""
    head = f"## Export check: {headline(report, safe=not failing(report))}\n\n{_facts(report)}\n"
    if report.failure:
        head += f"\nThe run failed: {code(report.failure, 400)}\n"
    parts = [head]
    room = limit - len(head)
    table = _table(report)
    sections = [section for section in (table, *_sections(report)) if section is not None and section.blocks]
    for position, section in enumerate(sections):
        share = room - SECTION_RESERVE * (len(sections) - position)
        if section is table:
            share = min(share, int(limit * TABLE_SHARE))
        text = _fit(section, share)
        parts.append(text)
        room -= len(text)
    return "\n".join(parts).rstrip() + "\n"


def _fit(section: Section, room: int) -> str:
    title = f"### {section.title}\n\n" if section.title else ""
    kept: list[str] = []
    for block in section.blocks:
        room -= len(block) + len(section.glue)
        if room < 0:
            break
        kept.append(block)
    text = title + section.intro + section.glue.join(kept)
    left = len(section.blocks) - len(kept)
    more = f"\n\n_{plural(left, section.noun)} more, not shown here; report.json has all._" if left else ""
    return f"{text}{more}\n"


def _facts(report: Report) -> str:
    found = counts(report)
    ran = f"{plural(found.cases, 'case')} on {plural(found.classes, 'class')}"
    revisions = f"head {_revision(report.head)}"
    if report.base is not None:
        revisions += f" on base {_revision(report.base)}"
    versions = [code(f"{name} {version}", 60) for name, version in list(report.versions.items())[:12]]
    parts = [f"{ran} in {duration(report.seconds)}", revisions, ", ".join(versions)]
    return " · ".join(part for part in parts if part)


def _revision(revision: Revision) -> str:
    sha = revision.sha
    if len(sha) == 40 and all(character in "0123456789abcdef" for character in sha):
        return sha[:7]  # GitHub links it
    return code(revision.name, 80) or "`?`"


def _table(report: Report) -> Section | None:
    backends = backends_of(report)
    table = rows(report.cases)
    titles = ["Class", *(BACKENDS[backend] for backend in backends), "why it ran"]
    lines = []
    for row in table:
        cells = [cell(row.cases[backend]) if backend in row.cases else "" for backend in backends]
        lines.append(_line([code(row_label(row, table)), *cells, code(row.reason, 120)]))
    return Section("", lines, "row", intro=_line(titles) + "\n" + _line(["---"] * len(titles)) + "\n")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _sections(report: Report) -> Iterable[Section]:
    if report.command == "check":
        failures = [case for case in report.cases if case.outcome not in CLEAN]
        yield Section("Failures", _cause_blocks(report, failures), "cause", "\n\n")
    else:
        for verdict, title in (
            (VerdictKind.REGRESSION, "Regressions"),
            (VerdictKind.FLAKY, "Flaky"),
            (VerdictKind.INTERFACE, "Interface"),
            (VerdictKind.FIXED, "Fixed"),
            (VerdictKind.CHANGED, "Changed"),
            (VerdictKind.DRIFT, "Drift"),
            (VerdictKind.NEW, "New"),
            (VerdictKind.REMOVED, "Removed"),
            (VerdictKind.KNOWN, "Known, not from this change"),
            (VerdictKind.NO_BASELINE, "Without a baseline"),
        ):
            cases = [case for case in report.cases if case.verdict is verdict]
            if verdict in _WITH_CAUSES:
                yield Section(title, _cause_blocks(report, cases), "cause", "\n\n")
            else:
                yield Section(title, [_item(case) for case in cases], "case")
    not_run = [f"- {item.kind} {code(item.name)}: {code(item.reason, 300)}" for item in report.not_run]
    yield Section("Not run, and why", not_run, "entry")
    yield Section("Workarounds hit", _workarounds(report.cases), "workaround")
    yield Section("Notes", [f"- {code(note, 400)}" for note in report.notes], "note")


_WITH_CAUSES = frozenset({VerdictKind.REGRESSION, VerdictKind.CHANGED, VerdictKind.KNOWN, VerdictKind.FLAKY})


def _item(case: CaseReport) -> str:
    details = "; ".join(code(detail) for detail in case.details[:DETAILS_SHOWN])
    if len(case.details) > DETAILS_SHOWN:
        details += f" and {len(case.details) - DETAILS_SHOWN} more"
    said = "" if case.verdict is VerdictKind.REMOVED else f": {cell(case)}"
    return f"- {code(str(case.id), 300)}{said}" + (f" ({details})" if details else "")


def _cause_blocks(report: Report, cases: Iterable[CaseReport]) -> list[str]:
    return [_cause(report, cause) for cause in causes(cases)]


def _cause(report: Report, cause: Cause) -> str:
    first = cause.first
    error, location = html_code(cause.error_type, 80), cause.location
    place = f"at {html_code(str(location), 160)}" if location else ""
    what = " ".join(part for part in (error, place) if part)
    summary = " · ".join(part for part in (cause.where, what, plural(len(cause.classes), "class")) if part)
    lines = [f"<details><summary>{summary}</summary>", ""]
    if first.message.strip():
        lines += [fenced(first.message), ""]
    lines.append(f"- classes: {_names(cause.classes)}")
    if len(cause.cases) > 1 or len(cause.classes) == 1:
        lines.append(f"- cases: {_names([str(case.id) for case in cause.cases])}")
    lines += [f"- {code(detail, 300)}" for detail in first.details[:DETAILS_SHOWN]]
    lines += [f"- {line}" for line in _upstream(first)]
    lines += [f"- reproduce: {code(reproduce(first.id, report.command), 400)}", "", "</details>"]
    return "\n".join(lines)


def _names(names: Sequence[str]) -> str:
    text = ", ".join(code(name, 300) for name in names[:NAMES_SHOWN])
    return text + (f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else "")


def _upstream(case: CaseReport) -> Iterable[str]:
    outcome = case.head or case.base
    if outcome is None:
        return
    issues = known_issues()
    for issue in matches(case.id.backend, outcome, issues):
        yield f"may be {_issue(issue)}"
    for issue in candidates(case.id.backend, outcome, issues):
        yield f"wrong numbers on this backend are also known from {_issue(issue)}"


def _issue(issue: UpstreamIssue) -> str:
    # Not a link: GitHub would tell the other repository of every report that mentions it.
    return f"{code(issue.reference)} ({code(issue.title)}, {issue.state}): {issue.advice}"


def _workarounds(cases: Iterable[CaseReport]) -> list[str]:
    hits: dict[str, set[str]] = {}
    for case in cases:
        outcome = case.head
        if outcome is not None and outcome.kind is not OutcomeKind.SKIPPED:
            for name in outcome.workarounds:
                hits.setdefault(name, set()).add(case.id.class_name)
    return [
        f"- {code(name)}: {plural(len(classes), 'class')}"
        for name, classes in sorted(hits.items(), key=lambda hit: (-len(hit[1]), hit[0]))
    ]
