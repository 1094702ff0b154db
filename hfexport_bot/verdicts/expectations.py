"""What a repository expects to fail, on both sides of a change, and what that makes of a case. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hfexport_bot.changes.expectations import Change, Expectation
from hfexport_bot.schema import CaseId, Expected, Outcome, OutcomeKind
from hfexport_bot.settings import AcceptedEntry

#: What is said of an entry that a change adds for what passes.
NOT_NEEDED = "the entry is not needed: it passes"


@dataclass(frozen=True)
class Expectations:
    """Both sides' entries, those that have expired left out; ``expired`` names head's of the settings that have."""

    base: Sequence[Expectation] = ()
    head: Sequence[Expectation] = ()
    expired: frozenset[str] = frozenset()

    def of(self, case: CaseId) -> Expected | None:
        """The entry that a case is expected to fail by, and what the change does to it.

        It is in force where base has it and head does not give it up: as the same entry or as another one.
        """
        before, now = _covering(case, self.base), _covering(case, self.head)
        if before is not None:
            return _expected(before, "in force" if now else _end(before, self.expired))
        return _expected(now, "added") if now else None


#: Outcomes by which an entry for a failure was not tried.
TELLS_NOTHING = frozenset({OutcomeKind.UNAVAILABLE, OutcomeKind.NONDETERMINISTIC})

#: What a change makes of an entry whose cases then have to pass.
ENDED = frozenset({"removed", "expired"})

#: Begins the name of an entry of the settings.
IN_SETTINGS = "accepted"

#: Where nothing is known of any.
NONE_EXPECTED = Expectations()


def of_accepted(entries: Iterable[AcceptedEntry]) -> tuple[Expectation, ...]:
    """The entries of the settings as expectations."""
    return tuple(Expectation(IN_SETTINGS, each.id, each.reason, each.id) for each in entries)


def changed_accepted(
    base: Sequence[Expectation], head: Sequence[Expectation], expired: frozenset[str] = frozenset()
) -> Iterator[tuple[Expectation, Change]]:
    """The entries of the settings that a change adds, removes or lets expire; ``expired`` names those of head."""
    before, now = ({each.name for each in entries} for entries in (base, head))
    yield from ((each, _end(each, expired)) for each in base if each.name not in now)
    yield from ((each, "added") for each in head if each.name not in before)


def _end(entry: Expectation, expired: frozenset[str]) -> Literal["removed", "expired"]:
    """How an entry that is no longer in force came to that."""
    return "expired" if entry.where == IN_SETTINGS and entry.name in expired else "removed"


def untried(changed: Iterable[tuple[Expectation, Change]], cases: Collection[CaseId]) -> tuple[Expected, ...]:
    """The entries that a change adds or removes and that are for none of the cases."""
    return tuple(_expected(entry, change) for entry, change in changed if not any(map(entry.covers, cases)))


def must_pass(expected: Expected | None, head: Outcome | None) -> bool:
    """Whether a case has to pass since its entry was removed; what could not be tried on head tells nothing."""
    return expected is not None and expected.change in ENDED and head is not None and head.kind not in TELLS_NOTHING


def is_accepted(by_settings: bool, expected: Expected | None) -> bool:
    """Whether a failure is covered by an entry that base has and the change does not remove."""
    return by_settings if expected is None else expected.change == "in force"


def said_of(expected: Expected, head: Outcome | None) -> tuple[str, ...]:
    """What is said of a case that an entry is for: nothing where it has no outcome, or the entry explains nothing."""
    if head is None:
        return ()
    passes = head.kind is OutcomeKind.PASS
    entry = f"{expected.entry}: {expected.reason}" if expected.reason else expected.entry
    if expected.change in ENDED:
        ended = "expired" if expected.change == "expired" else "was removed"
        return (f"its expectation {ended} by this change{', and it passes' if passes else ''}: {entry}",)
    if expected.change == "added":
        return (f"{NOT_NEEDED}: {entry}" if passes else f"this change expects it to fail: {entry}",)
    return () if passes else (f"expected to fail: {entry}",)


def _covering(case: CaseId, entries: Iterable[Expectation]) -> Expectation | None:
    return next((entry for entry in entries if entry.covers(case)), None)


def _expected(entry: Expectation, change: str) -> Expected:
    return Expected.model_validate({"entry": str(entry), "reason": entry.reason, "change": change})
