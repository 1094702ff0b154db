"""What to do about a failure: mend what is the model's own, see the issue that it may be, or file one. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tabulate import tabulate

from hfexport_bot.reporting.reproduce import check_again, is_of_a_file
from hfexport_bot.reporting.summary import BACKENDS, STAGE_NAMES, plural
from hfexport_bot.reporting.text import MAX_COMMAND_CHARS, code, command_line, fenced, one_line
from hfexport_bot.schema import STAGES, Backend, CaseReport, Engine, Outcome, OutcomeKind, Report
from hfexport_bot.verdicts.advice import advice_on
from hfexport_bot.verdicts.compare import first_line
from hfexport_bot.verdicts.upstream import (
    UpstreamIssue,
    best_match,
    is_full_sweep,
    known_issues,
    of_backends_run,
    stale,
)

#: Outcomes that an issue elsewhere can be about.
_FAULTS = frozenset({OutcomeKind.ERROR, OutcomeKind.UNSUPPORTED, OutcomeKind.PARITY})

#: The longest title that GitHub takes is 256 characters.
TITLE_CHARS = 200


#: The heading in docs/extending.md of what an advice is a row of.
_TABLE = '"Fix the model instead?"'

#: Of a model that nobody else has.
_ATTACH = "(with the code of the class, or what is left of it that still fails)"

#: Begins what is said of other inputs than the traced ones.
_PROBE = re.compile(r"probe [\w-]+: (?:eager takes it, but: )?")


def known_issue(case: CaseReport, versions: Mapping[str, str]) -> UpstreamIssue | None:
    """The issue elsewhere that a case's failure may be."""
    outcome = case.head or case.base
    return best_match(case.id.backend, outcome, versions, known_issues()) if outcome else None


def issue_line(issue: UpstreamIssue) -> str:
    """An issue, its state, and what to do about it."""
    offered = "wrong numbers on this backend are also known from" if issue.operators else "may be"
    affected = "; affects " + ", ".join(f"{name} {range_}" for name, range_ in issue.versions.items())
    state = issue.state + (affected if issue.versions else "")
    ours = f"our exporters work around it: {code(issue.workaround)}" if issue.workaround else ""
    what_to_do = "; ".join(part for part in (issue.advice, ours) if part)
    # Not a link: GitHub would tell the other repository of every report that mentions it.
    return f"{offered} {code(issue.reference)} ({code(issue.title)}, {state}): {what_to_do}"


def what_to_do(case: CaseReport, versions: Mapping[str, str]) -> str:
    """What to do about a failure that is the repository's own. Empty where that is not known, or a known issue is more
    specific. Holds no untrusted text."""
    if known_issue(case, versions) is not None:
        return ""
    if case.blame and case.blame.workaround:
        return "look first at the line above: it is a workaround of this repository's own"
    found = advice_on(case)
    return f"{found.advice} (hfexport-bot's docs/extending.md, {_TABLE}: {found.row} …)" if found else ""


def issue_text(case: CaseReport, report: Report) -> str:
    """A collapsed block with an issue to be filed: title, error, command and versions. Empty where there is no fault
    of an exporter or a runtime to tell of, or the failure is the repository's own.

    It is Markdown inside a fenced block, and what comes from the untrusted side stands in a fence of its own there
    too, so that it is text wherever it is pasted.
    """
    outcome = case.head or case.base
    if outcome is None or outcome.kind not in _FAULTS or outcome.stage in STAGES["prepare"]:
        return ""
    if what_to_do(case, report.versions):
        return ""
    exporting = "Exporting with torch.export" if case.id.backend is Backend.DYNAMO else f"Exporting to {_target(case)}"
    exporting += " by `transformers.exporters`" if case.id.engine is Engine.REPO else ""
    stage = f"`{outcome.stage}`" if outcome.stage in STAGE_NAMES else "an unknown stage"
    ran = outcome.stage in STAGES["check"]
    fault = {
        OutcomeKind.PARITY: "works, but the program gives other numbers than eager PyTorch",
        OutcomeKind.UNSUPPORTED: "works, but the runtime does not take the program",
    }.get(outcome.kind, f"works, but the program fails in stage {stage}" if ran else f"fails in stage {stage}")
    versions = ", ".join(f"{name} {version}" for name, version in list(report.versions.items())[:12])
    text = [
        f"Title: {_title(case, outcome)}",
        "",
        f"{exporting} {fault}.",
        "",
        fenced(outcome.message or outcome.error_type, max_lines=12, max_chars=900),
        "",
        "To reproduce:",
        "",
        fenced(command_line(check_again(case.id)), max_chars=MAX_COMMAND_CHARS),
        *(["", _ATTACH] if is_of_a_file(case.id) else []),
        "",
        f"Versions: {code(versions, 400)}",
    ]
    block = fenced("\n".join(text), max_lines=100, max_chars=10_000)
    ours = case.blame is not None and case.blame.changed
    said = "no upstream issue is known: the text of one"
    if ours:
        said = "if the code of this change is right: the text of an upstream issue"
    elif outcome.kind is OutcomeKind.PARITY:  # nothing of which tells whose fault they are
        said = "if the code of this model is right: the text of an upstream issue"
    return f"<details><summary>{said}</summary>\n\n{block}\n\n</details>"


def _target(case: CaseReport) -> str:
    return BACKENDS[case.id.backend]


def _title(case: CaseReport, outcome: Outcome) -> str:
    kind = outcome.error_type.rpartition(".")[2]
    message = _PROBE.sub("", first_line(outcome.message))
    said = (
        "wrong numbers" if outcome.kind is OutcomeKind.PARITY else ": ".join(part for part in (kind, message) if part)
    )
    return one_line(f"[{_target(case)}] {case.id.class_name}: {said or outcome.kind.value}", TITLE_CHARS)


def render_stale(reports: Sequence[Report], known: Sequence[UpstreamIssue]) -> str:
    """A table for a terminal of the entries that nothing in some reports is an instance of, how many there could have
    been, and what speaks against taking it for more than it is."""
    found, possible = stale(reports, known), of_backends_run(reports, known)
    lines = [_stale_table(found, len(possible))] if possible else []
    if left := len(known) - len(possible):
        lines.append(f"{plural(left, 'known upstream issue')} of backends that were not run: not counted")
    if not all(map(is_full_sweep, reports)):
        lines.append("not of a full sweep (`hfexport-bot sweep`, no models named): what was not met may be there still")
    return "\n".join(lines)


def _stale_table(found: Sequence[UpstreamIssue], possible: int) -> str:
    if not found:
        return f"each of the {possible} known upstream issues was met"
    rows = [(each.id, f"{each.url} ({each.state})", each.workaround) for each in found]
    table = tabulate(
        rows, headers=("id", "issue", "workaround that hides it"), tablefmt="simple", disable_numparse=True
    )
    return f"{table}\n\n{len(found)} of {possible} known upstream issues were not met"
