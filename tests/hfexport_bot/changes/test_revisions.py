"""Which commits are compared and which files differ, in repositories as CI clones them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.changes.git import FileChange, Git
from hfexport_bot.changes.revisions import Pair, find_pair, listed_changes
from hfexport_bot.changes.tree import GitTree
from hfexport_bot.errors import UsageError


@pytest.fixture
def merged(repository: Any) -> dict[str, str]:
    """A pull request whose base moved on after it began, and the merge that GitHub makes of it, checked out."""
    shas = {"fork": repository.commit({"a.py": "1"})}
    repository.git("checkout", "-q", "-b", "topic")
    shas["topic"] = repository.commit({"b.py": "1"})
    repository.git("checkout", "-q", "main")
    shas["main"] = repository.commit({"c.py": "1"})
    repository.git("checkout", "-q", "--detach")
    message = f"Merge {shas['topic']} into {shas['main']}"
    repository.git("merge", "-q", "--no-ff", "-m", message, "topic")
    shas["merge"] = repository.git("rev-parse", "HEAD")
    return shas


def clone(source: Path, target: Path, depth: int) -> Git:
    command = ["git", "clone", "-q", "--no-local", "--depth", str(depth), f"file://{source}", str(target)]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return Git(target)


def test_a_pull_requests_merge_is_compared_with_what_it_is_merged_into(repository: Any, merged: dict[str, str]) -> None:
    git = Git(repository.path)
    assert find_pair(git, "main", "HEAD") == Pair(merged["main"], merged["merge"])
    older = find_pair(git, merged["fork"], "HEAD")  # as the event of an older push names it
    assert (older.base, older.head) == (merged["main"], merged["merge"])
    assert "compared with its first parent" in older.notes[0]
    assert git.changed_files(older.base, older.head) == (FileChange(None, "b.py"),)
    assert find_pair(git, "topic", "HEAD").base == merged["topic"]  # asked for in so many words


def test_any_other_merge_has_a_merge_base(repository: Any, merged: dict[str, str]) -> None:
    repository.git("commit", "-q", "--amend", "-m", "Merge branch 'topic'")
    assert find_pair(Git(repository.path), merged["fork"], "HEAD").base == merged["fork"]


@pytest.mark.parametrize("base", ["HEAD^1", "HEAD"])
def test_in_a_clone_of_depth_two_a_merge_has_its_first_parent(
    repository: Any, merged: dict[str, str], tmp_path: Path, base: str
) -> None:
    repository.git("checkout", "-q", "-B", "pull", merged["merge"])
    git = clone(repository.path, tmp_path / "clone", depth=2)
    assert find_pair(git, base, "HEAD").base == merged["main"]
    with pytest.raises(UsageError, match=r"give --base HEAD.1 and actions/checkout fetch-depth: 2"):
        find_pair(git, "origin/main", "HEAD")


def test_a_clone_that_lacks_the_parent_says_what_to_fetch(
    repository: Any, merged: dict[str, str], tmp_path: Path
) -> None:
    repository.git("checkout", "-q", "-B", "pull", merged["merge"])
    git = clone(repository.path, tmp_path / "clone", depth=1)
    with pytest.raises(UsageError, match="give actions/checkout fetch-depth: 2"):
        find_pair(git, "HEAD", "HEAD")


def test_a_shallow_clone_without_a_merge_base(repository: Any, merged: dict[str, str], tmp_path: Path) -> None:
    repository.git("commit", "-q", "--amend", "-m", "Merge branch 'topic'")
    repository.git("checkout", "-q", "-B", "pull")
    repository.git("checkout", "-q", "main")
    repository.commit({"d.py": "1"})
    git = clone(repository.path, tmp_path / "clone", depth=1)
    subprocess.run(["git", "fetch", "-q", "--depth", "2", "origin", "pull"], cwd=git.path, check=True)
    pair = find_pair(git, "HEAD", "FETCH_HEAD")  # main's tip and a merge, which share nothing that is here
    assert pair.base == merged["main"]
    assert "shallow clone" in pair.notes[0]
    with pytest.raises(UsageError, match="this clone is shallow"):
        find_pair(git, "HEAD", "FETCH_HEAD^2")


def test_nothing_to_judge_is_told(repository: Any) -> None:
    sha = repository.commit({"a.py": "1"})
    repository.commit({"a.py": "2"})
    git = Git(repository.path)
    for base in ("HEAD", sha):
        pair = find_pair(git, base, sha)
        assert pair == Pair(sha, sha, (f"{sha} has nothing that {base} has not: there is no change to judge",))


def test_a_repository_without_a_commit_says_so(repository: Any) -> None:
    with pytest.raises(UsageError, match="has no commit on its branch yet"):
        find_pair(Git(repository.path), "main", "HEAD")


def entry(filename: str, status: str = "modified", **more: str) -> dict[str, str]:
    return {"filename": filename, "status": status, "sha": "0" * 40, "patch": "@@", **more}


@pytest.fixture
def change(repository: Any) -> Pair:
    base = repository.commit({"a.py": "1", "gone.py": "x\ny\nz", "old.py": "q\nr\ns\nt"})
    head = repository.commit({"a.py": "2", "gone.py": None, "old.py": None, "new.py": "q\nr\ns\nt", "added.py": "w"})
    return Pair(base, head)


def listed(repository: Any, change: Pair, content: object) -> tuple[tuple[FileChange, ...], tuple[str, ...]]:
    file = repository.path.parent / "files.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return listed_changes(Git(repository.path), change, file)


def test_githubs_list_says_what_git_says(repository: Any, change: Pair) -> None:
    files = [
        entry("a.py"),
        entry("gone.py", "removed"),
        entry("new.py", "renamed", previous_filename="old.py"),
        entry("added.py", "added"),
    ]
    found, notes = listed(repository, change, files)
    assert set(found) == set(Git(repository.path).changed_files(change.base, change.head))
    assert notes == ()


@pytest.mark.parametrize("count", [300, 3_000])
def test_a_list_that_may_be_cut_off_gives_way_to_git(repository: Any, change: Pair, count: int) -> None:
    found, notes = listed(repository, change, [entry("a.py")] * count)
    assert found == Git(repository.path).changed_files(change.base, change.head)
    assert "may be cut off" in notes[0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is no list of files"),
        ({"message": "Not Found"}, "should be a valid array|valid list"),
        ([{"filename": "a.py"}], r"\[0\]\[status\] Field required"),
        ([entry("a.py", "eaten")], r"\[0\]\[status\]"),
        ([entry("elsewhere.py")], "elsewhere.py is neither in"),
    ],
)
def test_what_is_no_list_of_this_change_is_refused(
    repository: Any, change: Pair, content: object, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        listed(repository, change, content)


def test_a_list_that_is_not_there_is_refused(repository: Any, change: Pair, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--files: .*none\.json cannot be read: No such file"):
        listed_changes(Git(repository.path), change, tmp_path / "none.json")


def test_a_link_changes_with_the_file_that_it_leads_to(make_repository: Callable[[str], Any]) -> None:
    repository = make_repository("linked")
    (repository.path / "zoo").mkdir()
    (repository.path / "zoo" / "modeling_a.py").symlink_to("../shared/a.py")
    (repository.path / "dangling").symlink_to("nowhere")
    base = repository.commit({"shared/a.py": "x = 1"})
    head = repository.commit({"shared/a.py": "x = 2"})
    git = Git(repository.path)
    assert git.links(head) == {"zoo/modeling_a.py": "shared/a.py"}
    tree = GitTree(git, head)
    assert tree.contents([tree.blobs()["zoo/modeling_a.py"]])[tree.blobs()["shared/a.py"]] == b"x = 2"
    assert listed_changes(git, Pair(base, head), None)[0] == (
        FileChange("shared/a.py", "shared/a.py"),
        FileChange("zoo/modeling_a.py", "zoo/modeling_a.py"),
    )
