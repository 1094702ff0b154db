"""Whether a change asks for other packages to be installed: that may affect every model."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.locks import LOCKS
from hfexport_bot.changes.requirements import MATTERS, Requirements, read_requirements
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Layout

#: Files of a repository's root that say what it needs; transformers repeats that in a table of its own.
_DECLARING = frozenset({"pyproject.toml", "setup.cfg", "setup.py", *LOCKS})
_TABLE = "src/transformers/dependency_versions_table.py"
#: Packages that are named in a reason.
_NAMED = 3


def is_declaring(path: str, layout: Layout) -> bool:
    """Whether a file says what is to be installed."""
    if layout is Layout.TRANSFORMERS and path == _TABLE:
        return True
    return "/" not in path and (path in _DECLARING or fnmatchcase(path, "requirements*.txt"))


def what_else_is_installed(changes: Iterable[FileChange], base: Tree, head: Tree, layout: Layout) -> str | None:
    """How a change alters what a model needs to run, in words; None when it does not.

    Tools of developers do not count. Where a file changed in a way that cannot be told, it counts.
    """
    files = [change.path for change in changes if is_declaring(change.path, layout)]
    if not files:
        return None
    old, new = (read_requirements(tree, layout) for tree in (base, head))
    before, after = _wanted(old), _wanted(new)
    moved = [
        f"{name}{before.get(name, ' (new)')} to {name}{after.get(name, ' (gone)')}"
        if name in before
        else f"{name}{after[name]}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if not moved and old.problems == new.problems:
        return None
    more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
    return f"{', '.join(files)} changed" + (f": {', '.join(moved[:_NAMED])}{more}" if moved else "")


def _wanted(found: Requirements) -> dict[str, str]:
    """Version wanted by package: a lock's pins, and ranges of what the project needs to run."""
    ranges: dict[str, list[str]] = {}
    for each in found.asked:
        if each.firm or each.name in MATTERS:
            ranges.setdefault(each.name, []).append(str(each.specifier))
    wanted = {name: ",".join(sorted({text for text in texts if text})) for name, texts in ranges.items()}
    return wanted | {name: f"=={pin.version}" for name, pin in (found.pins or {}).items()}
