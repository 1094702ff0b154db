"""Which workarounds a change is about: those that it edits, and those for the packages whose versions it moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import PlainSerializer

from hfexport_bot.changes.exporters import FOLDER, ExporterCode, edited
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.installs import moved_packages
from hfexport_bot.changes.registrations import OWN_FOLDER, read_registrations
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import REPO_PREFIX, Backend, Layout

#: The file of this project's own exporters that tells them from any other.
_OWN_REGISTRY = f"{OWN_FOLDER}/registry.py"

#: The packages whose versions decide whether a workaround is still needed, and of which backends.
DECIDING: Mapping[str, frozenset[Backend]] = {
    "torch": frozenset(Backend),
    "transformers": frozenset(Backend),
    **dict.fromkeys(("onnx", "onnx-ir", "onnxruntime", "onnxscript"), frozenset({Backend.ONNX})),
    "executorch": frozenset({Backend.EXECUTORCH}),
}

#: In a file in one order, so that the same plan is the same text.
_Names = Annotated[frozenset[str], PlainSerializer(sorted, return_type=list[str])]

#: Functions that a reason names.
_NAMED = 5


@dataclass(frozen=True)
class EditedWorkarounds:
    """What a change does to workarounds.

    Attributes:
        own: functions of the file that the repository's settings name, which give their names to workarounds.
        theirs: ids of patches and fixes of a checkout's own exporters.
        registered: functions of this project's own exporters, where the repository is this one.
        packages: those of `DECIDING` that are wanted in other versions, with both in words.
        reasons: what is said of the edited ones, by folder or file.
        removed: ids of the repository's own, and of a checkout's, that head no longer has.
    """

    own: _Names = frozenset()
    theirs: _Names = frozenset()
    registered: _Names = frozenset()
    packages: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    removed: _Names = frozenset()

    def without(self, packages: Collection[str]) -> EditedWorkarounds:
        """The same, but for the versions of some packages."""
        return replace(self, packages={name: said for name, said in self.packages.items() if name not in packages})

    def without_registered(self) -> EditedWorkarounds:
        """The same, but for those of this project's own exporters."""
        return replace(self, registered=frozenset())

    @property
    def calls_for_audit(self) -> tuple[str, ...]:
        """Everything of the change that does, in words."""
        return (*self.reasons, *self.packages.values())

    def concerns(self, workaround: str, backends: Iterable[Backend]) -> bool:
        """Whether a workaround by its id, which acts in cases of some backends, is one that the change is about."""
        if workaround in self.theirs:
            return True
        of_repo = workaround.startswith(REPO_PREFIX)
        backend, _, rest = workaround.partition("/")
        if not of_repo and rest.rpartition("/")[2] in self.own | self.registered:
            return True
        acting = {*backends} if of_repo else {Backend(backend)} if backend in {*Backend} else set()
        return any(acting & DECIDING[package] for package in self.packages)


def edited_workarounds(
    changes: Sequence[FileChange],
    base: Tree,
    head: Tree,
    layout: Layout,
    files: tuple[str | None, str | None] = (None, None),
) -> EditedWorkarounds:
    """What a change does to workarounds; ``files`` are those that the settings of base and of head name."""
    reasons: list[str] = []
    sides = [
        ExporterCode.of_file(tree.read(path) if path else None) for tree, path in zip((base, head), files, strict=True)
    ]
    own = frozenset(name.lstrip("_") for _, name in edited(*sides))
    if own and files[1]:
        reasons.append(_said(files[1], own))
    before, now = (read_registrations(tree, path) for tree, path in zip((base, head), files, strict=True))
    removed = before.ids - now.ids if now.whole else frozenset[str]()
    theirs, registered = frozenset[str](), frozenset[str]()
    paths = [change.path for change in changes if change.path.endswith(".py")]
    if layout is Layout.TRANSFORMERS and any(path.startswith(f"{FOLDER}/") for path in paths):
        codes = _codes(base, head, FOLDER)
        theirs = _ids(edited(*codes))
        if not codes[1].broken:
            acting = [_ids(symbol for symbol in code.symbols if code.acts(symbol)) for code in codes]
            removed |= acting[0] - acting[1]
    elif head.read(_OWN_REGISTRY) is not None and any(path.startswith(f"{OWN_FOLDER}/") for path in paths):
        registered = frozenset(name.lstrip("_") for _, name in edited(*_codes(base, head, OWN_FOLDER)))
    for folder, names in ((FOLDER, theirs), (OWN_FOLDER, registered)):
        if names:
            reasons.append(_said(folder, names))
    moved = moved_packages(base, head, layout)
    packages = {name: said for name, said in moved.items() if name in DECIDING}
    return EditedWorkarounds(own, theirs, registered, packages, tuple(reasons), removed)


def _codes(base: Tree, head: Tree, folder: str) -> tuple[ExporterCode, ExporterCode]:
    return ExporterCode.read(base, folder), ExporterCode.read(head, folder)


def _ids(symbols: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The ids by which outcomes list what acts in a checkout's exporters."""
    return frozenset(f"{REPO_PREFIX}{'.'.join(symbol)}" for symbol in symbols)


def _said(where: str, names: Collection[str]) -> str:
    short = sorted(name.rpartition(".")[2].lstrip("_") for name in names)
    more = f" and {len(short) - _NAMED} more" if len(short) > _NAMED else ""
    return f"{', '.join(short[:_NAMED])}{more} changed in {where}"
