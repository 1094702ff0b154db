"""Where the models of a check are, and how they are called there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hfexport_bot.changes.git import Git
from hfexport_bot.changes.layout import EXPORTERS, MODELS_FOLDER, detect_layout
from hfexport_bot.changes.tree import FolderTree, Tree
from hfexport_bot.errors import UsageError
from hfexport_bot.schema import Layout, Revision
from hfexport_bot.settings import SETTINGS_PATH


@dataclass(frozen=True)
class Place:
    """A folder, how models lie in it, and the names to look up, with paths relative to it; ``tree`` is the folder as
    the command line takes it, empty for the installed transformers."""

    root: Path
    layout: Layout
    name: str
    names: tuple[str, ...]
    tree: str

    @property
    def revision(self) -> Revision:
        """What is in the folder, with the commit that is checked out there. Without one where there is none, and where
        files were changed since, which the name then says."""
        if self.layout is Layout.INSTALLED:
            return Revision(name=self.name)
        try:
            git = Git(self.root)
            sha = git.resolve("HEAD") if git.holds_its_folder else ""
            changed = bool(sha) and git.has_changes
        except UsageError:  # no repository, no commit in it, or no git
            return Revision(name=self.name)
        if changed:
            return Revision(name=f"{self.name} at {sha[:7]} with changes that are not committed")
        return Revision(name=self.name, sha=sha)


def find_place(names: Sequence[str], folder: Path | None) -> Place:
    """Find the tree of the named models: ``folder`` if given, else that of the paths among the names, else the
    installed transformers, which is not imported.

    Raises `UsageError` when there is none, or more than one.
    """
    paths = [name.partition(":")[0] for name in names if name.partition(":")[0].endswith(".py")]
    installed = installed_root()
    if folder is not None:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder; give --tree a checkout or a folder of modeling files")
        root = folder.resolve()
    elif paths:
        roots = {_root_of(Path(path)) for path in paths}
        if len(roots) > 1:
            raise UsageError("the paths belong to different trees; check them one tree at a time")
        root = roots.pop()
    elif installed is None:
        raise UsageError("transformers is not installed; install it, or name a checkout with --tree")
    else:
        root = installed
    if root == installed:
        layout, shown = Layout.INSTALLED, f"transformers {importlib.metadata.version('transformers')}"
    else:
        layout, shown = detect_layout(FolderTree(root)), root.name
    tree = str(folder or as_given(root, all(not Path(path).is_absolute() for path in paths)))
    tree = "" if layout is Layout.INSTALLED else tree
    return Place(root, layout, shown, tuple(_relative(name, root) for name in names), tree)


def as_given(folder: Path, relative: bool) -> str:
    """A folder as whoever gave it would write it: from here, or from the machine's root."""
    return os.path.relpath(folder) if relative else str(folder)


def _relative(name: str, root: Path) -> str:
    """A path in the tree, given from here or from the tree's root; other names as they are."""
    path, colon, class_name = name.partition(":")
    if not path.endswith(".py"):
        return name
    for candidate in (Path(path).resolve(), (root / path).resolve()):
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root).as_posix() + colon + class_name
    raise UsageError(f"{path} is not in {root}; give the path of a modeling file there")


def _root_of(path: Path) -> Path:
    """The tree a modeling file belongs to: the installed transformers, the repository around it, or else the folder
    its outermost package lies in."""
    if not path.is_file():
        raise UsageError(f"{path} does not exist; give a modeling file, a model such as `bert`, or MODEL/CLASS")
    file = path.resolve()
    installed = installed_root()
    if installed and file.is_relative_to(installed / MODELS_FOLDER[Layout.INSTALLED]):
        return installed
    for parent in file.parents:
        if (parent / ".git").exists() or (parent / SETTINGS_PATH).exists():
            return parent
    folder = file.parent
    while (folder / "__init__.py").exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def installed_root(package: str = "transformers") -> Path | None:
    """The folder an installed package lies in."""
    spec = importlib.util.find_spec(package)  # finds a top-level package without importing it
    return Path(spec.origin).resolve().parent.parent if spec and spec.origin else None


def has_exporters(tree: Tree, layout: Layout) -> bool:
    """Whether the transformers that a side is exported with has exporters of its own."""
    return exporters_of(tree, layout).read(EXPORTERS[layout]) is not None


def exporters_of(tree: Tree, layout: Layout) -> Tree:
    """Where the transformers that exports for a side lies: in a checkout, or else it is the installed one."""
    root = None if layout is Layout.TRANSFORMERS else installed_root()
    return FolderTree(root) if root else tree
