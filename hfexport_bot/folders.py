"""Measure and remove folders that code under test had, and may have made as deep, wide and closed as it liked."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

_BLOCK_BYTES = 512


class OnDisk(NamedTuple):
    """What a folder takes: bytes of the disk and entries; ``closed`` names one in it that cannot be looked into."""

    size: int
    entries: int
    closed: str = ""


def on_disk(folder: Path, max_entries: int) -> OnDisk:
    """What a folder takes, while others write to it; of more than ``max_entries``, what was found until there."""
    size = count = 0
    pending = [str(folder)]
    while pending and count <= max_entries:
        place = pending.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    size += status.st_blocks * _BLOCK_BYTES
                    count += 1
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(entry.path)
                    if count > max_entries:
                        break
        except (FileNotFoundError, NotADirectoryError):
            continue  # gone in between
        except OSError:
            return OnDisk(size, count, os.path.basename(place))
    return OnDisk(size, count)


def remove_folder(folder: Path) -> None:
    """Remove a folder that nobody uses any more, at any depth, and what is closed in it. Links are not followed.

    What cannot be removed stays, with the folders that it lies in.
    """
    names: list[str] = []
    place = -1
    with contextlib.suppress(OSError):
        try:
            place = _entered(str(folder), None)
            while True:
                if (inner := _emptied(place)) is not None:
                    names.append(inner)
                    place = _moved(place, inner)
                elif names:
                    place = _moved(place, os.pardir)
                    os.rmdir(names.pop(), dir_fd=place)
                else:
                    break
            os.rmdir(folder)
        finally:
            if place >= 0:
                os.close(place)


def _emptied(place: int) -> str | None:
    """Remove the files of a folder up to the first folder in it, and return the name of that."""
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                return entry.name
            os.unlink(entry.name, dir_fd=place)
    return None


def _moved(place: int, name: str) -> int:
    """A descriptor of a folder next to ``place``, whose own is closed."""
    there = _entered(name, place)
    os.close(place)
    return there


def _entered(name: str, place: int | None) -> int:
    if name != os.pardir:
        with contextlib.suppress(OSError):  # not its owner, who may then be allowed to all the same
            os.chmod(name, stat.S_IRWXU, dir_fd=place)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
