"""The check run of a commit: it always concludes, says why, and points at the lines to edit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from hfexport_bot.github.answers import CheckRun
from hfexport_bot.github.client import Client
from hfexport_bot.reporting.failures import blamed_line, error_name
from hfexport_bot.reporting.markdown import render
from hfexport_bot.reporting.reproduce import reproduce
from hfexport_bot.reporting.summary import Cause, causes, merge_safety, unjudged
from hfexport_bot.reporting.text import clean, command_line, plain
from hfexport_bot.reporting.upstream import what_to_do
from hfexport_bot.schema import MAX_NAME_CHARS, CaseReport, Report
from hfexport_bot.verdicts.compare import cases_to_act_on, failing, red_cases

#: GitHub's limits: of the summary in characters, of annotations in one request.
MAX_SUMMARY_CHARS = 65_535
BATCH = 50
#: More annotations than anybody reads; the summary has the rest.
MAX_ANNOTATIONS = 300
_ESCAPES = frozenset({"", ".", "..", "~"})
_NAMES_SHOWN = 10
_MESSAGE_CHARS = 1_500


class Conclusion(StrEnum):
    """How a check ends, the worst last. Of these GitHub lets a required check pass on success, skipped and neutral."""

    SUCCESS = "success"
    SKIPPED = "skipped"
    NEUTRAL = "neutral"
    CANCELLED = "cancelled"
    ACTION_REQUIRED = "action_required"
    FAILURE = "failure"

    def is_worse_than(self, other: Conclusion) -> bool:
        """Whether this is the worse end of two."""
        order = [*Conclusion]
        return order.index(self) > order.index(other)


@dataclass(frozen=True)
class Check:
    """A check run to be. ``id`` tells the run it is of, so that publishing again updates it; ``of`` what its result is
    of, where others may have one of the same commit, and ``own`` how that ended, whatever the check shows."""

    name: str
    sha: str
    id: str
    conclusion: Conclusion
    title: str
    summary: str
    details_url: str
    annotations: tuple[dict[str, Any], ...] = ()
    of: str = ""
    own: Conclusion | None = None

    @property
    def external_id(self) -> str:
        """What GitHub keeps of all that: `worse_of_others` reads it again."""
        return f"{self.id} {self.of} {self.own or self.conclusion}" if self.of else self.id


@dataclass(frozen=True)
class Other:
    """How the result of something else with the same commit ended, by its newest check run at ``url``."""

    of: str
    conclusion: Conclusion
    url: str


@dataclass(frozen=True)
class WrittenCheck:
    """A check run that is there: its address, and the short name of the app that made it."""

    url: str
    app: str


def conclude(report: Report, ran: str = "") -> Conclusion:
    """What a report means for the check: red is what fails the command; a run that could not have seen a regression, or
    left changed files without judgement, is neutral. One that ended with ``ran`` cancelled is so, unless it is red."""
    if ran == "cancelled" and not red_cases(report):
        return Conclusion.CANCELLED
    if failing(report):
        return Conclusion.FAILURE
    if report.command == "run" and (merge_safety(report) == "unknown" or (not report.cases and unjudged(report))):
        return Conclusion.NEUTRAL
    return Conclusion.SUCCESS


def conclude_without(ran: str) -> Conclusion:
    """What it means that there is no report to read, of a run that ended with ``ran``."""
    # GitHub takes a skipped check for a passed one, and nothing has been looked at.
    return {"cancelled": Conclusion.CANCELLED, "skipped": Conclusion.ACTION_REQUIRED}.get(ran, Conclusion.FAILURE)


def worse_of_others(
    client: Client, repository: str, name: str, sha: str, of: str, conclusion: Conclusion
) -> Iterator[Other]:
    """What else has a check of this name and commit that ended worse, the worst first. GitHub shows only the newest of
    them, so that a second pull request with the same head would hide that the first one is red."""
    newest: dict[str, tuple[int, Other]] = {}
    for each in _check_runs(client, repository, name, sha):
        parts = (each.external_id or "").split()
        if len(parts) == 3 and parts[1] != of and parts[2] in {*Conclusion}:
            found = Other(parts[1], Conclusion(parts[2]), each.html_url or "")
            newest[found.of] = max(newest.get(found.of, (0, found)), (each.id, found), key=lambda pair: pair[0])
    worse = [each for _, each in newest.values() if each.conclusion.is_worse_than(conclusion)]
    yield from sorted(worse, key=lambda each: [*Conclusion].index(each.conclusion), reverse=True)


def _check_runs(client: Client, repository: str, name: str, sha: str) -> Iterator[CheckRun]:
    asked = {"check_name": name, "filter": "all"}
    return client.pages(f"/repos/{repository}/commits/{sha}/check-runs", CheckRun, asked, "check_runs")


def check_summary(report: Report, footer: str) -> str:
    """A report as a check run shows it."""
    return f"{render(report, MAX_SUMMARY_CHARS - len(footer) - 2)}\n{footer}"


def annotate(report: Report) -> tuple[dict[str, Any], ...]:
    """An annotation for each place of each cause: red where it makes the check red, otherwise a warning."""
    red = {case.id for case in red_cases(report)}
    made = (
        _annotation(place, "failure" if place.first.id in red else "warning", report)
        for cause in causes(cases_to_act_on(report))
        for place in _places(cause)
    )
    return tuple(each for each in made if each is not None)[:MAX_ANNOTATIONS]


def _places(cause: Cause) -> Iterable[Cause]:
    """The parts of a cause that have one place each."""
    found: dict[str, list[CaseReport]] = {}
    for case in cause.cases:
        found.setdefault(str(blamed_line(case)), []).append(case)
    return (Cause(tuple(cases)) for cases in found.values())


def _annotation(cause: Cause, level: str, report: Report) -> dict[str, Any] | None:
    place = blamed_line(cause.first)
    if place is None or not 1 <= place.line < 1 << 31 or not _is_inside(place.file):
        return None
    message = clean(cause.first.message).strip()[:_MESSAGE_CHARS]
    names = [plain(name, 100) for name in cause.classes]
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    lines = [
        message,
        what_to_do(cause.first, report.versions),
        f"Classes: {', '.join(names[:_NAMES_SHOWN])}{more}",
        command_line(reproduce(cause.first.id, report.rerun)),
    ]
    return {
        "path": place.file,
        "start_line": place.line,
        "end_line": place.line,
        "annotation_level": level,
        "title": plain(" · ".join(part for part in (cause.where, error_name(cause.first)) if part), 200),
        "message": "\n\n".join(line for line in lines if line),
    }


def _is_inside(file: str) -> bool:
    """Whether a path is one below the repository's root, written plainly."""
    plainly = file == plain(file, MAX_NAME_CHARS) == str(PurePosixPath(file))
    return plainly and not _ESCAPES & set(file.split("/"))


def write_check(client: Client, repository: str, check: Check) -> WrittenCheck:
    """Create the check run, or update the one of the same run; annotations go in batches, each once."""
    runs = f"/repos/{repository}/check-runs"

    def existing() -> CheckRun | None:
        every = _check_runs(client, repository, check.name, check.sha)
        return next((each for each in every if (each.external_id or "").partition(" ")[0] == check.id), None)

    run, first = existing(), check.annotations[:BATCH]
    if run is None:
        run = create_check(client, repository, check, existing)
        sent = len(first)
    else:
        run = client.patch(f"{runs}/{run.id}", _body(check, ()), CheckRun)
        sent = run.output.annotations_count
    one = f"{runs}/{run.id}"
    while sent < len(check.annotations):
        batch = check.annotations[sent : sent + BATCH]
        expected = sent + len(batch)

        def arrived(expected: int = expected) -> CheckRun | None:
            now = client.get(one, CheckRun)
            return now if now.output.annotations_count >= expected else None

        client.once("PATCH", one, _body(check, batch), CheckRun, arrived)
        sent = expected
    return WrittenCheck(run.html_url or "", (run.app and run.app.slug) or "")


def create_check(
    client: Client, repository: str, check: Check, existing: Callable[[], CheckRun | None] = lambda: None
) -> CheckRun:
    """Create the check run with its first annotations. ``existing`` finds it after a try whose answer was lost."""
    body = {**_body(check, check.annotations[:BATCH]), "head_sha": check.sha}
    return client.once("POST", f"/repos/{repository}/check-runs", body, CheckRun, existing)


def _body(check: Check, batch: Sequence[dict[str, Any]]) -> dict[str, Any]:
    output: dict[str, Any] = {"title": plain(check.title, 250), "summary": check.summary}
    if batch:
        output["annotations"] = list(batch)
    body: dict[str, Any] = {"name": check.name, "external_id": check.external_id, "status": "completed"}
    body |= {"conclusion": check.conclusion.value, "output": output}
    return {**body, "details_url": check.details_url} if check.details_url else body
