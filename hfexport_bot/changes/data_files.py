"""Files that are no Python and that code reads: tables, texts, sources of kernels. A change of one is a change of the
code that names it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from hfexport_bot.changes import policy
from hfexport_bot.changes.modeling import SourceError, parse
from hfexport_bot.changes.symbols import Symbol
from hfexport_bot.changes.tree import StoredTree
from hfexport_bot.changes.units import is_text, take_apart
from hfexport_bot.changes.uses import FILLED_IN, glob_of
from hfexport_bot.schema import Layout

_SUFFIXES = frozenset(
    {
        *(".json", ".jsonl", ".txt", ".csv", ".tsv", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".xml", ".jinja"),
        *(".npy", ".npz", ".pt", ".pth", ".bin", ".safetensors", ".model", ".pkl", ".proto"),
        *(".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".mm", ".metal", ".cl"),
    }
)


def is_data(path: str, layout: Layout) -> bool:
    """Whether the code of models may read a file."""
    inside = layout is Layout.MODELING or path.startswith(policy.PACKAGE)
    return inside and PurePosixPath(path).suffix in _SUFFIXES


def reading(data: str, paths: Sequence[str], trees: Sequence[StoredTree]) -> Iterator[Symbol]:
    """The definitions, among those of some Python files, that read a file."""
    suffix = PurePosixPath(data).suffix.encode()
    found: dict[Symbol, None] = {}
    for tree in trees:
        blobs = tree.blobs()
        wanted = {path: blobs[path] for path in paths if path in blobs and not path.startswith(policy.TESTS)}
        sources = tree.contents(sorted({*wanted.values()}))
        for path, blob in wanted.items():
            if suffix in sources.get(blob, b""):
                found.update(dict.fromkeys(_in_file(data, path, sources[blob])))
    yield from found


def _in_file(data: str, path: str, source: bytes) -> Iterator[Symbol]:
    try:
        units = take_apart(parse(source))
    except SourceError:
        return
    for name, unit in units.definitions.items():
        for part, nodes in unit.parts.items():
            if _names(data, path, [text for node in nodes for text in _texts(node)]):
                yield Symbol(path, name, part, f"reads {PurePosixPath(data).name}, which changed")


def _names(data: str, path: str, texts: Sequence[str]) -> bool:
    """Whether texts of code name a file: one that lies in its folder or deeper, or in a folder that they name too."""
    file, reader = PurePosixPath(data), PurePosixPath(path)
    segments = {segment for text in texts for segment in text.split("/")}
    near = file.is_relative_to(reader.parent) or file.parent.name in segments
    own = file.suffix in segments and file.stem == reader.stem  # `Path(__file__).with_suffix(".json")`
    return near and (own or any(fnmatchcase(file.name, each) for each in segments if file.suffix in each[1:]))


def _texts(node: ast.AST) -> Iterator[str]:
    """The strings of some code, those that it joins with a ``*`` for what is settled at run time."""
    if isinstance(node, ast.JoinedStr | ast.BinOp):
        yield FILLED_IN.sub("*", glob_of(node))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield FILLED_IN.sub("*", node.value)
    for child in ast.iter_child_nodes(node):
        if not is_text(child):
            yield from _texts(child)
