"""From changed files to the model classes they affect, and to what is not run and why.

Selection is by file: a changed modeling file, or a changed configuration beside it, affects all its model classes; in a
repository with its own modeling files so does any other changed file that it imports. A change to a checkout's own
exporters affects the models that they act on (`hfexport_bot.changes.exporters`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from hfexport_bot.changes.exporters import ByExporters, Hits, affected_by_exporters, is_exporter_file
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.imports import ModelingImports
from hfexport_bot.changes.layout import (
    ModelFile,
    configuration_name,
    has_odd_name,
    is_modeling_file,
    is_test_or_doc,
    model_file,
)
from hfexport_bot.changes.modeling import (
    SourceError,
    generating_classes,
    imports_module,
    model_classes,
    parse,
    public_model_classes,
    same_code,
)
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Layout, NotRun

ONLY_TEXT = "only comments or docstrings changed"
_NO_MODEL = "has no model class"


@dataclass(frozen=True)
class AffectedModule:
    """A modeling file to run: where it is on each side (None: it isn't there), its classes there, those of them that
    generate, and why."""

    base: ModelFile | None
    head: ModelFile | None
    base_classes: tuple[str, ...]
    head_classes: tuple[str, ...]
    reason: str
    base_generating: tuple[str, ...] = ()
    head_generating: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """What a change affects, and what it touches that is not run."""

    affected: tuple[AffectedModule, ...] = ()
    not_run: tuple[NotRun, ...] = ()


def select(
    changes: Iterable[FileChange], base: Tree, head: Tree, layout: Layout, hits: Hits | None = None
) -> Selection:
    """Find the affected model classes.

    ``hits``: where a checkout's own exporters are run, on which cases its patches and fixes acted before
    (`recorded_hits`); otherwise None, and a change to those exporters affects nothing.

    A file that is no Python on one side takes the other side's classes, so that its cases run and end as
    errors in stage ``source``. Tests, documents and files that are no Python are not mentioned.
    """
    modeling, others = _sorted_out(changes, layout)
    by_exporters = ByExporters()
    if hits is not None:
        own_exporters = [change for change in others if is_exporter_file(change.path, layout)]
        others = [change for change in others if change not in own_exporters]
        by_exporters = affected_by_exporters(own_exporters, base, head, layout, hits)
    not_run: list[NotRun] = []
    reasons: dict[str, list[str]] = {}
    used: set[str] = set()
    own = set(modeling)
    moved = {change.old: change.path for change in modeling.values() if change.old}
    sides = [(tree, ModelingImports(tree, layout)) for tree in (base, head)]
    for change in (*others, *modeling.values()):
        if _same(change, *_read(change, base, head)):
            if change.path not in own:
                not_run.append(NotRun(kind="file", name=change.path, reason=ONLY_TEXT))
            continue
        users = {
            moved.get(user, user)
            for (tree, imports), path in zip(sides, (change.old, change.new), strict=True)
            if path
            for user in _users(path, tree, imports, layout)
        }
        if users:
            used.add(change.path)
        elif change.path not in own:
            not_run.append(NotRun(kind="file", name=change.path, reason=_unused(change.path, layout)))
        for user in sorted(users - {change.path}):
            modeling.setdefault(user, FileChange(user, user))
            reasons.setdefault(user, []).append(f"{PurePosixPath(change.path).name} {_verb(change)}")

    affected: list[AffectedModule] = []
    for path in sorted(modeling):
        found = _examine(modeling[path], base, head, layout, reasons.get(path, []))
        if isinstance(found, NotRun):
            if found.reason != _NO_MODEL or path not in used:
                not_run.append(found)
        else:
            affected.append(found)
    reason = "not used in an export to torch.export, ONNX or ExecuTorch"
    not_run += [NotRun(kind="file", name=path, reason=reason) for path in by_exporters.unused]
    affected = _with_exporters(affected, by_exporters, base, head, layout)
    return Selection(tuple(affected), tuple(sorted(not_run, key=lambda entry: entry.name)))


def _with_exporters(
    affected: list[AffectedModule], by_exporters: ByExporters, base: Tree, head: Tree, layout: Layout
) -> list[AffectedModule]:
    """``affected`` with what a change to exporters affects."""
    found = {file.path: module for module in affected if (file := module.head or module.base) is not None}
    for path, classes in by_exporters.classes.items():
        (base_names, base_generating), (head_names, head_generating) = (
            _defined(tree.read(path), classes) for tree in (base, head)
        )
        known = found.get(path)
        reasons = dict.fromkeys(reason for each in classes.values() for reason in each)
        found[path] = AffectedModule(
            base=model_file(path, layout) if base.read(path) is not None else None,
            head=model_file(path, layout) if head.read(path) is not None else None,
            base_classes=_joined(known.base_classes if known else (), base_names),
            head_classes=_joined(known.head_classes if known else (), head_names),
            reason="; ".join([*([known.reason] if known else []), *reasons]),
            base_generating=_joined(known.base_generating if known else (), base_generating),
            head_generating=_joined(known.head_generating if known else (), head_generating),
        )
        if known is not None:
            found[path] = replace(found[path], base=known.base, head=known.head)
    return [found[path] for path in sorted(found)]


def _defined(source: bytes | None, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those of the names that a file defines as models, and as ones that generate."""
    try:
        module = parse(source or b"")
    except SourceError:
        return (), ()
    known, generating = model_classes(module), generating_classes(module)
    return tuple(n for n in names if n in known), tuple(n for n in names if n in generating)


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _sorted_out(changes: Iterable[FileChange], layout: Layout) -> tuple[dict[str, FileChange], list[FileChange]]:
    """The changed modeling files by path, and the other Python files that neither test nor document."""
    modeling: dict[str, FileChange] = {}
    others: list[FileChange] = []
    for change in (each for each in changes if each.path.endswith(".py")):
        if part := _restricted(change, lambda path: is_modeling_file(path, layout)):
            modeling[part.path] = part
        elif part := _restricted(change, lambda path: configuration_name(path, layout) is not None):
            others.append(part)
        elif not is_test_or_doc(change.path):
            others.append(change)
    return modeling, others


def _restricted(change: FileChange, wanted: Callable[[str], bool]) -> FileChange | None:
    """The change as seen by files of one kind: a file renamed to another kind was deleted there."""
    old = change.old if change.old and wanted(change.old) else None
    new = change.new if change.new and wanted(change.new) else None
    return FileChange(old, new) if old or new else None


def _verb(change: FileChange) -> str:
    if change.old is None:
        return "was added"
    if change.new is None:
        return "was deleted"
    return "changed" if change.old == change.new else f"moved from {change.old}"


def _read(change: FileChange, base: Tree, head: Tree) -> tuple[bytes | None, bytes | None]:
    old = base.read(change.old) if change.old else None
    new = head.read(change.new) if change.new else None
    return old, new


def _same(change: FileChange, old: bytes | None, new: bytes | None) -> bool:
    """Whether a file stayed where it is and runs the same code."""
    return change.old == change.new and old is not None and new is not None and same_code(old, new)


def _users(path: str, tree: Tree, imports: ModelingImports, layout: Layout) -> set[str]:
    """The modeling files that a file's code gets into. In a transformers checkout only configurations are followed:
    nearly every model imports its shared code."""
    name = configuration_name(path, layout)
    users = set(_beside(path, name, tree, layout)) if name is not None else set()
    return users | imports.users(path) if layout is Layout.MODELING else users


def _unused(path: str, layout: Layout) -> str:
    if configuration_name(path, layout) is not None:
        return "a configuration that no modeling file beside it uses"
    return "not a modeling file" + (", and none imports it" if layout is Layout.MODELING else "")


def _beside(configuration: str, name: str, tree: Tree, layout: Layout) -> tuple[str, ...]:
    """The modeling files beside a configuration that share its name or import it."""
    folder = configuration.rpartition("/")[0]
    module = PurePosixPath(configuration).stem
    beside = (
        path for path in tree.files(folder) if path.rpartition("/")[0] == folder and is_modeling_file(path, layout)
    )
    return tuple(
        path for path in beside if PurePosixPath(path).stem == f"modeling_{name}" or _imports(tree.read(path), module)
    )


def _imports(source: bytes | None, module: str) -> bool:
    try:
        return source is not None and imports_module(parse(source), module)
    except SourceError:
        return False


def _examine(change: FileChange, base: Tree, head: Tree, layout: Layout, reasons: list[str]) -> AffectedModule | NotRun:
    """Decide on one modeling file; ``reasons`` are those beyond its own change."""
    if has_odd_name(change.path):
        reason = "its path has characters other than letters, digits and _ . - /, which a case id can't hold"
        return NotRun(kind="file", name=change.path, reason=reason)
    old, new = _read(change, base, head)
    same = _same(change, old, new)
    if same and not reasons:
        return NotRun(kind="file", name=change.path, reason=ONLY_TEXT)

    on_base, base_error = _read_classes(old)
    on_head, head_error = _read_classes(new)
    if error := head_error or base_error:
        # A side that can't be read runs the other side's classes.
        on_base = on_head if base_error else on_base
        on_head = on_base if head_error else on_head
        where = " on both sides" if base_error and head_error else ""
        reason = f"syntax error{where}, line {error.line}: {error}"
    else:
        reason = _NO_MODEL
    if not on_base.models and not on_head.models:
        return NotRun(kind="file", name=change.path, reason=reason)
    if not same:
        reasons = [f"{PurePosixPath(change.path).name} {_verb(change)}", *reasons]
    return AffectedModule(
        base=model_file(change.old, layout) if change.old and old is not None else None,
        head=model_file(change.new, layout) if change.new and new is not None else None,
        base_classes=on_base.models,
        head_classes=on_head.models,
        reason="; ".join(reasons),
        base_generating=on_base.generating,
        head_generating=on_head.generating,
    )


@dataclass(frozen=True)
class _Classes:
    models: tuple[str, ...] = ()
    generating: tuple[str, ...] = ()


def _read_classes(source: bytes | None) -> tuple[_Classes, SourceError | None]:
    if source is None:
        return _Classes(), None
    try:
        module = parse(source)
    except SourceError as error:
        return _Classes(), error
    return _Classes(public_model_classes(module), generating_classes(module)), None
