"""A small wrapper over the git binary. It reads; the repository it is given is never modified.

Only plumbing commands are used, so the user's configuration (aliases, pagers, external diffs, text
conversion) changes nothing. Every failure is a `UsageError` that says what to do.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hfexport_bot.errors import UsageError

# A git hook, or another tool, may have started us with these set: they redirect every command elsewhere.
_REDIRECTING = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
)

#: What to do in a shallow clone.
_SHALLOW = (
    "; this clone is shallow: for a pull request's merge commit give --base HEAD^1 and actions/checkout "
    "fetch-depth: 2, otherwise fetch-depth: 0"
)


def git_environment() -> dict[str, str]:
    """This process's environment without what redirects git; plain messages, no prompts, no locks."""
    kept = {name: value for name, value in os.environ.items() if name not in _REDIRECTING}
    return kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


#: Where a hunk begins on head's side, its number of lines unless that is 1, and the lines that it takes away.
_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)(?:,(\d+))? @@.*$((?:\n-.*)*)", re.MULTILINE)
#: A line of code that is taken away: no blank one and no comment.
_GONE = re.compile(rb"^-[ \t]*[^\s#]", re.MULTILINE)


class GitError(Exception):
    """A git command ended with a nonzero code; the message is what it printed."""


def call_git(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], data: bytes | None = None) -> bytes:
    """Run git and return its standard output.

    Raises `GitError` when git fails and `UsageError` when there is no git.
    """
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        done = subprocess.run(command, cwd=cwd, env=dict(environment), input=data, capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError("git was not found; install git 2.30 or later and put it on PATH") from None
    if done.returncode:
        raise GitError(done.stderr.decode(errors="replace").strip())
    return done.stdout


@dataclass(frozen=True)
class FileChange:
    """One changed file. ``old`` is its path on base (None: added), ``new`` on head (None: deleted)."""

    old: str | None
    new: str | None

    @property
    def path(self) -> str:
        """The path it is known by: head's, or base's for a deleted file."""
        return self.new or self.old or ""


class Git:
    """One repository: a checkout, a linked worktree or a bare one.

    Args:
        path: a folder in it. Raises `UsageError` when that is missing or not in a git repository.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listed = cache(self._list)
        self._hunks = cache(self._read_hunks)
        if not path.is_dir():
            raise UsageError(f"{path} is not a folder; give --repo a git repository")
        try:
            self._run("rev-parse", "--git-dir")
        except GitError as error:
            if "dubious ownership" in str(error):
                raise UsageError(
                    f"git refuses {path} because another user owns it; "
                    f"run: git config --global --add safe.directory {path.resolve()}"
                ) from None
            said = str(error).partition("\n")[0]
            raise UsageError(f"{path} is not in a git repository ({said}); give --repo one") from None

    def _run(self, *arguments: str, data: bytes | None = None) -> bytes:
        return call_git(arguments, self.path, git_environment(), data)

    @property
    def objects(self) -> Path:
        """Its folder of objects, shared by all its worktrees."""
        found = os.fsdecode(self._run("rev-parse", "--git-path", "objects").rstrip(b"\n"))
        return (self.path / found).resolve()

    @property
    def top(self) -> Path | None:
        """The root of its files, None for a bare one."""
        try:
            return Path(os.fsdecode(self._run("rev-parse", "--show-toplevel").removesuffix(b"\n")))
        except GitError:
            return None

    @property
    def object_format(self) -> str:
        """``sha1`` or ``sha256``."""
        return self._run("rev-parse", "--show-object-format").decode().strip()

    def resolve(self, revision: str) -> str:
        """The full sha of the commit a branch, tag, sha or expression such as ``HEAD~1`` names."""
        try:
            found = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
        except GitError:
            if not self._succeeds("rev-parse", "--verify", "--quiet", "HEAD"):
                problem = f"{self.path} has no commit on its branch yet, and no revision {revision!r}; commit something"
                raise UsageError(problem) from None
            raise UsageError(
                f"unknown revision {revision!r} in {self.path}; give a branch, tag or commit that is there, and fetch "
                f"it first if it is not{_SHALLOW if self.is_shallow else ''}"
            ) from None
        return found.decode().strip()

    @property
    def is_shallow(self) -> bool:
        """Whether the history ends before its first commit."""
        return self._run("rev-parse", "--is-shallow-repository").strip() == b"true"

    def has_commit(self, sha: str) -> bool:
        """Whether a commit is there, and not only named by another."""
        return self._succeeds("cat-file", "-e", f"{sha}^{{commit}}")

    def parents(self, sha: str) -> tuple[str, ...]:
        """The parents that a commit names, those outside of a shallow clone too."""
        head = self._checked("cat-file", "commit", sha).partition(b"\n\n")[0]
        return tuple(line[7:].decode() for line in head.split(b"\n") if line.startswith(b"parent "))

    def subject(self, sha: str) -> str:
        """The first line of a commit's message."""
        message = self._checked("cat-file", "commit", sha).partition(b"\n\n")[2]
        return message.partition(b"\n")[0].decode(errors="replace")

    @property
    def has_changes(self) -> bool:
        """Whether what is checked out is something else than its commit: changed files, or Python files that are not in
        it."""
        changed = self._checked("status", "--porcelain", "-z", "--untracked-files=no")
        return bool(changed or self._checked("ls-files", "-z", "--others", "--exclude-standard", "--", ":(top)*.py"))

    @property
    def holds_its_folder(self) -> bool:
        """Whether there are files of the repository in the folder that it was found by: others may be ignored there."""
        return bool(self._checked("ls-files", "-z", "--", "."))

    def merge_base(self, base: str, head: str) -> str:
        """The sha of the best common ancestor of two commits."""
        try:
            return self._run("merge-base", base, head).decode().strip()
        except GitError:
            raise UsageError(
                f"{base[:12]} and {head[:12]} have no common ancestor here; "
                "fetch the whole history (git fetch --unshallow, or fetch-depth: 0 in actions/checkout)"
                f"{_SHALLOW if self.is_shallow else ''}"
            ) from None

    def changed_files(self, base: str, head: str) -> tuple[FileChange, ...]:
        """The files that differ between two commits, renames found, in git's order."""
        return self._changed(base, head)

    def changed_lines(self, base: str, head: str, *, around_gone: bool = False) -> dict[str, frozenset[int]]:
        """The lines of head's Python files, by path, that base does not have; with ``around_gone`` also those on
        either side of code that is gone and has nothing in its place."""
        found = {}
        for path, hunks in self._hunks(base, head):
            spans = []
            for start, count, gone in hunks:
                around = 2 if around_gone and _GONE.search(gone) else 0  # git names the line before what is gone
                spans.append((int(start), int(count or 1) or around))
            found[path] = frozenset(line for start, count in spans for line in range(start, start + count))
        return found

    def _read_hunks(self, base: str, head: str) -> Sequence[tuple[str, Sequence[tuple[bytes, bytes, bytes]]]]:
        """The hunks of each of head's Python files, as `_HUNK` has them."""
        kept = ("--diff-filter=AMR", "--", "*.py")
        patch = self._checked("diff-tree", "-r", "-M", "-p", "-U0", "--no-ext-diff", "--no-textconv", base, head, *kept)
        # Paths in a patch may be quoted, so they are taken from the list, which has the same order.
        patches = re.split(rb"^diff --git ", patch, flags=re.MULTILINE)[1:]
        changes = self._changed(base, head, *kept)
        return [(change.path, _HUNK.findall(text)) for change, text in zip(changes, patches, strict=True)]

    def _changed(self, base: str, head: str, *kept: str) -> tuple[FileChange, ...]:
        arguments = ("diff-tree", "-r", "-z", "-M", "--name-status", "--no-ext-diff", base, head, *kept)
        fields = self._checked(*arguments).split(b"\0")
        changes: list[FileChange] = []
        position = 0
        while position + 1 < len(fields):
            status = fields[position][:1]
            old = os.fsdecode(fields[position + 1])
            if status in (b"R", b"C"):
                new = os.fsdecode(fields[position + 2])
                changes.append(FileChange(old if status == b"R" else None, new))
                position += 3
                continue
            changes.append(FileChange(None if status == b"A" else old, None if status == b"D" else old))
            position += 2
        return tuple(changes)

    def show(self, sha: str, path: str) -> bytes | None:
        """The bytes of a file at a commit, None when there is no such file."""
        try:
            return self._run("cat-file", "blob", f"{sha}:{path}")
        except GitError:
            # No such file, or no such object?
            entry = self._checked("ls-tree", "-z", "--full-tree", sha, "--", path)
            if entry.split()[1:2] != [b"blob"]:
                return None
            return self._checked("cat-file", "blob", entry.split()[2].decode())

    def files(self, sha: str, folder: str = "") -> tuple[str, ...]:
        """The paths of all files under a folder at a commit."""
        arguments = ["ls-tree", "-r", "-z", "--full-tree", "--name-only", sha]
        listed = self._checked(*arguments, *(["--", folder.rstrip("/") + "/"] if folder else []))
        return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)

    def blobs(self, sha: str) -> dict[str, str]:
        """The id of every file's content at a commit, by path: a link has that of the file it leads to. Submodules are
        left out."""
        files, links = self._listed(sha)
        return {**files, **{link: files[target] for link, target in links.items()}}

    def links(self, sha: str) -> Mapping[str, str]:
        """The symbolic links of a commit that lead to files of it, and their paths."""
        return self._listed(sha)[1]

    def _list(self, sha: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The id of each plain file of a commit, and the path that each link to one leads to."""
        files: dict[str, str] = {}
        written: dict[str, str] = {}
        listed = os.fsdecode(self._checked("ls-tree", "-r", "-z", "--full-tree", sha))
        for entry in filter(None, listed.split("\0")):
            head, _, path = entry.partition("\t")
            mode, _, blob = head.split()
            if mode.startswith("100"):
                files[path] = blob
            elif mode == "120000":
                written[path] = blob
        texts = self.contents(sorted(set(written.values())))
        links = {}
        for path, blob in written.items():
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(texts.get(blob, b""))))
            if target in files:
                links[path] = target
        return files, links

    def contents(self, blobs: Sequence[str]) -> dict[str, bytes]:
        """The bytes of many blobs in one go; missing ones are left out."""
        if not blobs:
            return {}
        answer = self._checked("cat-file", "--batch", data="".join(f"{blob}\n" for blob in blobs).encode())
        found: dict[str, bytes] = {}
        position = 0
        for blob in blobs:
            end = answer.index(b"\n", position)
            head = answer[position:end].split()
            position = end + 1
            if head[1:2] != [b"blob"]:
                continue
            size = int(head[2])
            found[blob] = answer[position : position + size]
            position += size + 1
        return found

    def _succeeds(self, *arguments: str) -> bool:
        try:
            self._run(*arguments)
        except GitError:
            return False
        return True

    def _checked(self, *arguments: str, data: bytes | None = None) -> bytes:
        """Run a command that only fails when objects are missing."""
        try:
            return self._run(*arguments, data=data)
        except GitError as error:
            last = (str(error).splitlines() or ["no message"])[-1]
            raise UsageError(
                f"git could not read {self.path} ({last}); fetch the whole history of both revisions"
            ) from None
