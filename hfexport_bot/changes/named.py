"""Models that a change names outside of their code: in the repository's settings, in its case functions and
workarounds, and in a ``config.json`` beside a modeling file. And the files that have nothing to do with models."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from hfexport_bot.changes.data_files import is_data
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.layout import model_file
from hfexport_bot.changes.selection import NOT_READ, Classes
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Backend, Layout, NotRun, Shapes, Task

_WORD = re.compile(r"[A-Za-z_]\w*")
_TEXT = re.compile(r'("""|\'\'\')[\s\S]*?\1|#[^\n]*')
#: Files that are told one by one when no model reads them.
_TOLD = 3

#: The public classes of each modeling file, on either side.
Public = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Asked:
    """What the repository's settings have to do with a change.

    Attributes:
        hooks: what each file that the settings name holds, ``"case functions"`` or ``"workarounds"``, by path.
        renamed: those of them that only one side names.
        globs: case ids, as globs, that the change says something new of, each with the reason to run them.
        postponed: why the settings file selects no model otherwise; empty where it does, or did not change.
        file: the path of the settings file.
        sources: other files that globs come from.
    """

    hooks: Mapping[str, str] = field(default_factory=dict)
    renamed: frozenset[str] = frozenset()
    globs: tuple[tuple[str, str], ...] = ()
    postponed: str = ""
    file: str = ""
    sources: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Named:
    """The classes that settings, hooks and configuration files select, and the changed files that do."""

    classes: Classes = field(default_factory=dict)
    files: frozenset[str] = frozenset()


def may_name_models(asked: Asked, aside: Iterable[FileChange], layout: Layout) -> bool:
    """Whether files that are no code of models may select some; ``aside`` are those that changed."""
    paths = [change.path for change in aside]
    return bool(asked.globs or asked.renamed or (asked.hooks and paths)) or any(is_data(path, layout) for path in paths)


def classes_named(
    asked: Asked,
    changes: Sequence[FileChange],
    touched: Collection[str],
    public: Public,
    trees: Sequence[Tree],
    layout: Layout,
) -> Named:
    """Find them. ``touched``: the Python files with code that changed or uses what did."""
    found: dict[str, dict[str, list[str]]] = {}
    files: set[str] = {*asked.sources}

    def add(path: str, names: Iterable[str], reason: str) -> None:
        for name in names:
            reasons = found.setdefault(path, {}).setdefault(name, [])
            if reason not in reasons:
                reasons.append(reason)

    for path, name, reason in _matching(asked.globs, public, layout):
        add(path, [name], reason)
    data = [change.path for change in changes if not change.path.endswith(".py")]
    for hook, what in asked.hooks.items():
        text = "\n".join((tree.read(hook) or b"").decode(errors="replace") for tree in trees)
        code = _TEXT.sub("", text)
        causes = [f"{hook}, the repository's {what}, changed"] if hook in touched or hook in asked.renamed else []
        used = [path for path in data if PurePosixPath(path).name in code]
        causes += [f"{path} changed, which {hook} names" for path in used]
        files.update(used)
        for path, names in _named_in(code, public).items() if causes else ():
            add(path, names, causes[0])
    for path in data:
        if PurePosixPath(path).name == "config.json" and layout is Layout.MODELING:
            beside = {each: names for each, names in public.items() if _folder(each) == _folder(path)}
            named = _in_config([tree.read(path) for tree in trees], beside)
            files.update([path] if named else [])
            for each, names in named.items():
                add(each, names, f"{path} changed")
    return Named(found, frozenset(files))


def _matching(globs: Iterable[tuple[str, str]], public: Public, layout: Layout) -> Iterator[tuple[str, str, str]]:
    """The file and name of each class with a case whose id a glob matches, and what the glob says."""
    kinds = ["/".join(kind) for kind in itertools.product(Backend, Shapes, Task)]
    owners = [(path, name) for path, names in public.items() for name in names] if globs else []
    ids = [[f"{model_file(path, layout).model}/{name}/{kind}" for kind in kinds] for path, name in owners]
    texts = ["\n".join(each) for each in ids]
    for glob, reason in globs:
        # There are as many globs as classes: most are told apart without a match.
        literal = max(re.split(r"[*?]", glob.partition("[")[0]), key=len)
        for (path, name), text, each in zip(owners, texts, ids, strict=True):
            if literal in text and any(fnmatchcase(one, glob) for one in each):
                yield path, name, reason


def _named_in(code: str, public: Public) -> Public:
    """The classes that a text names, or those of the modeling files that it names; all where it names none."""
    words = set(_WORD.findall(code))
    found: dict[str, Sequence[str]] = {}
    for path, names in public.items():
        named = [name for name in names if name in words]
        if named or PurePosixPath(path).stem in words:
            found[path] = named or names
    return found or public


def _in_config(sources: Iterable[bytes | None], beside: Public) -> Public:
    """The classes beside a ``config.json`` that it names as its own; all where it names none of them."""
    words: set[str] = set()
    for source in sources:
        content = _json(source)
        named = [(content or {}).get(key) for key in ("architectures", "auto_map")]
        words |= set(_WORD.findall(json.dumps(named)))
    chosen = {path: [name for name in names if name in words] for path, names in beside.items()}
    return chosen if any(chosen.values()) else beside


def auto_maps(tree: Tree, paths: Iterable[str]) -> Iterable[tuple[str, Mapping[str, str]]]:
    """The ``auto_map`` of each ``config.json`` among some paths, and the folder it is in."""
    for path in paths:
        if PurePosixPath(path).name == "config.json":
            named = (_json(tree.read(path)) or {}).get("auto_map")
            if isinstance(named, dict):
                yield _folder(path), {str(key): value for key, value in named.items() if isinstance(value, str)}


def _json(source: bytes | None) -> dict[str, object] | None:
    try:
        content = json.loads(source or b"")
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def unread_files(paths: Sequence[str]) -> tuple[NotRun, ...]:
    """An entry for files that no model reads: documents, pictures, workflows, tests of other things."""
    if len(paths) <= _TOLD:
        return tuple(NotRun(kind="file", name=path, reason=f"{NOT_READ} it") for path in paths)
    some = ", ".join(paths[:_TOLD])
    return (
        NotRun(
            kind="file", name=f"{len(paths):,} files", reason=f"{NOT_READ} them: {some} and {len(paths) - _TOLD:,} more"
        ),
    )
