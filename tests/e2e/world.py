"""The demo repository as GitHub would have it: a pull request from a fork, and GitHub's merge of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hfexport_bot.github.payloads import event
from tests.hfexport_bot.github.server import GitHub
from tests.hfexport_bot.github.test_event import COMMENT, HEAD, WORKFLOW_RUN, pull_request

#: As in the payloads.
NUMBER = 7
FORK = "fork/zoo"


@dataclass(frozen=True)
class World:
    """A repository with a pull request: ``base``, ``head`` and ``merge`` are its commits, in ``origin``."""

    origin: Path
    base: str
    head: str
    merge: str

    @classmethod
    def build(cls, folder: Path, make: Callable[[Path], None]) -> World:
        """Of the repository that ``make`` writes, with the branches main and pull-request."""
        origin = folder / "origin"
        shutil.rmtree(origin, ignore_errors=True)
        make(origin)
        base, head = (git(origin, "rev-parse", branch) for branch in ("main", "pull-request"))
        git(origin, "checkout", "--quiet", "-b", "merge", "main")
        identity = ("-c", "user.name=demo", "-c", "user.email=demo@example.com")
        git(origin, *identity, "merge", "--quiet", "--no-ff", "-m", f"Merge {head} into {base}", "pull-request")
        git(origin, "update-server-info")  # to be fetched from a folder that is only served
        return cls(origin, base, head, git(origin, "rev-parse", "HEAD"))

    def open_on(self, github: GitHub, repository: str) -> None:
        """Open the pull request, with its head in ``repository``."""
        github.pull(NUMBER, self.head, repository, base={"ref": "main", "sha": self.base})
        github.history.add(self.merge, self.base, self.head)

    def checkout(self, to: Path, revision: str = "", depth: int = 0) -> Path:
        """A folder as actions/checkout leaves it, in whose favour act skips that; without ``revision`` an empty one."""
        shutil.rmtree(to, ignore_errors=True)
        git(to.parent, "init", "--quiet", "--initial-branch=main", to.name)
        if not revision:
            return to
        # With a ref, as the real one makes it: act does not copy the empty folders of a repository that has none.
        one = [f"--depth={depth}", f"+{revision}:refs/remotes/pull/{NUMBER}/merge"]
        wanted = one if depth else ["+refs/heads/*:refs/remotes/origin/*"]
        git(to, "remote", "add", "origin", self.origin.as_uri())
        git(to, "fetch", "--quiet", "--no-tags", "origin", *wanted)
        git(to, "checkout", "--quiet", "--detach", revision)
        return to

    # Events

    def of_pull_request(self, repository: str) -> Any:
        return self._of_head(pull_request(repository))

    def of_finished_run(self, run_id: str) -> Any:
        return self._of_head(
            event("workflow-run-completed", {"workflow_run": WORKFLOW_RUN["workflow_run"] | {"id": int(run_id)}})
        )

    def of_comment(self, body: str, author: str) -> Any:
        comment = COMMENT["comment"] | {"body": body, "user": {"login": author}}
        return event("issue-comment-created", COMMENT | {"comment": comment})

    def of_dispatch(self, **inputs: str) -> Any:
        return event("workflow-dispatch", {"inputs": inputs, "ref": "refs/heads/main"})

    def _of_head(self, payload: Any) -> Any:
        return json.loads(json.dumps(payload).replace(HEAD, self.head))


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()
