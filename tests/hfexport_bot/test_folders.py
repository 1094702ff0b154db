"""Folders that code under test made as it liked are measured and removed."""

from __future__ import annotations

import os
from pathlib import Path

from hfexport_bot.folders import on_disk, remove_folder


def test_what_a_folder_takes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("/usr")
    found = on_disk(tmp_path, 100)
    assert (found.entries, found.closed) == (3, "")
    assert 100_000 <= found.size < 200_000
    assert on_disk(tmp_path, 1).entries == 2
    assert on_disk(tmp_path / "none", 100) == (0, 0, "")


def test_a_folder_is_removed_however_deep_and_closed_and_nothing_beside_it(tmp_path: Path) -> None:
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    for path in (folder / "closed" / "inner", kept):
        path.mkdir(parents=True)
        (path / "file").touch()
    (folder / "link").symlink_to(kept)
    (folder / "closed" / "link").symlink_to(kept)
    place = os.open(folder, os.O_RDONLY)
    for _ in range(1500):  # past what a path may name, and what Python may call
        os.mkdir("abc", dir_fd=place)
        inner = os.open("abc", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    (folder / "closed" / "inner").chmod(0)
    (folder / "closed").chmod(0)
    remove_folder(folder)
    assert list(tmp_path.iterdir()) == [kept]
    assert (kept / "file").exists()
