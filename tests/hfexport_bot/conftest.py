"""Small git repositories for the tests of the bot."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from hfexport_bot.execution.listing import list_workarounds
from hfexport_bot.schema import WorkaroundInfo
from tests.hfexport_bot.users import NOBODY, open_folder, python_for


class Repository:
    """A git repository that tests write to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        done = subprocess.run(
            ("git", *identity, *arguments),
            cwd=self.path,
            env=environment | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def commit(self, files: Mapping[str, str | bytes | None], message: str = "change") -> str:
        """Write files (None removes one), commit them and return the sha."""
        for name, content in files.items():
            path = self.path / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def make_repository(tmp_path: Path) -> Callable[[str], Repository]:
    """Make a repository in a folder of the test's own."""
    return lambda name: Repository(tmp_path / name)


@pytest.fixture
def repository(make_repository: Callable[[str], Repository]) -> Repository:
    """An empty repository."""
    return make_repository("repository")


@pytest.fixture(scope="session")
def others_python() -> Iterator[str | None]:
    """A Python with this one's packages that other users can start, where there is one."""
    with open_folder() as folder:
        yield python_for(NOBODY, folder)


@pytest.fixture(scope="session")
def python_for_others(others_python: str | None) -> str:
    """The same; skips the test where there is none."""
    if others_python is None:
        pytest.skip("no Python with these packages that another user can start")
    return others_python


@pytest.fixture(scope="session")
def listed() -> tuple[WorkaroundInfo, ...]:
    """What a process of its own lists as registered."""
    return list_workarounds()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what is read of files out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
