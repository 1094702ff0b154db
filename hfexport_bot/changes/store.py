"""Facts of files, kept by git blob in the user's cache folder: what was read once is not read again.

The cache may be removed at any time. One that can't be read or written is done without.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from hfexport_bot.cache import cache_folder
from hfexport_bot.changes.facts import VERSION, Facts

#: Facts come out otherwise with another version of Python's parser.
_TABLE = f"facts_{VERSION}_{sys.version_info.major}_{sys.version_info.minor}"
#: A checkout has some thousand blobs; the cache starts anew past this many.
_MAX_ROWS = 100_000
_AT_A_TIME = 500


def cache_file() -> Path:
    """Where facts are kept."""
    return cache_folder(os.environ) / "facts.sqlite"


def load_facts(blobs: Iterable[str], file: Path | None = None) -> dict[str, Facts]:
    """The facts that are kept, of those blobs."""
    found: dict[str, Facts] = {}
    wanted = list(blobs)
    with suppress(sqlite3.Error, OSError, RuntimeError), closing(_open(file, write=False)) as database:
        for start in range(0, len(wanted), _AT_A_TIME):
            some = wanted[start : start + _AT_A_TIME]
            marks = ",".join("?" * len(some))
            rows = database.execute(f"SELECT blob, text FROM {_TABLE} WHERE blob IN ({marks})", some)
            for blob, text in rows:
                with suppress(ValueError, TypeError):  # a damaged row is read anew
                    found[blob] = Facts.load(text)
    return found


def keep_facts(facts: Mapping[str, Facts], file: Path | None = None) -> None:
    """Keep facts by blob."""
    if not facts:
        return
    with suppress(sqlite3.Error, OSError, RuntimeError), closing(_open(file, write=True)) as database, database:
        database.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE} (blob TEXT PRIMARY KEY, text BLOB)")
        (count,) = database.execute(f"SELECT count(*) FROM {_TABLE}").fetchone()
        if count + len(facts) > _MAX_ROWS:
            database.execute(f"DELETE FROM {_TABLE}")
        rows = [(blob, each.dump()) for blob, each in facts.items()]
        database.executemany(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?)", rows)


def _open(file: Path | None, write: bool) -> sqlite3.Connection:
    path = file or cache_file()
    if write:
        path.parent.mkdir(parents=True, exist_ok=True)
    return sqlite3.connect(path if write else f"{path.absolute().as_uri()}?mode=ro", uri=not write, timeout=5)
