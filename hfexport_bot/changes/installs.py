"""Whether a change asks for other packages to be installed: that may affect every model."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from hfexport_bot.changes.declared import is_declaring_name, says
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.layout import is_modeling_file, is_test_or_doc
from hfexport_bot.changes.requirements import MATTERS, Requirements, read_requirements
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Layout

#: transformers repeats what it needs in a table of its own.
_TABLE = "src/transformers/dependency_versions_table.py"
#: Packages that are named in a reason.
_NAMED = 3


@dataclass(frozen=True)
class Installs:
    """The changed files that say what is to be installed, and in words how they alter it (None: they do not)."""

    changes: tuple[FileChange, ...] = ()
    altered: str | None = None


def what_else_is_installed(changes: Sequence[FileChange], base: Tree, head: Tree, layout: Layout) -> Installs:
    """How a change alters what a model needs to run.

    Tools of developers do not count where they can be told. Where a file changed in a way that cannot be told, it
    counts.
    """
    possible = [change for change in changes if _may_declare(change.path, layout)]
    if not possible:
        return Installs()
    old, new = (read_requirements(tree, layout) for tree in (base, head))
    read = {_TABLE, *old.included, *new.included}
    whole = [
        change for change in possible if change.path not in read and _stands_alone(change.path, base, head, layout)
    ]
    at_root = [
        change
        for change in possible
        if change.path in read or ("/" not in change.path and is_declaring_name(change.path))
    ]
    moved = [*_moved(old, new).values()]
    altered = at_root if moved or old.problems != new.problems else []
    altered = altered or [change for change in at_root if _says_more(change, base, head, layout)]
    altered = [*altered, *whole]
    files = (*at_root, *whole)
    if not altered:
        return Installs(files)
    more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
    told = f": {', '.join(moved[:_NAMED])}{more}" if moved else ""
    return Installs(files, f"{', '.join(change.path for change in altered)} changed{told}")


def moved_packages(base: Tree, head: Tree, layout: Layout) -> dict[str, str]:
    """The packages that a change wants in other versions than before, by name, each with both in words."""
    return _moved(read_requirements(base, layout), read_requirements(head, layout))


def _moved(old: Requirements, new: Requirements) -> dict[str, str]:
    before, after = _wanted(old), _wanted(new)
    return {
        name: f"{name}{before[name]} to {name}{after.get(name, ' (gone)')}"
        if name in before
        else f"{name}{after[name]}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }


def _may_declare(path: str, layout: Layout) -> bool:
    if layout is Layout.TRANSFORMERS and path == _TABLE:
        return True
    name = path.rpartition("/")[2]
    return is_declaring_name(name) or name.endswith((".txt", ".in", ".pip"))  # any file may be included


def _stands_alone(path: str, base: Tree, head: Tree, layout: Layout) -> bool:
    """Whether a file that is not read, since it is not at the root, is about models: those of a folder around it, or
    all where it lies in a folder for such files."""
    folder = posixpath.dirname(path)
    if not folder or is_test_or_doc(path):
        return False
    if folder == "requirements":
        return path.endswith((".txt", ".in"))
    return is_declaring_name(posixpath.basename(path)) and folder in _folders_of_models(base, head, layout)


def _folders_of_models(base: Tree, head: Tree, layout: Layout) -> set[str]:
    """The folders around the modeling files of a repository: what is installed for one of them is for its models."""
    if layout is not Layout.MODELING:
        return set()
    paths = {path for tree in (base, head) for path in tree.files() if is_modeling_file(path, layout)}
    return {folder for path in paths for folder in _around(path)}


def _around(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _says_more(change: FileChange, base: Tree, head: Tree, layout: Layout) -> bool:
    """Whether a file says something else of what is installed, beside the versions that were read."""
    sources = [(tree.read(path) if path else None) or b"" for tree, path in ((base, change.old), (head, change.new))]
    if layout is Layout.TRANSFORMERS and (change.path == _TABLE or all(b"_deps" in source for source in sources)):
        return False  # read in full
    old, new = (says(change.path, source.decode("utf-8", errors="replace")) for source in sources)
    return old != new


def _wanted(found: Requirements) -> dict[str, str]:
    """Version wanted by package: a lock's pins, and ranges of what the project needs to run."""
    ranges: dict[str, list[str]] = {}
    for each in found.asked:
        if each.firm or each.name in MATTERS:
            ranges.setdefault(each.name, []).append(str(each.specifier))
    wanted = {name: ",".join(sorted({text for text in texts if text})) for name, texts in ranges.items()}
    return wanted | {name: f"=={pin.version}" for name, pin in (found.pins or {}).items()}
