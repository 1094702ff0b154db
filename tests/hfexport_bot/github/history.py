"""The commits of a GitHub on this machine, and how two of them compare, worked out as git does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.hfexport_bot.github.payloads import component


@dataclass
class History:
    """Commits with their parents, and branches with their last commit."""

    commits: dict[str, list[str]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def add(self, sha: str, *parents: str) -> None:
        """Put a commit there, unless it is, and its parents."""
        for parent in parents:
            self.commits.setdefault(parent, [])
        self.commits.setdefault(sha, [*parents])

    def commit(self, sha: str) -> Any:
        """A commit as GitHub gives it."""
        return component("commit", {"sha": sha, "parents": [{"sha": parent} for parent in self.commits[sha]]})

    def compare(self, base: str, head: str) -> Any:
        """How a branch or commit differs from another, as GitHub tells; None where one is not there, and where they
        have nothing in common."""
        base, head = (self.branches.get(each, each) for each in (base, head))
        if not {base, head} <= self.commits.keys():
            return None
        before, after = self._reached(base), self._reached(head)
        common = before & after
        best = [each for each in sorted(common) if not any(each in self._reached(other) - {other} for other in common)]
        if not best:
            return None
        ahead, behind = len(after - before), len(before - after)
        status = ("diverged" if behind else "ahead") if ahead else ("behind" if behind else "identical")
        values = {
            "status": status,
            "ahead_by": ahead,
            "behind_by": behind,
            "total_commits": ahead,
            "base_commit": self.commit(base),
            "merge_base_commit": self.commit(best[0]),
            "commits": [self.commit(each) for each in sorted(after - before)],
        }
        return component("commit-comparison", values)

    def _reached(self, sha: str) -> set[str]:
        """A commit and all that are before it."""
        found, waiting = set(), [sha]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += self.commits.get(each, ())
        return found
