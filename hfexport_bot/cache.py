"""The user's cache: where it is, and folders that are made once and found again by name, by any number of processes."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The user's cache for this program: below ``XDG_CACHE_HOME``, or ``~/.cache``."""
    place = environment.get("XDG_CACHE_HOME", "")
    return (Path(place) if Path(place).is_absolute() else Path.home() / ".cache") / "hfexport-bot"


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """``folder``, which ``make`` fills the first time.

    It is filled beside its place and moved there when complete, so that a half-made one is never found. Of two
    processes that want it, one waits for the other. Raises what ``make`` raises, and ``OSError``; nothing stays then.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        for left_behind in folder.parent.glob(f"{folder.name}.*.partial"):  # by a killed process: we hold the lock
            shutil.rmtree(left_behind, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".partial", dir=folder.parent))
        try:
            make(partial)
            partial.chmod(0o755)  # for runners, which may be other users
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return folder
