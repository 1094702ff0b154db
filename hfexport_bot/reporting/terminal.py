"""A report in the terminal or in a CI log."""

from __future__ import annotations

from rich.console import Console

from hfexport_bot.reporting.audits import audit_line, by_need, named_versions
from hfexport_bot.reporting.console import print_line, print_table
from hfexport_bot.reporting.eager import eager_cell, eager_changes
from hfexport_bot.reporting.expectations import expectation_lines
from hfexport_bot.reporting.failures import blamed_line, error_name, largest_error_line, whose
from hfexport_bot.reporting.reproduce import reproduce_rest
from hfexport_bot.reporting.summary import (
    cell,
    column_title,
    columns,
    count_line,
    duration,
    headline,
    line_ranges,
    merge_safety,
    not_run_entries,
    origins,
    plural,
    remarks,
    row_labels,
    rows,
    sample_lines,
    unjudged,
    why_no_baseline,
)
from hfexport_bot.reporting.text import command_line, plain
from hfexport_bot.reporting.upstream import known_issue, what_to_do
from hfexport_bot.schema import Audit, CaseReport, Need, Report, VerdictKind
from hfexport_bot.verdicts.compare import CLEAN, counts, failing, first_line, place

#: Failing cases, and things not run, that are told one by one; the files have all.
SHOWN = 40

_NEVER_TOLD = frozenset({VerdictKind.OK, VerdictKind.UNCHANGED, VerdictKind.NO_BASELINE})


def print_report(report: Report, console: Console) -> None:
    """Print the table of outcomes, a short block for each case that fails or moved, what was not run and
    why, and the counts. Text of the code under test is printed as text: no markup, no control characters,
    no commands to GitHub's runner."""
    if report.cases:
        _print_table(report, console)
    told = sorted((case for case in report.cases if _worth_telling(case)), key=_rank)
    for case in told[:SHOWN]:
        _print_case(case, report, console)
    _print_rest(len(told), "more cases", console)
    for lines in report.unreached[:SHOWN]:
        inside = f" in {plain(lines.function)}" if lines.function else ""
        print_line(console, f"no case ran: {plain(lines.file)}:{line_ranges(lines.lines)}{inside}", "yellow")
    _print_rest(len(report.unreached), "more functions with changed lines that no case ran", console)
    changes = eager_changes(report.cases)
    for case, said in changes[:SHOWN]:
        print_line(console, f"eager: {plain(case.id.class_name)}: {plain(said, 400)}", "cyan")
    _print_rest(len(changes), "more models whose eager outputs changed", console)
    entries = expectation_lines(report)
    for entry in entries[:SHOWN]:
        print_line(console, f"expectation: {plain(entry.entry)}, {entry.said}", "yellow")
    _print_rest(len(entries), "more expectations that the change adds or removes", console)
    if report.audit is not None:
        _print_audit(report.audit, console)
    not_run = not_run_entries(report)
    for item in not_run[:SHOWN]:
        print_line(console, f"not run: {item.kind} {plain(item.name)}: {plain(item.reason)}", "dim")
    _print_rest(len(not_run), "more not run", console)
    for line in sample_lines(report):
        print_line(console, plain(line, 1_000), "yellow")
    if report.sample is not None:
        print_line(console, f"To run the rest: {command_line(reproduce_rest(report))}", "yellow")
    for note in report.notes:
        print_line(console, f"note: {plain(note, 400)}", "yellow")
    if noted := len(remarks(report.cases)):
        print_line(console, f"{plural(noted, 'blind spot')} of the checks: see the report", "dim")
    if report.failure:
        print_line(console, f"the run failed: {plain(report.failure, 1_000)}", "bold red")
    from_where = f" · {said}" if (said := origins(report.cases)) else ""
    print_line(console, f"{count_line(counts(report))} in {duration(report.seconds)}{from_where}")
    doubtful = merge_safety(report) == "unknown" or (not report.cases and bool(unjudged(report)))
    colour = "red" if failing(report) else "yellow" if doubtful else "green"
    print_line(console, f"Export check: {headline(report)}", f"bold {colour}")


def _print_audit(audit: Audit, console: Console) -> None:
    for note in audit.notes:
        print_line(console, f"workarounds: {plain(note, 400)}", "yellow")
    found = by_need(audit.workarounds)
    for each in found[:SHOWN]:
        print_line(console, audit_line(each), "yellow" if each.need is Need.NOT_NEEDED else "")
    _print_rest(len(found), "more workarounds", console)
    if audit.versions:
        print_line(console, f"workarounds: with {named_versions(audit.versions)}", "dim")


def _worth_telling(case: CaseReport) -> bool:
    return case.outcome not in CLEAN or case.verdict not in _NEVER_TOLD


def _rank(case: CaseReport) -> int:
    if case.verdict is VerdictKind.REGRESSION:
        return 0
    return 1 if case.outcome not in CLEAN else 2


def _print_table(report: Report, console: Console) -> None:
    shown = columns(report.cases)
    eager = any(case.eager for case in report.cases)
    lines = rows(report.cases)
    table = []
    for row, label in zip(lines, row_labels(lines), strict=True):
        cells = [cell(row.cases[column]) if column in row.cases else "" for column in shown]
        cells += [eager_cell(row.cases.values())] if eager else []
        table.append((plain(label), *cells))
    print_table(console, ("Class", *map(column_title, shown), *(("eager",) if eager else ())), table)


def _print_case(case: CaseReport, report: Report, console: Console) -> None:
    side = case.head or case.base
    stage = f" at {plain(place(side) if side else case.stage, 80)}" if case.stage else ""
    why = why_no_baseline(report) if case.verdict is VerdictKind.NO_BASELINE else ""
    verdict = f"{case.verdict.value} ({why})" if why else case.verdict.value
    print_line(console, f"{plain(str(case.id), 300)}: {verdict}, {case.outcome.value}{stage}", "bold")
    error = plain(error_name(case), 80)
    message = plain(first_line(case.message), 300)
    if message:
        print_line(console, f"    {error}: {message}" if error else f"    {message}")
    if line := blamed_line(case):
        function = f" in {line.function}" if line.function else ""
        print_line(console, f"    {plain(str(line) + function)}{whose(case.blame) if case.blame else ''}", "cyan")
    if largest := largest_error_line(case):
        print_line(console, f"    {plain(largest)}")
    for detail in case.details:
        print_line(console, f"    {plain(detail)}")
    if issue := known_issue(case, report.versions):
        told = issue.advice or f"our workaround is {issue.workaround}"
        print_line(console, f"    may be {issue.reference} ({issue.state}): {plain(told)}")
    elif advice := what_to_do(case, report.versions):
        print_line(console, f"    what to do: {advice}")


def _print_rest(total: int, what: str, console: Console) -> None:
    if total > SHOWN:
        print_line(console, f"{total - SHOWN:,} {what}: see the report", "dim")
