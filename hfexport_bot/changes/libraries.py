"""Which affected classes cannot be built here, as far as their code tells: their constructors want a library that is
not installed (``requires_backends(self, ["timm"])``)."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable

from hfexport_bot.changes.kinds import ClassKey, code_of, selected_sources
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.tree import StoredTree

_WANTED = re.compile(r"\brequires_backends\(\s*self\s*,([^)]*)\)")
_NAME = re.compile(r"""["'](\w+)["']""")
#: Where a library is imported by another name.
_IMPORTED = {"vision": "PIL"}
#: The last part of the names of what makes losses: no constructor of a model needs it.
_LOSS = re.compile(r"\b(?:class|def) \w*(?:Loss|Matcher)\b.*?(?=^(?:class|def) |\Z)", re.MULTILINE | re.DOTALL)


def is_installed(library: str) -> bool:
    """Whether a library could be imported here."""
    return importlib.util.find_spec(_IMPORTED.get(library, library)) is not None


def lacking(
    selection: Selection, base: StoredTree, head: StoredTree, installed: Callable[[str], bool] = is_installed
) -> dict[ClassKey, str]:
    """For each affected class that wants what is not ``installed``, what to say of it."""
    found = {}
    for file, source, names in selected_sources(selection, base, head):
        if b"requires_backends" not in source:
            continue
        for name, code in code_of(source, names).items():
            wanted = {each for given in _WANTED.findall(_LOSS.sub("", code)) for each in _NAME.findall(given)}
            if missing := sorted(each for each in wanted if not installed(each)):
                verb = "is" if len(missing) == 1 else "are"
                found[file.model, name] = f"it wants {' and '.join(missing)}, which {verb} not installed"
    return found
