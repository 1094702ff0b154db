"""Facts of both sides: what is read once, and how."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import pytest

from hfexport_bot.changes import store
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.reading import Sides, many_objects
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout


def test_nobody_looks_for_garbage_among_many_objects_also_not_right_after() -> None:
    seen: list[int] = []

    def look(phase: str, info: dict[str, int]) -> None:
        seen.append(info["generation"])

    gc.callbacks.append(look)
    try:
        with many_objects():
            kept = [[each] for each in range(100_000)]
        assert gc.isenabled()
        kept.extend([each] for each in range(100))
    finally:
        gc.callbacks.remove(look)
    assert seen == []


def test_a_file_is_asked_for_on_one_side_alone_where_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "cache_file", lambda: tmp_path / "facts.sqlite")
    asked: list[Sequence[str]] = []

    class Counted(MappingTree):
        def contents(self, blobs: Sequence[str]) -> dict[str, bytes]:
            asked.append(blobs)
            return dict(super().contents(blobs))

    base, head = Counted({"same.py": "x = 1\n", "a.py": "a = 1\n"}), Counted({"same.py": "x = 1\n", "a.py": "a = 2\n"})
    for _ in range(2):  # the second time the facts are known, and the bytes of what changed are not
        sides = Sides(base, head, Layout.MODELING, [FileChange("a.py", "a.py")])
        assert [str(each) for each in sides.compare(FileChange("a.py", "a.py")).symbols] == ["a changed"]
    assert [len(blobs) for blobs in asked] == [3, 1, 2, 1]
