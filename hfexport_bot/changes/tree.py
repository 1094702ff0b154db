"""Where source is read from without running it: a commit, a folder or, in tests, a mapping."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hfexport_bot.changes.git import Git

#: Folders that hold other people's code or none.
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})


class Tree(Protocol):
    """The files of one revision. Paths are relative, with forward slashes."""

    def read(self, path: str) -> bytes | None:
        """A file's bytes, None when there is no such file."""
        ...

    def files(self, folder: str = "") -> tuple[str, ...]:
        """The paths of all files under a folder, none when there is no such folder."""
        ...


class StoredTree(Tree, Protocol):
    """A tree that knows each file's content by an id."""

    def blobs(self) -> Mapping[str, str]:
        """The id of every file's content, by path."""
        ...

    def contents(self, blobs: Sequence[str]) -> Mapping[str, bytes]:
        """The bytes of each id."""
        ...


@dataclass(frozen=True)
class GitTree:
    """A commit of a repository, read from its objects."""

    git: Git
    sha: str

    def read(self, path: str) -> bytes | None:
        return self.git.show(self.sha, path)

    def files(self, folder: str = "") -> tuple[str, ...]:
        return self.git.files(self.sha, folder)

    def blobs(self) -> Mapping[str, str]:
        return self.git.blobs(self.sha)

    def contents(self, blobs: Sequence[str]) -> Mapping[str, bytes]:
        return self.git.contents(blobs)


@dataclass(frozen=True)
class FolderTree:
    """A folder on disk. Hidden folders and virtual environments are passed over."""

    root: Path

    def read(self, path: str) -> bytes | None:
        try:
            return (self.root / path).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def files(self, folder: str = "") -> tuple[str, ...]:
        return tuple(self._walk(self.root / folder))

    def _walk(self, start: Path) -> Iterator[str]:
        for here, folders, names in os.walk(start):
            folders[:] = sorted(
                name
                for name in folders
                if not name.startswith(".") and name not in _PASSED_OVER and not Path(here, name, "pyvenv.cfg").exists()
            )
            for name in sorted(names):
                yield Path(here, name).relative_to(self.root).as_posix()


@dataclass(frozen=True)
class MappingTree:
    """Files held in memory, path to source."""

    sources: Mapping[str, str | bytes]

    def read(self, path: str) -> bytes | None:
        source = self.sources.get(path)
        return source.encode() if isinstance(source, str) else source

    def files(self, folder: str = "") -> tuple[str, ...]:
        start = folder.rstrip("/") + "/" if folder else ""
        return tuple(sorted(path for path in self.sources if path.startswith(start)))

    def blobs(self) -> Mapping[str, str]:
        return {path: _content_id(self.read(path) or b"") for path in self.sources}

    def contents(self, blobs: Sequence[str]) -> Mapping[str, bytes]:
        by_id = {_content_id(source): source for source in map(self.read, self.sources) if source is not None}
        return {blob: by_id[blob] for blob in blobs if blob in by_id}


def _content_id(source: bytes) -> str:
    """As git names a blob."""
    return hashlib.sha1(b"blob %d\0" % len(source) + source, usedforsecurity=False).hexdigest()
