"""The facts of both sides of a change, from the cache or read anew."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

from hfexport_bot.changes import policy
from hfexport_bot.changes.facts import Facts, read_facts
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.inheritance import Inheritance
from hfexport_bot.changes.layout import is_modeling_file, is_test_or_doc
from hfexport_bot.changes.loading import Failing
from hfexport_bot.changes.modules import Modules
from hfexport_bot.changes.store import keep_facts, load_facts
from hfexport_bot.changes.symbols import Compared, compare
from hfexport_bot.changes.tree import StoredTree
from hfexport_bot.schema import Layout

#: How a name is changed that a file offers to star imports on one side only.
_LEFT_OUT, _PUT_IN = "left out of __all__", "put into __all__"


def _names(facts: Facts) -> set[str]:
    """The names that a file has."""
    return {*facts.rows, *(row.local for row in facts.imports)}


def _offers(facts: Facts) -> set[str]:
    """The names that a file offers to star imports."""
    return set(facts.exports) if facts.exports is not None else {name for name in _names(facts) if name[0] not in "_<"}


class Sides:
    """Every file's facts on base and head, by path; those of a file that did not change are the same object.
    ``hooks`` are the files of the repository's case functions and workarounds."""

    def __init__(
        self,
        base: StoredTree,
        head: StoredTree,
        layout: Layout,
        changes: Iterable[FileChange],
        hooks: Collection[str] = (),
    ) -> None:
        self.blobs = (base.blobs(), head.blobs())
        self._layout = layout
        changed = {path for change in changes for path in (change.old, change.new) if path}
        self._hooks = hooks
        #: Whether a change may be to what hooks use.
        self._helps = bool(hooks) and any(path.endswith(".py") and not policy.is_read(path) for path in changed)
        wanted = [{path: blob for path, blob in side.items() if self._is_read(path)} for side in self.blobs]
        compared = {side[path] for side in self.blobs for path in changed & side.keys() if path.endswith(".py")}
        facts, read = _facts({blob for side in wanted for blob in side.values()} | compared, (base, head))
        by_path = [{path: facts[blob] for path, blob in side.items() if blob in facts} for side in wanted]
        self.base, self.head = _with_inherited(by_path, (base, head), layout)
        self._facts = facts
        self._sources = read | _contents(compared - read.keys(), (base, head))

    def compare(self, change: FileChange) -> Compared:
        """What differs between the two sides of a changed file."""
        old, new = (side.get(path or "", "") for side, path in zip(self.blobs, (change.old, change.new), strict=True))
        return compare(
            change.path,
            self._sources.get(old),
            self._sources.get(new),
            (self._facts.get(old), self._facts.get(new)),
        )

    def generated(self, change: FileChange) -> str:
        """The modular file that a changed file is generated from; empty where there is none."""
        facts = self._facts.get(self.blobs[1].get(change.new or "", ""))
        return facts.generated if facts is not None else ""

    def offered_anew(self, change: FileChange) -> Sequence[tuple[str, str]]:
        """The names that a file has on both sides and offers to star imports on one of them only, and how."""
        old, new = (side.get(change.path) for side in (self.base, self.head))
        if old is None or new is None:
            return ()
        before, after = _offers(old), _offers(new)
        left_out, put_in = (before - after) & _names(new), (after - before) & _names(old)
        return [*((name, _LEFT_OUT) for name in sorted(left_out)), *((name, _PUT_IN) for name in sorted(put_in))]

    def modules(self) -> Modules:
        """Both sides in one, with a file's two versions where they differ."""
        both: dict[str, Sequence[Facts]] = {}
        # In order, so that of equally short chains every run tells the same.
        for path in sorted(self.base.keys() | self.head.keys()):
            versions = [side[path] for side in (self.head, self.base) if path in side]
            both[path] = versions[:1] if versions[0] is versions[-1] else versions
        return Modules(both, sorted(self.blobs[0].keys() | self.blobs[1].keys()), self._roots)

    def failing(self, both: Modules) -> Failing:
        """What of head can no longer be imported."""
        after = Modules({path: (facts,) for path, facts in self.head.items()}, sorted(self.blobs[1]), self._roots)
        return Failing(self.base, self.head, both, after)

    @property
    def _roots(self) -> Sequence[str] | None:
        folders = (path.rpartition("/")[0] for path in self._hooks)
        return [*dict.fromkeys(("src", "", *folders))] if self._layout is Layout.TRANSFORMERS else None

    def _is_read(self, path: str) -> bool:
        if not path.endswith(".py"):
            return False
        if self._layout is not Layout.TRANSFORMERS:
            return not is_test_or_doc(path)
        helper = self._helps and not path.startswith((policy.PACKAGE, policy.TESTS)) and not is_test_or_doc(path)
        return helper or (self._helps and path in self._hooks) or policy.is_read(path)


def facts_of(paths: Collection[str], trees: Sequence[StoredTree], layout: Layout) -> list[Mapping[str, Facts]]:
    """The facts of some files by path, those of each tree that they are in."""
    known = [tree.blobs() for tree in trees]
    sides = [{path: side[path] for path in paths if path in side} for side in known]
    facts, _ = _facts({blob for side in sides for blob in side.values()}, trees)
    by_path = [{path: facts[blob] for path, blob in side.items() if blob in facts} for side in sides]
    return _with_inherited(by_path, trees, layout)


def _with_inherited(
    sides: Sequence[Mapping[str, Facts]], trees: Sequence[StoredTree], layout: Layout
) -> list[Mapping[str, Facts]]:
    """The facts of some files, where a repository has models of its own with those that derive from classes of its
    other files; what is the same on all sides stays one object."""
    if layout is not Layout.MODELING:
        return [*sides]
    known: dict[tuple[int, tuple[str, ...], tuple[str, ...]], Facts] = {}
    found: list[Mapping[str, Facts]] = []
    for side, tree in zip(sides, trees, strict=True):
        inheritance = Inheritance(tree)
        completed: dict[str, Facts] = {}
        for path, facts in side.items():
            new = inheritance.completed(path, facts) if is_modeling_file(path, layout) else facts
            key = (id(facts), tuple(new.models), tuple(new.generating))
            completed[path] = facts if new is facts else known.setdefault(key, new)
        found.append(completed)
    return found


def _facts(blobs: set[str], trees: Sequence[StoredTree]) -> tuple[dict[str, Facts], dict[str, bytes]]:
    """The facts of some blobs, and the bytes of those that were read for it."""
    found = load_facts(sorted(blobs))
    sources = _contents(blobs - found.keys(), trees)
    read = {blob: read_facts(source) for blob, source in sources.items()}
    keep_facts(read)
    return found | read, sources


def _contents(blobs: Set[str], trees: Sequence[StoredTree]) -> dict[str, bytes]:
    """The bytes of some blobs, each from the first tree that has it."""
    found: dict[str, bytes] = {}
    for tree in trees:
        left = sorted(blobs - found.keys())
        found |= tree.contents(left) if left else {}
    return found


@contextmanager
def many_objects() -> Iterator[None]:
    """Without the garbage collector, which would look through all facts again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.unfreeze()  # by way of the frozen ones all objects are old ones, which it need not look through at once
            gc.enable()
