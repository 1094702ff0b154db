"""Where the models of a check are, and which commit that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.changes.place import find_place
from hfexport_bot.schema import Revision

MODEL = {"zoo/modeling_a.py": "", ".gitignore": "built/\n", "README.md": "a"}


def revision(folder: Path) -> Revision:
    return find_place((), folder).revision


def test_a_checkout_has_its_commit(repository: Any) -> None:
    sha = repository.commit(MODEL)
    assert revision(repository.path) == Revision(name="repository", sha=sha)
    assert revision(repository.path / "zoo") == Revision(name="zoo", sha=sha)
    (repository.path / "report.md").write_text("what a run leaves behind is no change of models")
    assert revision(repository.path).sha == sha


@pytest.mark.parametrize("file", ["README.md", "zoo/modeling_b.py"])
def test_changed_files_are_no_commit(repository: Any, file: str) -> None:
    sha = repository.commit(MODEL)
    (repository.path / file).write_text("changed = 1")
    named = f"repository at {sha[:7]} with changes that are not committed"
    assert revision(repository.path) == Revision(name=named)


def test_what_git_ignores_is_of_no_commit(repository: Any) -> None:
    repository.commit(MODEL)
    (repository.path / "built").mkdir()
    assert revision(repository.path / "built") == Revision(name="built")


def test_a_plain_folder_and_a_repository_without_a_commit_have_none(tmp_path: Path, repository: Any) -> None:
    (tmp_path / "plain").mkdir()
    assert revision(tmp_path / "plain") == Revision(name="plain")
    assert revision(repository.path) == Revision(name="repository")


def test_the_installed_transformers_is_of_no_commit() -> None:
    place = find_place(("bert",), None)
    assert place.revision == Revision(name=place.name)
    assert place.name.startswith("transformers ")
