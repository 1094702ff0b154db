"""Which two commits are compared, and which files differ between them: as git says, or the list of GitHub's API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from hfexport_bot.changes.git import FileChange, Git
from hfexport_bot.errors import UsageError

#: GitHub lists no more files of a comparison, and of a pull request: a list of that length may be cut off.
_CUT_OFF_AT, _CUT_OFF_FROM = 300, 3_000
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class Pair:
    """Two commits by their shas, and what a reader should know of how they were found."""

    base: str
    head: str
    notes: tuple[str, ...] = ()


def find_pair(git: Git, base: str, head: str) -> Pair:
    """The commits to compare: ``head``, and its merge base with ``base``.

    For a merge that GitHub made of a pull request it is the merge's first parent, what the pull request is merged into:
    the ``base`` that an event names may be older. So too in a shallow clone, where no merge base can be found.
    Raises `UsageError` for an unknown revision, and where there is no common ancestor.
    """
    head_sha, base_sha = git.resolve(head), git.resolve(base)
    parents = git.parents(head_sha)
    merged = len(parents) == 2 and git.subject(head_sha) == f"Merge {parents[1]} into {parents[0]}"
    if merged and base_sha != parents[1]:
        note = f"{head} is the merge of a pull request: compared with its first parent, not with {base}"
        return Pair(_parent(git, parents[0]), head_sha, (note,) if base_sha != parents[0] else ())
    try:
        found = git.merge_base(base_sha, head_sha)
    except UsageError:
        if len(parents) < 2 or not git.is_shallow or not git.has_commit(parents[0]):
            raise
        note = f"no merge base with {base} is in this shallow clone: {head} was compared with its first parent"
        return Pair(parents[0], head_sha, (note,))
    if found == head_sha:
        return Pair(found, head_sha, (f"{head} has nothing that {base} has not: there is no change to judge",))
    return Pair(found, head_sha)


def _parent(git: Git, sha: str) -> str:
    if not git.has_commit(sha):
        raise UsageError(
            f"{sha[:12]}, what the pull request is merged into, is not in this clone; "
            "give actions/checkout fetch-depth: 2"
        )
    return sha


class _Entry(BaseModel):
    """An entry of GitHub's "list pull request files"."""

    filename: str
    status: Literal["added", "removed", "modified", "renamed", "copied", "changed", "unchanged"]
    previous_filename: str | None = None


def listed_changes(git: Git, pair: Pair, file: Path | None) -> tuple[tuple[FileChange, ...], tuple[str, ...]]:
    """The changed files, links to changed files too, and notes. ``file`` holds the list of GitHub's API; one that may
    be cut off is left aside.

    Raises `UsageError` for a file that is no such list, or is one of another change.
    """
    changes, notes = _listed(git, pair, file)
    changed = {path for change in changes for path in (change.old, change.new)}
    before, after = git.links(pair.base), git.links(pair.head)
    led = sorted(path for path in before.keys() & after.keys() if {before[path], after[path]} & changed)
    return (*changes, *(FileChange(path, path) for path in led if path not in changed)), notes


def _listed(git: Git, pair: Pair, file: Path | None) -> tuple[tuple[FileChange, ...], tuple[str, ...]]:
    if file is None:
        return git.changed_files(pair.base, pair.head), ()
    listed = _read(file)
    if len(listed) == _CUT_OFF_AT or len(listed) >= _CUT_OFF_FROM:
        note = f"GitHub's list of files ends at {len(listed):,} and may be cut off: git's own was used"
        return git.changed_files(pair.base, pair.head), (note,)
    before, after = set(git.files(pair.base)), set(git.files(pair.head))
    changes = []
    for each in listed:
        old = each.previous_filename if each.status == "renamed" else each.filename
        change = FileChange(old if old in before else None, each.filename if each.filename in after else None)
        if not change.path:
            raise UsageError(
                f"--files: {each.filename} is neither in {pair.base[:12]} nor in {pair.head[:12]}; "
                "give the list of this very change, or leave --files out"
            )
        if each.status != "unchanged":
            changes.append(change)
    return tuple(changes), ()


def _read(file: Path) -> Sequence[_Entry]:
    try:
        source = file.read_bytes() if file.stat().st_size <= _MAX_BYTES else None
    except OSError as error:
        raise UsageError(f"--files: {file} cannot be read: {error.strerror}") from None
    if source is None:
        raise UsageError(f"--files: {file} is larger than {_MAX_BYTES >> 20} MiB; leave it out, git knows the files")
    try:
        return TypeAdapter(list[_Entry]).validate_json(source)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = "".join(f"[{part}]" for part in problem["loc"])
        raise UsageError(
            f"--files: {file} is no list of files as GitHub's API gives for a pull request: {where} {problem['msg']}"
        ) from None
