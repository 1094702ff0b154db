"""Issues elsewhere that a failure may be, from ``known_upstream.yml``. Offered as "may be", never as a
verdict. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator, model_validator

from hfexport_bot.changes.targets import EVERY_MODEL
from hfexport_bot.schema import Backend, Outcome, OutcomeKind, Record, Report
from hfexport_bot.verdicts.entries import Pattern, packaged_entries

#: Outcomes that say nothing of a cause: no issue is ever offered for them.
NEVER = frozenset({OutcomeKind.TIMEOUT, OutcomeKind.OOM, OutcomeKind.CRASH})


class UpstreamIssue(Record):
    """One entry. ``state`` is as last seen.

    ``texts``: regular expressions that are all found in a failure's error type, message and place.
    ``operators``: for wrong numbers, where no message tells: those that the exported graph has, any of them. Beside
    them ``inputs``, regular expressions of the names of what the graph is fed, or ``texts``: any of either is found.
    ``versions``: the range that is affected, by package, as far as it is known.
    ``workaround``: the id of ours for it.
    """

    id: str
    repo: str
    number: int
    url: str
    title: str
    state: Literal["open", "closed", "merged"]
    backends: Annotated[tuple[Backend, ...], Field(min_length=1)]
    stages: Annotated[tuple[str, ...], Field(min_length=1)]
    kinds: Annotated[tuple[OutcomeKind, ...], Field(min_length=1)] = (OutcomeKind.ERROR,)
    texts: tuple[Pattern, ...] = ()
    operators: tuple[str, ...] = ()
    inputs: tuple[Pattern, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    workaround: str = ""
    advice: str = ""

    @property
    def reference(self) -> str:
        """As it is written on GitHub: ``pytorch/pytorch#180202``."""
        return f"{self.repo}#{self.number}"

    @field_validator("versions")
    @classmethod
    def _are_specifiers(cls, versions: dict[str, str]) -> dict[str, str]:
        for package, affected in versions.items():
            try:
                SpecifierSet(affected)
            except InvalidSpecifier as error:
                raise ValueError(f"{package}: {affected!r} is no range of versions, such as '>=2.5,<2.7'") from error
        return versions

    @model_validator(mode="after")
    def _is_specific(self) -> UpstreamIssue:
        if NEVER & set(self.kinds):
            raise ValueError(f"{self.id}: timeout, oom and crash match no issue")
        if not (self.texts or self.operators):
            raise ValueError(f"{self.id}: give texts or operators to tell it by")
        if self.inputs and not self.operators:
            raise ValueError(f"{self.id}: inputs only narrow what operators tell")
        if self.operators and set(self.kinds) != {OutcomeKind.PARITY}:
            raise ValueError(f"{self.id}: only wrong numbers (kinds: [parity]) are told by operators")
        if not self.workaround and not self.advice:
            raise ValueError(f"{self.id}: name a workaround of ours, or give an advice")
        return self


@cache
def known_issues() -> tuple[UpstreamIssue, ...]:
    """The entries that come with the package."""
    return packaged_entries("known_upstream.yml", UpstreamIssue)


def best_match(
    backend: Backend, outcome: Outcome, versions: Mapping[str, str], issues: Sequence[UpstreamIssue]
) -> UpstreamIssue | None:
    """The most specific issue that a failure may be, or None.

    ``versions`` are the installed ones by package. More specific is, in this order: the one of whose texts more
    characters are found; one whose range holds an installed version over one without a range; fewer stages; fewer
    backends. Among equals an open one wins, then the first by id.
    """
    ranked = [
        (
            -found,
            not _confirmed(issue, versions),
            len(issue.stages),
            len(issue.backends),
            issue.state != "open",
            issue.id,
        )
        for issue in issues
        if (found := _found(issue, backend, outcome, versions))
    ]
    best = min(ranked, default=None)
    return next(issue for issue in issues if issue.id == best[-1]) if best else None


def of_backends_run(reports: Iterable[Report], issues: Sequence[UpstreamIssue]) -> tuple[UpstreamIssue, ...]:
    """The issues that some case of the reports could have met, by its backend."""
    ran = {case.id.backend for report in reports for case in report.cases}
    return tuple(issue for issue in issues if not ran.isdisjoint(issue.backends))


def is_full_sweep(report: Report) -> bool:
    """Whether a report is of every model, and all of it was run."""
    whole = not (report.failure or report.sample or (report.shard and report.shard.of > 1))
    return whole and bool(report.cases) and all(case.reason == EVERY_MODEL for case in report.cases)


def stale(reports: Sequence[Report], issues: Sequence[UpstreamIssue]) -> tuple[UpstreamIssue, ...]:
    """The issues that no failure of some reports is an instance of, on either side, and whose workaround nothing hit;
    not those of backends that the reports did not run.

    Tells something of a full sweep only.
    """
    left = {issue.id: issue for issue in of_backends_run(reports, issues)}
    for report in reports:
        for case in report.cases:
            for outcome in filter(None, (case.base, case.head)):
                for issue in tuple(left.values()):
                    hit = issue.workaround in outcome.workarounds
                    if hit or _found(issue, case.id.backend, outcome, report.versions):
                        del left[issue.id]
    return tuple(left.values())


def _found(issue: UpstreamIssue, backend: Backend, outcome: Outcome, versions: Mapping[str, str]) -> int:
    """How many characters of a failure an issue is recognised by; 0 where it is not the failure."""
    if outcome.kind not in issue.kinds or backend not in issue.backends or outcome.stage not in issue.stages:
        return 0
    if any(
        not _within(versions[package], affected) for package, affected in issue.versions.items() if package in versions
    ):
        return 0
    if issue.operators:
        there = {operator for component in outcome.components for operator in component.operators}
        return int(not there.isdisjoint(issue.operators) and _narrowed(issue, outcome))
    text = f"{outcome.error_type}: {outcome.message}"
    if outcome.location:
        text += f"\nat {outcome.location.file} in {outcome.location.function}"
    matches = [re.search(pattern, text) for pattern in issue.texts]
    return sum(len(match[0]) for match in matches if match) if all(matches) else 0


def _narrowed(issue: UpstreamIssue, outcome: Outcome) -> bool:
    """Whether wrong numbers of a graph with an issue's operators are of the kind that it is about."""
    if not (issue.texts or issue.inputs):
        return True
    fed = {*outcome.fed, *(name for component in outcome.components for name in component.inputs)}
    named = any(re.search(pattern, name) for pattern in issue.inputs for name in fed)
    return named or any(re.search(pattern, outcome.message) for pattern in issue.texts)


def _confirmed(issue: UpstreamIssue, versions: Mapping[str, str]) -> bool:
    return any(package in versions for package in issue.versions)


def _within(version: str, affected: str) -> bool:
    try:
        return SpecifierSet(affected).contains(Version(version), prereleases=True)
    except InvalidVersion:  # said by the untrusted side
        return True
