"""The part of `run` that finds out whether the workarounds that a change is about are still needed."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hfexport_bot.audit import Trials, audit_change, audit_workarounds
from hfexport_bot.changes.place import installed_root
from hfexport_bot.changes.registrations import OWN_FOLDER
from hfexport_bot.changes.tree import FolderTree, GitTree
from hfexport_bot.changes.workarounds import EditedWorkarounds
from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.execution.session import SessionResult
from hfexport_bot.plan import PlannedCase
from hfexport_bot.preparation import Surroundings
from hfexport_bot.schema import Audit, Revision, WorkaroundAudit
from hfexport_bot.settings import Overrides

#: The part of budget-minutes that a change to workarounds or to what they are for leaves to their audit.
ASIDE = 0.25
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass
class ChangeAudit:
    """What a change is about, and what was found of it so far.

    Attributes:
        until: when to be done, by ``time.monotonic``; None for no limit.
    """

    edited: EditedWorkarounds
    until: float | None = None
    workarounds: dict[str, WorkaroundAudit] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def of(cls, edited: EditedWorkarounds, head: GitTree, until: float | None = None) -> ChangeAudit:
        """What can be audited here of what a change edits."""
        found = cls(edited, until)
        if found.edited.registered and not _is_installed(head):
            found.notes.append("the exporters that are installed are not those of head: none of them was audited")
            found.edited = found.edited.without_registered()
        return found

    def without_unmet(self, unmet: Sequence[str]) -> None:
        """Leave out the packages that head did not run with as it asks for them."""
        named = {match.group() for text in unmet if (match := _PACKAGE.match(text))}
        missed = [said for name, said in self.edited.packages.items() if name in named]
        self.edited = self.edited.without(named)
        if missed:
            self.notes.append(
                f"{', '.join(missed)}: head did not run with that, so no workaround was audited for it; use --install"
            )

    def on_cases(self, planned: Sequence[PlannedCase], result: SessionResult, trials: Trials) -> None:
        """Audit on the cases of the change itself, with the runner that they ran on."""
        started = time.monotonic()
        found = audit_change(self.edited, planned, result.head, trials, self.until)
        self.workarounds |= {each.id: each for each in found}
        self.versions |= trials.versions
        self._tell(trials.fatal)
        self.seconds += time.monotonic() - started

    def on_installed(self, overrides: Overrides, around: Surroundings) -> None:
        """Audit this project's own workarounds that no case of the change hit, on models of the installed
        transformers."""
        if not self.edited.registered:
            return
        try:
            named = [name for name in sorted(around.list_ids()) if name.rpartition("/")[2] in self.edited.registered]
            left = [name for name in named if name not in self.workarounds]
            if not left:
                return
            found = audit_workarounds(left, (), None, overrides, around, self.until)
        except (RunError, UsageError) as error:
            self._tell(str(error))
            return
        self.workarounds |= {each.id: each for each in found.workarounds}
        self.versions = found.versions | self.versions
        self.notes += found.notes
        self._tell(found.failure)
        self.seconds += found.seconds

    def report(self, revision: Revision) -> Audit | None:
        """What the report has of it; None where the change is about no workaround."""
        called, removed = self.edited.calls_for_audit, sorted(self.edited.removed)
        if not (called or removed or self.notes):
            return None
        unhit = called and not (self.workarounds or self.notes)
        none = ("no case that ran hits a workaround for this",) if unhit else ()
        return Audit(
            revision=revision,
            workarounds=tuple(self.workarounds.values()),
            notes=(*(f"removed by this change: {name}" for name in removed), *called, *self.notes, *none),
            seconds=self.seconds,
            versions=self.versions,
        )

    def _tell(self, problem: str) -> None:
        if problem:  # never a failure of the run, which has its verdicts
            self.notes.append(f"the audit could not go on: {problem}")


def _is_installed(head: GitTree) -> bool:
    """Whether the exporters that run are those of a revision."""
    root = installed_root(OWN_FOLDER)
    if root is None:
        return False
    installed, paths = FolderTree(root), [path for path in head.files(OWN_FOLDER) if path.endswith(".py")]
    blobs = head.blobs()
    contents = head.contents([blobs[path] for path in paths])
    return all(installed.read(path) == contents[blobs[path]] for path in paths)
