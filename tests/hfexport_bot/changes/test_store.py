"""Facts that are kept between runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hfexport_bot.changes import store
from hfexport_bot.changes.facts import read_facts
from hfexport_bot.changes.store import keep_facts, load_facts

FACTS = read_facts(b"def f(): return 1\n")


def test_what_was_kept_is_found_by_blob(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "facts.sqlite"
    assert load_facts(["one"], file) == {}
    keep_facts({"one": FACTS, "two": FACTS}, file)
    found = load_facts(["one", "three"], file)
    assert list(found) == ["one"]
    assert found["one"].definitions == FACTS.definitions
    keep_facts({}, file)
    assert load_facts(map(str, range(2000)), file) == {}


def test_another_version_of_facts_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "facts.sqlite"
    keep_facts({"one": FACTS}, file)
    monkeypatch.setattr(store, "_TABLE", "facts_later")
    assert load_facts(["one"], file) == {}


def test_a_damaged_cache_is_done_without(tmp_path: Path) -> None:
    file = tmp_path / "facts.sqlite"
    file.write_bytes(b"no database at all, " * 200)
    keep_facts({"one": FACTS}, file)
    assert load_facts(["one"], file) == {}


def test_a_damaged_row_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "facts.sqlite"
    keep_facts({"one": FACTS, "two": FACTS}, file)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"UPDATE {store._TABLE} SET text = '[1, 2' WHERE blob = 'one'")
    assert list(load_facts(["one", "two"], file)) == ["two"]


def test_a_full_cache_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "facts.sqlite"
    monkeypatch.setattr(store, "_MAX_ROWS", 2)
    keep_facts({"one": FACTS, "two": FACTS}, file)
    keep_facts({"three": FACTS}, file)
    assert list(load_facts(["one", "two", "three"], file)) == ["three"]
