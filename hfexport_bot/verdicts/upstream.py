"""Issues elsewhere that a failure may be, from ``known_upstream.yml``. Offered as "may be", never as a
verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import field_validator, model_validator

from hfexport_bot.schema import Backend, Outcome, OutcomeKind, Record

#: Outcomes that say nothing of a cause: no issue is ever offered for them.
NEVER = frozenset({OutcomeKind.TIMEOUT, OutcomeKind.OOM, OutcomeKind.CRASH})


class UpstreamIssue(Record):
    """One entry. ``state`` is as last seen. Without ``signature`` it is about wrong numbers (``kinds:
    [parity]``) and can only be a candidate."""

    id: str
    repo: str
    number: int
    url: str
    title: str
    state: Literal["open", "closed", "merged"]
    backends: tuple[Backend, ...]
    stages: tuple[str, ...]
    kinds: tuple[OutcomeKind, ...]
    signature: str | None = None
    advice: str

    @property
    def reference(self) -> str:
        """As it is written on GitHub: ``pytorch/pytorch#180202``."""
        return f"{self.repo}#{self.number}"

    @field_validator("signature")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from error
        return value

    @model_validator(mode="after")
    def _is_specific(self) -> UpstreamIssue:
        if NEVER & set(self.kinds):
            raise ValueError(f"{self.id}: timeout, oom and crash match no issue")
        if self.signature is None and set(self.kinds) != {OutcomeKind.PARITY}:
            raise ValueError(f"{self.id}: only parity entries may leave the signature out")
        return self


def read(text: str) -> tuple[UpstreamIssue, ...]:
    """Read entries from YAML. Raises ``ValueError`` (pydantic's) for one that is not as described."""
    return tuple(UpstreamIssue.model_validate(entry) for entry in yaml.safe_load(text))


@cache
def known_issues() -> tuple[UpstreamIssue, ...]:
    """The entries that come with the package."""
    return read(files(__package__).joinpath("known_upstream.yml").read_text(encoding="utf-8"))


def matches(backend: Backend, outcome: Outcome, issues: Sequence[UpstreamIssue]) -> tuple[UpstreamIssue, ...]:
    """The issues whose signature is found in the failure's error type and message."""
    text = f"{outcome.error_type}: {outcome.message}"
    return tuple(
        issue
        for issue in issues
        if issue.signature and _applies(issue, backend, outcome) and re.search(issue.signature, text)
    )


def candidates(backend: Backend, outcome: Outcome, issues: Sequence[UpstreamIssue]) -> tuple[UpstreamIssue, ...]:
    """The issues known to give wrong numbers on this backend: worth a look, no more."""
    return tuple(issue for issue in issues if not issue.signature and _applies(issue, backend, outcome))


def _applies(issue: UpstreamIssue, backend: Backend, outcome: Outcome) -> bool:
    return (
        outcome.kind not in NEVER
        and backend in issue.backends
        and outcome.stage in issue.stages
        and outcome.kind in issue.kinds
    )
