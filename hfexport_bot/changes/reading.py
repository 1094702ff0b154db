"""The facts of both sides of a change, from the cache or read anew."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from hfexport_bot.changes import policy
from hfexport_bot.changes.facts import Facts, read_facts
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.layout import is_test_or_doc
from hfexport_bot.changes.modules import Modules
from hfexport_bot.changes.store import keep_facts, load_facts
from hfexport_bot.changes.tree import StoredTree
from hfexport_bot.schema import Layout


class Sides:
    """Every file's facts on base and head, by path; those of a file that did not change are the same object."""

    def __init__(self, base: StoredTree, head: StoredTree, layout: Layout) -> None:
        self.blobs = (base.blobs(), head.blobs())
        self._layout = layout
        self._trees = (base, head)
        wanted = [{path: blob for path, blob in side.items() if self._is_read(path)} for side in self.blobs]
        with _many_objects():
            facts = _facts({blob for side in wanted for blob in side.values()}, (base, head))
        self.base: Mapping[str, Facts] = {path: facts[blob] for path, blob in wanted[0].items() if blob in facts}
        self.head: Mapping[str, Facts] = {path: facts[blob] for path, blob in wanted[1].items() if blob in facts}

    def sources(self, changes: Iterable[FileChange]) -> Callable[[FileChange], tuple[bytes | None, bytes | None]]:
        """The bytes of changed files on each side, read in one go."""
        olds = {path: self.blobs[0][path] for change in changes if (path := change.old) and path in self.blobs[0]}
        news = {path: self.blobs[1][path] for change in changes if (path := change.new) and path in self.blobs[1]}
        old, new = (
            self._trees[0].contents(sorted(set(olds.values()))),
            self._trees[1].contents(sorted(set(news.values()))),
        )
        return lambda change: (
            old.get(olds.get(change.old or "", "")),
            new.get(news.get(change.new or "", "")),
        )

    def modules(self) -> Modules:
        """Both sides in one, with a file's two versions where they differ."""
        both: dict[str, Sequence[Facts]] = {}
        for path in self.base.keys() | self.head.keys():
            versions = [side[path] for side in (self.head, self.base) if path in side]
            both[path] = versions[:1] if versions[0] is versions[-1] else versions
        roots = ("src", "") if self._layout is Layout.TRANSFORMERS else None
        return Modules(both, sorted(self.blobs[0].keys() | self.blobs[1].keys()), roots)

    def _is_read(self, path: str) -> bool:
        if not path.endswith(".py"):
            return False
        return policy.is_read(path) if self._layout is Layout.TRANSFORMERS else not is_test_or_doc(path)


def _facts(blobs: set[str], trees: Sequence[StoredTree]) -> dict[str, Facts]:
    found = load_facts(sorted(blobs))
    missing = blobs - found.keys()
    read: dict[str, Facts] = {}
    for tree in trees:
        sources = tree.contents(sorted(missing - read.keys())) if missing - read.keys() else {}
        read |= {blob: read_facts(source) for blob, source in sources.items()}
    keep_facts(read)
    return found | read


@contextmanager
def _many_objects() -> Iterator[None]:
    """Without the garbage collector, which would look through everything that was read again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
