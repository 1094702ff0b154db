"""Uses that run only where an argument is given or a property holds (see `given`), and which code gives it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property

from hfexport_bot.changes import policy
from hfexport_bot.changes.families import Families
from hfexport_bot.changes.given import Given, may_be_followed, needed_for
from hfexport_bot.changes.graph import Graph, Use
from hfexport_bot.changes.handing import handed_on
from hfexport_bot.changes.modeling import SourceError, parse
from hfexport_bot.changes.naming import Naming
from hfexport_bot.changes.search import Node
from hfexport_bot.changes.tree import StoredTree

_Function = ast.FunctionDef | ast.AsyncFunctionDef
#: A line that begins a statement of a file's own level, with the name that it defines.
_LINE = re.compile(rb"^(?:(?:async def|def|class) (\w+)|[A-Za-z@])", re.MULTILINE)


class Guards:
    """Reads the sources of both sides, when it is first asked."""

    def __init__(self, graph: Graph, families: Families, trees: Sequence[StoredTree], naming: Naming) -> None:
        self._graph = graph
        self._families = families
        self._trees = trees
        self._naming = naming
        self._of_use = cache(self._find_of_use)
        self._sources = cache(self._find_sources)
        self._definitions = cache(lambda source, name: tuple(_find_definitions(source, name)))
        self._nodes = cache(lambda path, name, part: tuple(self._find_nodes(path, name, part)))
        self._folders_saying = cache(self._find_saying)
        self._near = cache(self._find_near)

    def followed(self, node: Node, use: Use, arrived: Node) -> Node | None:
        """Where a use of a node leads to, with what must be given for it; None where it is not given."""
        target = node.definition if node.part.startswith("[") else node.part or node.definition
        try:
            # Most of a walk leads through tables of the auto classes, whose entries are no code.
            when = self._of_use(use, target) if policy.is_shared(use.path) else ()
            if when:
                return arrived._replace(when=when)
            return self._carried(node, target, use, arrived) if node.when else arrived
        except (SourceError, RecursionError):
            return arrived  # what a side that is no Python, or is nested too deeply, asks for is unknown: nothing

    def _find_of_use(self, use: Use, target: str) -> tuple[Given, ...]:
        """What must be given for a part of the shared code to get to what it names; nothing where it may always."""
        whole_class = not use.part and self._graph.kind(use.path, use.definition) == "class"
        if whole_class:
            return ()
        nodes = self._nodes(*use[:3])
        sides = [needed_for(node, target) if isinstance(node, _Function) else () for node in nodes]
        found = [when for when in sides if when is not None]
        when = tuple(dict.fromkeys(given for each in found for given in each))
        return when if all(found) and may_be_followed(use.part, when) else ()

    def _carried(self, node: Node, target: str, use: Use, arrived: Node) -> Node | None:
        arguments = [given for given in node.when if given.argument]
        nodes = self._nodes(*use[:3])
        handed = handed_on(nodes, target, arguments) if arguments else None
        if self._is_of_a_model(arrived.path):
            # A model's own arguments are told by the names that its files write.
            by_place = handed is not None and not all(given.place is None for given in handed)
            return arrived if handed == () or by_place or self.is_said(arrived.path, node.when) else None
        part = use.part if any(isinstance(each, _Function) for each in nodes) else ""
        if handed is not None and not (handed and may_be_followed(part, handed)):
            return arrived
        when = (*(given for given in node.when if not given.argument), *(handed or ()))
        return arrived._replace(when=when) if when else None

    def is_said(self, path: str, when: Sequence[Given]) -> bool:
        """Whether the files of a model, those of its tests, of models that use its code, or of those that its
        configurations derive from name what must be given."""
        near = self._near(_folder(path))
        return any(not self._folders_saying(given.name).isdisjoint(near) for given in when)

    def _find_near(self, folder: str) -> frozenset[str]:
        return frozenset((folder, *self._naming.borrowers(folder), *self._above.get(folder, ())))

    @cached_property
    def _above(self) -> Mapping[str, set[str]]:
        """The folders of models, each with those that its configurations derive from."""
        found: dict[str, set[str]] = {}
        for path, name in self._families.configurations:
            above = {base.rpartition("/")[0] for base, _ in self._graph.ancestors(path, name)}
            found.setdefault(path.rpartition("/")[0], set()).update(above)
        return found

    @staticmethod
    def _is_of_a_model(path: str) -> bool:
        return path.startswith((policy.MODELS, policy.TESTS)) and not path.startswith(policy.AUTO)

    def _find_saying(self, word: str) -> frozenset[str]:
        """The folders of models in whose files, or those of its tests, a word is written as a key or an argument, or
        what gives a configuration the property that it stands for."""
        words = [each.encode() for each in policy.GETS_PROPERTY.get(word, ())]
        # It begins with the word, which makes the search several times as quick.
        written = re.compile(rb"%b(?:(?<![\w]%b)\s*(?::[^=\n]*)?=(?!=)|(?<=[\"']%b)[\"'])" % ((word.encode(),) * 3))

        def says(source: bytes) -> bool:
            return any(each in source for each in words) or written.search(source) is not None

        return frozenset(_folder(path) for path, sources in self._of_models.items() if any(map(says, sources)))

    # -- sources -------------------------------------------------------------------------------------------------

    @cached_property
    def _blobs(self) -> Sequence[tuple[StoredTree, Mapping[str, str]]]:
        return [(tree, tree.blobs()) for tree in self._trees]

    @cached_property
    def _of_models(self) -> Mapping[str, Sequence[bytes]]:
        """All versions of the files of models and their tests."""
        wanted = {path for path in self._graph.modules.facts if self._is_of_a_model(path)}
        found: dict[str, list[bytes]] = {}
        known: dict[str, bytes] = {}
        for tree, files in self._blobs:
            blobs = {path: blob for path, blob in files.items() if path in wanted}
            known |= tree.contents(sorted({*blobs.values()} - known.keys()))
            for path, blob in blobs.items():
                if (source := known.get(blob)) is not None and source not in found.get(path, ()):
                    found.setdefault(path, []).append(source)
        return found

    def _find_sources(self, path: str) -> Sequence[bytes]:
        if self._is_of_a_model(path):
            return self._of_models.get(path, ())
        found: dict[str, bytes] = {}
        for tree, blobs in self._blobs:
            blob = blobs.get(path)
            if blob is not None and blob not in found:
                found |= tree.contents([blob])
        return [*found.values()]

    def _find_nodes(self, path: str, name: str, part: str) -> Iterator[ast.AST]:
        """The code of a part of a definition, in each version of its file."""
        for source in self._sources(path):
            for node in self._definitions(source, name) or _constants(source).get(name, ()):
                if part and isinstance(node, ast.ClassDef):
                    yield from (each for each in node.body if part in (getattr(each, "name", ""), *_assigned(each)))
                else:
                    yield node


def _find_definitions(source: bytes, name: str) -> Iterator[ast.AST]:
    """The functions and classes of a name. Of the source, no more is parsed than they are."""
    for text in _blocks(source).get(name.encode(), ()):
        try:
            body = parse(text).body
        except SourceError:  # a line of a text that looks like code
            body = [node for node in ast.walk(parse(source)) if isinstance(node, ast.stmt)]
        yield from (node for node in body if getattr(node, "name", "") == name)


@cache
def _constants(source: bytes) -> Mapping[str, Sequence[ast.stmt]]:
    """The statements that give the names of a file's own level their values."""
    found: dict[str, list[ast.stmt]] = {}
    for node in parse(source).body:
        for name in _assigned(node):
            found.setdefault(name, []).append(node)
    return found


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [each.id for each in targets if isinstance(each, ast.Name)]


@cache
def _blocks(source: bytes) -> Mapping[bytes, Sequence[bytes]]:
    """The text of each function and class of a file's own level."""
    starts = [*_LINE.finditer(source)]
    ends = [*(match.start() for match in starts[1:]), len(source)]
    found: dict[bytes, list[bytes]] = {}
    decorated: int | None = None
    for match, end in zip(starts, ends, strict=False):
        start = match.start() if decorated is None else decorated
        decorated = start if match[0] == b"@" else None
        if match[1]:
            found.setdefault(match[1], []).append(source[start:end])
    return found


def _folder(path: str) -> str:
    """The folder of the model that a file, or a test, is of."""
    return path.rpartition("/")[0].replace(policy.TESTS + "models/", policy.MODELS, 1)
