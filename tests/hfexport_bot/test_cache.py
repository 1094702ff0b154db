"""A cached folder is made once, whole or not at all."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from hfexport_bot.cache import cache_folder, made_once


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder({}) == tmp_path / ".cache" / "hfexport-bot"
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == tmp_path / ".cache" / "hfexport-bot"
    assert cache_folder({"XDG_CACHE_HOME": "/var/c"}) == Path("/var/c/hfexport-bot")


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").touch()

    wanted = tmp_path / "cache" / "a"
    assert made_once(wanted, make) == made_once(wanted, make) == wanted
    assert len(made) == 1
    assert [each.name for each in wanted.iterdir()] == ["file"]


def test_what_was_not_finished_is_not_found(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(tmp_path / "a", fail)
    assert [each.name for each in tmp_path.iterdir()] == ["a.lock"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a.x.partial" / "half").mkdir(parents=True)
    (tmp_path / "b.x.partial").mkdir()
    made_once(tmp_path / "a", lambda folder: None)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "a.lock", "b.x.partial"]


def _slowly(folder: Path) -> None:
    with (folder.parent / "makers").open("a") as makers:
        makers.write("x")
    time.sleep(0.3)
    (folder / "file").touch()


@pytest.mark.process
def test_of_two_makers_one_waits_and_finds_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=made_once, args=(tmp_path / "a", _slowly)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(30)
    assert [each.exitcode for each in both] == [0, 0]
    assert (tmp_path / "makers").read_text() == "x"
    assert (tmp_path / "a" / "file").exists()
