"""The git wrapper, on real small repositories."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.changes import git as git_module
from hfexport_bot.changes.git import FileChange, Git
from hfexport_bot.errors import UsageError

LONG = "".join(f"line {number}\n" for number in range(30))


def test_changes_with_renames_odd_names_and_mode(repository: Any) -> None:
    base = repository.commit({"a.py": "1", "old.py": LONG, "gone.py": "x", "mode.py": "y"})
    (repository.path / "mode.py").chmod(0o755)
    head = repository.commit({"a.py": "2", "old.py": None, "new dir/né\tw.py": LONG, "gone.py": None, "added.py": "z"})
    assert set(Git(repository.path).changed_files(base, head)) == {
        FileChange("a.py", "a.py"),
        FileChange("old.py", "new dir/né\tw.py"),
        FileChange("gone.py", None),
        FileChange(None, "added.py"),
        FileChange("mode.py", "mode.py"),
    }


def test_changed_lines_are_those_of_head(repository: Any) -> None:
    moved = LONG.replace("line 7\n", "")
    base = repository.commit(
        {"a.py": "1\n2\n3\n", "cut.py": "1\n2\n", "old.py": LONG, "gone.py": "x\n", "mode.py": "y\n", "a.txt": "1\n"}
    )
    (repository.path / "mode.py").chmod(0o755)
    head = repository.commit(
        {"a.py": "0\n1\ntwo\n3\n+++ b/x.py\ndiff --git a/y b/y\n", "cut.py": "2\n", "old.py": None, "gone.py": None}
        | {"né\tw.py": moved + "end\n", "a.txt": "2\n", "added.py": "z\nz\n"}
    )
    assert Git(repository.path).changed_lines(base, head) == {
        "a.py": {1, 3, 5, 6},
        "added.py": {1, 2},
        "cut.py": set(),
        "mode.py": set(),
        "né\tw.py": {30},
    }


def test_lines_around_code_that_is_gone(repository: Any) -> None:
    base = repository.commit({"a.py": "a\nb\nc\n\n# d\ne\nf\n", "b.py": "a\nb\n"})
    head = repository.commit({"a.py": "a\nc\ne\nF\n", "b.py": "b\n"})
    git = Git(repository.path)
    assert git.changed_lines(base, head) == {"a.py": {4}, "b.py": set()}
    assert git.changed_lines(base, head, around_gone=True) == {"a.py": {1, 2, 4}, "b.py": {0, 1}}


def test_the_users_configuration_changes_nothing(repository: Any) -> None:
    base = repository.commit({"old.py": LONG, ".gitattributes": "*.py diff=shout\n"})
    for name, value in (
        ("diff.renames", "false"),
        ("diff.noprefix", "true"),
        ("diff.shout.textconv", "tr a-z A-Z <"),
        ("diff.external", "false"),
        ("core.quotePath", "true"),
    ):
        repository.git("config", name, value)
    head = repository.commit({"old.py": None, "new.py": LONG})
    git = Git(repository.path)
    assert git.changed_files(base, head) == (FileChange("old.py", "new.py"),)
    assert git.show(head, "new.py") == LONG.encode()
    assert git.changed_lines(base, head) == {"new.py": frozenset()}


def test_show_and_list(repository: Any) -> None:
    first = repository.commit({"a/b.py": b"\xff\r\n", "a.py": "x", "ab/c.py": ""})
    git = Git(repository.path / "a")  # a folder inside works alike
    assert git.show(first, "a/b.py") == b"\xff\r\n"
    assert git.show(first, "a") is None
    assert git.show(first, "missing.py") is None
    assert git.files(first, "a") == ("a/b.py",)
    assert git.files(first) == ("a.py", "a/b.py", "ab/c.py")
    assert git.files(first, "missing") == ()


def test_resolve_and_merge_base(repository: Any) -> None:
    fork = repository.commit({"a": "1"})
    repository.git("checkout", "-q", "-b", "topic")
    topic = repository.commit({"a": "2"})
    repository.git("checkout", "-q", "main")
    main = repository.commit({"b": "1"})
    repository.git("tag", "-a", "-m", "text", "v1")
    git = Git(repository.path)
    assert git.resolve("v1") == main
    assert git.resolve(topic[:10]) == topic
    assert git.merge_base(main, topic) == fork


@pytest.mark.parametrize("revision", ["nowhere", "--help", "", "HEAD:a"])
def test_unknown_revision(repository: Any, revision: str) -> None:
    repository.commit({"a": "1"})
    with pytest.raises(UsageError, match="unknown revision"):
        Git(repository.path).resolve(revision)


def test_unrelated_histories(repository: Any) -> None:
    one = repository.commit({"a": "1"})
    repository.git("checkout", "-q", "--orphan", "other")
    two = repository.commit({"a": "2"})
    with pytest.raises(UsageError, match="fetch-depth: 0"):
        Git(repository.path).merge_base(one, two)


def test_no_repository_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not in a git repository"):
        Git(tmp_path)
    with pytest.raises(UsageError, match="not a folder"):
        Git(tmp_path / "missing")


def test_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="install git"):
        Git(tmp_path)


def test_variables_of_a_surrounding_hook_are_not_followed(
    make_repository: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = make_repository("mine"), make_repository("other")
    sha = mine.commit({"a": "mine"})
    other.commit({"a": "other"})
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    assert Git(mine.path).resolve("HEAD") == sha


def test_missing_objects_are_explained(repository: Any) -> None:
    base = repository.commit({"a": "1"})
    head = repository.commit({"a": "2"})
    objects = repository.path / ".git" / "objects"
    tree = repository.git("rev-parse", f"{base}^{{tree}}")
    shutil.rmtree(objects / tree[:2])
    with pytest.raises(UsageError, match="fetch the whole history"):
        Git(repository.path).changed_files(base, head)


def test_contents_are_read_by_blob_in_one_go(repository: Any) -> None:
    sha = repository.commit({"a.py": "x = 1\n", "b/ü.py": "", "binary": b"\0\n\xff"})
    git = Git(repository.path)
    blobs = git.blobs(sha)
    assert blobs.keys() == {"a.py", "b/ü.py", "binary"}
    found = git.contents([blobs["binary"], "0" * 40, blobs["a.py"], blobs["b/ü.py"]])
    assert found[blobs["a.py"]] == b"x = 1\n"
    assert found[blobs["b/ü.py"]] == b""
    assert found[blobs["binary"]] == b"\0\n\xff"
    assert "0" * 40 not in found
    assert git.contents([]) == {}


def test_the_files_of_a_commit_are_listed_once(repository: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository.path / "b.py").symlink_to("a.py")
    sha = repository.commit({"a.py": "1"})
    git = Git(repository.path)
    commands: list[str] = []
    call = git_module.call_git

    def counted(arguments: Sequence[str], *others: Any) -> bytes:
        commands.append(arguments[0])
        return call(arguments, *others)

    monkeypatch.setattr(git_module, "call_git", counted)
    for _ in range(3):
        assert git.links(sha) == {"b.py": "a.py"}
        blobs = git.blobs(sha)
        assert blobs["b.py"] == blobs["a.py"]
        blobs.clear()  # the caller's own
    assert commands == ["ls-tree", "cat-file"]
