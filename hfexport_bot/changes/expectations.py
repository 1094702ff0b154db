"""The failures that a transformers checkout expects of its own exporters, read off its tests without running them.

``EXPORT_SKIPS`` and ``ONNX_DISABLE_OPTIMIZE`` map a scope (``all``, ``onnx``, ``onnx.dynamic``, ``generate``) to
classes and reasons; ``test_torch_exportable = False`` in a test class stands for the models that it tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from hfexport_bot.changes.modeling import SourceError, parse
from hfexport_bot.changes.named import Asked
from hfexport_bot.changes.selection import ONLY_CHECKS
from hfexport_bot.changes.tree import StoredTree
from hfexport_bot.schema import Backend, CaseId, Engine, NotRun

_TABLES = {"EXPORT_SKIPS": frozenset[str](), "ONNX_DISABLE_OPTIMIZE": frozenset({Backend.ONNX.value})}
_SWITCH = "test_torch_exportable"
_WHOLE_TABLES = re.compile(r"tests/exporters/\w+\.py")
_MODEL_TEST = re.compile(r"tests/models/(?P<model>[^/]+)/test_modeling_\w+\.py")
#: What a change does to an entry.
Change = Literal["added", "removed", "expired"]

_CLASS_NAME = re.compile(r"[A-Z]\w*")


@dataclass(frozen=True)
class Expectation:
    """A failure that a repository expects.

    Attributes:
        where: the table with its scope, the switch with its test class, or ``accepted`` in the settings.
        name: the class, or the glob over case ids, as it is written there.
        glob: over case ids. words: backend, kind of shapes and task that a case must have, where it is narrower.
        classes: a glob over case ids that finds the classes that it is for, whoever exports them.
    """

    where: str
    name: str
    reason: str
    glob: str
    words: frozenset[str] = frozenset()
    classes: str = ""
    path: str = ""

    def covers(self, case: CaseId) -> bool:
        """Whether a case is among those that are expected to fail."""
        return self.words <= {case.backend, case.shapes, case.task} and fnmatchcase(str(case), self.glob)

    def __str__(self) -> str:
        return f'{self.where}["{self.name}"]' if "[" in self.where else f"{self.where} ({self.name})"


def expectation_files(paths: Iterable[str], models: Collection[str] | None = None) -> tuple[str, ...]:
    """Those of some paths where a checkout has expectations: of all models, or of some."""
    found = []
    for path in paths:
        test = _MODEL_TEST.fullmatch(path)
        if _WHOLE_TABLES.fullmatch(path) or (test and (models is None or test["model"] in models)):
            found.append(path)
    return tuple(sorted(found))


def read_expectations(tree: StoredTree, paths: Iterable[str]) -> tuple[Expectation, ...]:
    """The expectations in some files; what is no literal, or no Python, has none."""
    known = tree.blobs()
    blobs = {path: known[path] for path in paths if path in known}
    contents = tree.contents(sorted(set(blobs.values())))
    found: list[Expectation] = []
    for path, blob in blobs.items():
        source = contents.get(blob, b"")
        if not any(name.encode() in source for name in (*_TABLES, _SWITCH)):
            continue
        try:
            module = parse(source)
        except SourceError:
            continue
        test = _MODEL_TEST.fullmatch(path)
        found += _of_test(module, source, test["model"], path) if test else _of_tables(module, path)
    return tuple(found)


def _of_tables(module: ast.Module, path: str) -> Iterator[Expectation]:
    for node in module.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not isinstance(target, ast.Name) or target.id not in _TABLES:
            continue
        for scope, entries in _items(node.value):
            words = _TABLES[target.id] | (frozenset(scope.split(".")) - {"all"})
            for name, reason in _items(entries):
                said = reason.value if isinstance(reason, ast.Constant) and isinstance(reason.value, str) else ""
                yield Expectation(
                    where=f'{target.id}["{scope}"]',
                    name=name,
                    reason=said,
                    glob=f"*/{name}/*@{Engine.REPO}",
                    words=words,
                    classes=f"*/{name}/*",
                    path=path,
                )


def _items(node: ast.expr | None) -> Iterator[tuple[str, ast.expr]]:
    """The entries of a dictionary that is written out, by their keys that are."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value:
                yield key.value, value


def _of_test(module: ast.Module, source: bytes, model: str, path: str) -> Iterator[Expectation]:
    lines = source.decode(errors="replace").splitlines()
    for test in (node for node in module.body if isinstance(node, ast.ClassDef)):
        values = {
            target.id: node
            for node in test.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        switch = values.get(_SWITCH)
        if switch is None or not (isinstance(switch.value, ast.Constant) and switch.value.value is False):
            continue
        listed = values.get("all_model_classes")
        names = {each.id for each in ast.walk(listed.value) if isinstance(each, ast.Name)} if listed else set()
        reason = lines[switch.lineno - 1].partition("#")[2].strip()
        for name in sorted(each for each in names if _CLASS_NAME.fullmatch(each)) or ["*"]:
            yield Expectation(
                where=f"{test.name}.{_SWITCH}",
                name=name,
                reason=reason,
                glob=f"{model}/{name}/*@{Engine.REPO}",
                classes=f"{model}/{name}/*",
                path=path,
            )


def changed_expectations(base: StoredTree, head: StoredTree) -> dict[str, Expectation]:
    """The entries that a change adds or removes, each with why its models are run."""
    return {f"{entry} was {change} in {entry.path}": entry for entry, change in entry_changes(base, head)}


def entry_changes(base: StoredTree, head: StoredTree) -> list[tuple[Expectation, Change]]:
    """The entries that a change adds or removes."""
    before, now = base.blobs(), head.blobs()
    paths = [path for path in expectation_files({*before, *now}) if before.get(path) != now.get(path)]
    sides = [{str(each): each for each in read_expectations(tree, paths)} for tree in (base, head)]
    return [
        (sides[1][name], "added") if name in sides[1] else (sides[0][name], "removed")
        for name in sorted(sides[0].keys() ^ sides[1].keys())
    ]


def with_expectations(asked: Asked, base: StoredTree, head: StoredTree) -> Asked:
    """``asked`` with the classes whose expectations a change adds or removes, and the files that say so."""
    changed = changed_expectations(base, head)
    globs = tuple((entry.classes, reason) for reason, entry in changed.items())
    sources = asked.sources | {entry.path for entry in changed.values()}
    return replace(asked, globs=(*asked.globs, *globs), sources=sources)


def is_told_by_expectations(entry: NotRun, sources: Collection[str]) -> bool:
    """Whether nothing but an expectation changed in what is not run, so that its models are."""
    path, _, symbol = entry.name.partition(":")
    return path in sources and entry.reason == ONLY_CHECKS and (not symbol or symbol.endswith(f".{_SWITCH}"))
