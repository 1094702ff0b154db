"""Revision trees: what is written, what is left behind, what is never touched."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.changes.git import Git
from hfexport_bot.errors import UsageError
from hfexport_bot.execution.trees import copied_tree, manifest, remove_stale_trees, revision_tree, written


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where trees go."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_revision_is_written_byte_for_byte_and_removed(repository: Any, place: Path) -> None:
    sha = repository.commit({"a.py": "x = 1\r\n", "pkg/b.py": b"\xff\x00", "run.sh": "#!"})
    repository.commit({"a.py": "later"})
    with revision_tree(Git(repository.path), sha, place) as tree:
        assert {str(p.relative_to(tree)) for p in tree.rglob("*")} == {"a.py", "pkg", "pkg/b.py", "run.sh"}
        assert (tree / "a.py").read_bytes() == b"x = 1\r\n"
        assert (tree / "pkg/b.py").read_bytes() == b"\xff\x00"
    assert list(place.iterdir()) == []


def test_everything_is_read_only_and_executable_bits_are_kept(repository: Any, place: Path) -> None:
    (repository.path / "run.sh").write_text("#!")
    (repository.path / "run.sh").chmod(0o755)
    sha = repository.commit({"pkg/b.py": ""})
    with revision_tree(Git(repository.path), sha, place) as tree:
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tree, *tree.rglob("*"))}
    assert not any(mode & 0o222 for mode in modes.values())
    assert modes["run.sh"] & stat.S_IXUSR
    assert not modes["b.py"] & stat.S_IXUSR


def test_a_copy_has_the_parts_asked_for_read_only_and_the_files_beside_them(tmp_path: Path, place: Path) -> None:
    work = tmp_path / "work"
    for name in ("src/a.py", "src/__pycache__/a.pyc", "docs/d.md", ".git/HEAD", "setup.py"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    (work / "src/link.py").symlink_to("a.py")
    (work / "src/lost").symlink_to("nowhere")
    with copied_tree(work, {"src", "tests"}, place) as tree:
        found = {str(path.relative_to(tree)) for path in tree.rglob("*")}
        assert found == {"setup.py", "src", "src/a.py", "src/link.py", "src/lost"}
        assert not any(path.stat().st_mode & 0o222 for path in (tree, tree / "src", tree / "src/a.py"))
        assert (tree / "src/link.py").is_symlink()
    assert list(place.iterdir()) == []


def test_what_cannot_be_copied_is_an_error_that_names_it(tmp_path: Path, place: Path) -> None:
    (tmp_path / "src").mkdir()
    os.mkfifo(tmp_path / "src" / "pipe")
    with pytest.raises(UsageError, match=r"could not be copied .*pipe"), copied_tree(tmp_path, {"src"}, place):
        pass
    assert list(place.iterdir()) == []


def test_files_that_were_written_to_are_found(tmp_path: Path) -> None:
    for name in ("same.py", "grown.py", "swapped.txt", "gone.txt", "closed.py", "dated.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / "shut").mkdir()
    before = manifest(tmp_path)
    (tmp_path / "closed.py").chmod(0)
    (tmp_path / "shut").chmod(0o500)
    dated = (tmp_path / "dated.py").stat()
    (tmp_path / "dated.py").write_text("DATED.py")
    os.utime(tmp_path / "dated.py", ns=(dated.st_atime_ns, dated.st_mtime_ns))
    (tmp_path / "grown.py").write_text("more than before")
    (tmp_path / "other").write_text("swapped.txt")
    (tmp_path / "other").replace(tmp_path / "swapped.txt")
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "new.py").touch()
    (tmp_path / "cache.json").touch()
    found = ("closed.py", "dated.py", "gone.txt", "grown.py", "new.py", "shut", "swapped.txt")
    assert written(before, manifest(tmp_path)) == found


def test_no_git_folder_is_in_reach(repository: Any, place: Path) -> None:
    sha = repository.commit({"a.py": ""})
    with revision_tree(Git(repository.path), sha, place) as tree:
        assert not any((parent / ".git").exists() for parent in (tree, tree.parent))
        assert not (tree.parent / "git").exists()


def test_the_repository_is_not_modified(repository: Any, place: Path) -> None:
    sha = repository.commit({"a.py": "committed"})
    (repository.path / "a.py").write_text("being edited")
    before = snapshot(repository.path)
    with revision_tree(Git(repository.path), sha, place) as tree:
        assert (tree / "a.py").read_text() == "committed"
    assert snapshot(repository.path) == before


def test_filters_hooks_and_attributes_of_the_repository_take_no_part(repository: Any, place: Path) -> None:
    repository.git("config", "filter.evil.smudge", f"touch {place}/smudged; cat")
    repository.git("config", "filter.evil.required", "true")
    repository.git("config", "core.autocrlf", "true")
    hook = repository.path / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {place}/hooked\n")
    hook.chmod(0o755)
    attributes = "*.py filter=evil\n*.txt text eol=crlf\n*.md ident\n*.utf working-tree-encoding=UTF-16\n"
    sha = repository.commit(
        {".gitattributes": attributes, "a.txt": "x\n", "b.md": "$Id$\n", "c.utf": "é".encode("utf-16")}
    )
    repository.git("config", "filter.evil.required", "false")
    sha = repository.commit({"a.py": "x\n"})
    (place / "smudged").unlink(missing_ok=True)
    with revision_tree(Git(repository.path), sha, place) as tree:
        assert (tree / "a.py").read_bytes() == b"x\n"
        assert (tree / "a.txt").read_bytes() == b"x\n"
        assert (tree / "b.md").read_bytes() == b"$Id$\n"
        assert (tree / "c.utf").read_bytes() == "é".encode()
    assert list(place.iterdir()) == []


def test_links_are_written_and_their_targets_left_alone(repository: Any, place: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (repository.path / "to_file").symlink_to(outside / "file")
    (repository.path / "to_folder").symlink_to(outside)
    (repository.path / "dangling").symlink_to("nowhere")
    modes = outside.stat().st_mode, (outside / "file").stat().st_mode
    sha = repository.commit({})
    with revision_tree(Git(repository.path), sha, place) as tree:
        assert os.readlink(tree / "to_folder") == str(outside)
        assert os.readlink(tree / "dangling") == "nowhere"
        assert (outside.stat().st_mode, (outside / "file").stat().st_mode) == modes
    assert (outside.stat().st_mode, (outside / "file").stat().st_mode) == modes
    assert (outside / "file").read_text() == "mine"


def test_submodules_are_empty_folders(repository: Any, place: Path) -> None:
    first = repository.commit({"a.py": ""})
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{first},vendored")
    repository.git("commit", "-q", "-m", "submodule")
    with revision_tree(Git(repository.path), repository.git("rev-parse", "HEAD"), place) as tree:
        assert list((tree / "vendored").iterdir()) == []


@pytest.mark.parametrize("kind", ["bare", "worktree", "subfolder"])
def test_other_kinds_of_repository(repository: Any, place: Path, tmp_path: Path, kind: str) -> None:
    sha = repository.commit({"pkg/a.py": "here"})
    path = {"bare": tmp_path / "bare", "worktree": tmp_path / "linked", "subfolder": repository.path / "pkg"}[kind]
    if kind == "bare":
        repository.git("clone", "-q", "--bare", ".", str(path))
    elif kind == "worktree":
        repository.git("worktree", "add", "-q", "--detach", str(path))
    with revision_tree(Git(path), sha, place) as tree:
        assert (tree / "pkg/a.py").read_text() == "here"


def test_a_tree_goes_when_the_work_fails(repository: Any, place: Path) -> None:
    sha = repository.commit({"pkg/a.py": ""})
    with pytest.raises(RuntimeError), revision_tree(Git(repository.path), sha, place):
        raise RuntimeError
    assert list(place.iterdir()) == []


def test_missing_objects_are_explained_and_leave_nothing(repository: Any, place: Path) -> None:
    sha = repository.commit({"a.py": "text"})
    blob = repository.git("rev-parse", "HEAD:a.py")
    (repository.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(UsageError, match="fetch the whole history"), revision_tree(Git(repository.path), sha, place):
        pass
    assert list(place.iterdir()) == []


HOLD = """
import sys
from pathlib import Path
from hfexport_bot.changes.git import Git
from hfexport_bot.execution.trees import revision_tree
with revision_tree(Git(Path(sys.argv[1])), sys.argv[2], Path(sys.argv[3])):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_trees_of_killed_processes_are_removed_and_of_live_ones_kept(repository: Any, place: Path) -> None:
    sha = repository.commit({"pkg/a.py": ""})
    command = [sys.executable, "-c", HOLD, str(repository.path), sha, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        remove_stale_trees(place)
        assert len(list(place.iterdir())) == 1
        holder.send_signal(signal.SIGKILL)
    assert len(list(place.iterdir())) == 1
    with revision_tree(Git(repository.path), sha, place) as tree:
        assert list(place.iterdir()) == [tree.parent]


def test_only_what_is_surely_a_stale_tree_is_removed(
    place: Path, tmp_path: Path, make_repository: Callable[[str], Any]
) -> None:
    for name in ("hfexport-tree-notes", "something", f"hfexport-tree-{os.getpid()}-starting"):
        (place / name).mkdir()
    target = tmp_path / "precious"
    target.mkdir()
    (place / "hfexport-tree-1-link").symlink_to(target)
    (place / "hfexport-tree-999999999-dead").mkdir()
    remove_stale_trees(place)
    left = {path.name for path in place.iterdir()}
    assert left == {
        "hfexport-tree-notes",
        "something",
        f"hfexport-tree-{os.getpid()}-starting",
        "hfexport-tree-1-link",
    }
