"""Write a revision to a temporary folder that is read-only and removed at the end.

Git writes it from a private git folder that borrows the repository's objects and nothing else: no index, hook,
filter or configuration of the repository takes part, its content is written byte for byte, and the repository
is never modified. The private folder is gone before the tree is handed out: no ``.git`` is visible from it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hfexport_bot.changes.git import Git, GitError, call_git, git_environment
from hfexport_bot.errors import UsageError

_PREFIX = "hfexport-tree-"
_NAME = re.compile(re.escape(_PREFIX) + r"(\d+)-\w+")
_LOCK = "lock"

# `info/attributes` outranks the revision's own .gitattributes: no line ending or encoding is converted.
_ATTRIBUTES = "* -text -ident !filter !eol !working-tree-encoding\n"


@contextmanager
def revision_tree(git: Git, sha: str, parent: Path | None = None) -> Iterator[Path]:
    """Write a commit to a read-only folder and remove it at the end, whatever happens in between.

    Submodules come as empty folders; symbolic links are written as they are. Trees that killed processes left
    behind are removed first.

    Args:
        parent: where temporary folders go; the system's place by default.

    Raises `UsageError` when objects of the commit are missing.
    """
    with temporary_folder(parent) as root:
        tree = root / "tree"
        _write(git, sha, root / "git", tree)
        _make_read_only(tree)
        yield tree


@contextmanager
def copied_tree(folder: Path, parts: Collection[str], parent: Path | None = None) -> Iterator[Path]:
    """A read-only copy of parts of a folder, as they are now, and of the files beside them; removed at the end. Links
    are copied as links.

    Raises `UsageError` for what cannot be read, and where there is no room.
    """
    with temporary_folder(parent) as root:
        tree = root / "tree"
        tree.mkdir()
        try:
            for path in folder.iterdir():
                if path.is_file():
                    shutil.copy2(path, tree)
                elif path.name in parts and path.is_dir():
                    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
                    shutil.copytree(path, tree / path.name, symlinks=True, ignore=ignored)
        except OSError as error:
            told = error.args[0][0] if isinstance(error, shutil.Error) else error
            raise UsageError(f"{folder} could not be copied to a temporary folder to run there: {told}") from None
        _make_read_only(tree)
        yield tree


#: Inode, mode, size and time of each file; of a folder, in which Python may leave what it compiled, no size and time.
Manifest = Mapping[str, tuple[int, int, int, int]]


def manifest(tree: Path) -> Manifest:
    """What tells whether files were written to, or who may read them changed. The time is one that nobody can set."""
    found = {}
    for here, _, names, folder in os.fwalk(tree):
        status = os.fstat(folder)
        found[os.path.relpath(here, tree)] = status.st_ino, status.st_mode, 0, 0
        for name in names:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            path = os.path.relpath(os.path.join(here, name), tree)
            found[path] = status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns
    return found


def written(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """The files and folders that changed or went, and Python files that came: root may write to what is read-only."""
    gone = {path for path, status in before.items() if after.get(path) != status}
    return tuple(sorted(gone | {path for path in after.keys() - before.keys() if path.endswith(".py")}))


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder that is removed at the end, or by the next call after this process was killed."""
    place = parent or Path(tempfile.gettempdir())
    remove_stale_trees(place)
    root = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place)).resolve()
    if os.geteuid() == 0:
        root.chmod(0o711)  # root's runners are other users
    try:
        with _locked(root):
            yield root
    finally:
        _remove(root)


def remove_stale_trees(place: Path) -> None:
    """Remove the trees of processes that are no more. Those of live processes and other users are left alone."""
    for entry in os.scandir(place):
        match = _NAME.fullmatch(entry.name)
        if match is None or not entry.is_dir(follow_symlinks=False):
            continue
        try:
            owner = entry.stat(follow_symlinks=False).st_uid
        except FileNotFoundError:
            continue  # another process was quicker
        if owner == os.getuid() and _is_stale(Path(entry.path), int(match[1])):
            _remove(Path(entry.path))


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock that tells other processes that this tree is in use. It goes with the process, however that
    ends, and holds across containers that share the folder, where process ids mean nothing."""
    with open(root / "unlocked", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(root / "unlocked", root / _LOCK)
        yield


def _is_stale(root: Path, pid: int) -> bool:
    try:
        with open(root / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return not _is_alive(pid)  # ended before it held the lock, or while it removed the tree
    return True


def _write(git: Git, sha: str, git_dir: Path, tree: Path) -> None:
    tree.mkdir()
    for folder in ("refs", "info", "objects"):
        (git_dir / folder).mkdir(parents=True)
    object_format = git.object_format
    version, extension = (0, "") if object_format == "sha1" else (1, f"[extensions]\nobjectFormat = {object_format}\n")
    (git_dir / "HEAD").write_text("ref: refs/heads/none\n")
    (git_dir / "config").write_text(f"[core]\nrepositoryFormatVersion = {version}\nbare = false\n{extension}")
    (git_dir / "info" / "attributes").write_text(_ATTRIBUTES)
    environment = git_environment() | {
        "GIT_DIR": str(git_dir),
        "GIT_WORK_TREE": str(tree),
        "GIT_INDEX_FILE": str(git_dir / "index"),
        "GIT_OBJECT_DIRECTORY": str(git.objects),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    try:
        call_git(("read-tree", sha), tree, environment)
        call_git(
            ("-c", "core.attributesFile=/dev/null", "checkout-index", "-a", f"--prefix={tree}/"),
            tree,
            environment,
        )
    except GitError as error:
        last = (str(error).splitlines() or ["no message"])[-1]
        raise UsageError(
            f"commit {sha[:12]} could not be written out ({last}); "
            "if objects are missing, fetch the whole history, without --filter"
        ) from None
    shutil.rmtree(git_dir)


def _make_read_only(tree: Path) -> None:
    for _, _, names, folder in os.fwalk(tree):
        for name in names:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not stat.S_ISLNK(mode):  # its target may lie outside of the tree
                os.chmod(name, stat.S_IMODE(mode) & ~0o222, dir_fd=folder)
        os.fchmod(folder, 0o555)


def _remove(root: Path) -> None:
    """Remove a folder, read-only ones in it included. What the code under test made undeletable stays."""
    # By descriptor, and never through a link: only folders of this tree change their mode.
    for _, _, _, folder in os.fwalk(root):
        os.fchmod(folder, 0o700)
    shutil.rmtree(root, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
