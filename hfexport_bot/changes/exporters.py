"""What a change to a checkout's own exporters affects: the models on whose exports a changed patch or fix acted.

Which those are is known from earlier reports, or from the patch's own targets. Where neither tells, or the exporters'
common code changed, a sample stands for all models: one of each kind.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from hfexport_bot.changes.facts import Facts
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.layout import EXPORTERS, MODELS_FOLDER, is_modeling_file
from hfexport_bot.changes.modeling import SourceError, alike, parse
from hfexport_bot.changes.reading import facts_of
from hfexport_bot.changes.tree import StoredTree, Tree
from hfexport_bot.schema import REPO_PREFIX, CaseId, Layout, Report

#: Where a checkout's exporters lie.
FOLDER = EXPORTERS[Layout.TRANSFORMERS].rpartition("/")[0]

#: One model of each kind, by the first of these that there is: the class and its model's folder.
SAMPLE: Mapping[str, tuple[tuple[str, str], ...]] = {
    "an encoder": (("bert", "BertModel"), ("distilbert", "DistilBertModel")),
    "a decoder": (("llama", "LlamaForCausalLM"), ("gpt2", "GPT2LMHeadModel")),
    "an encoder-decoder": (("t5", "T5ForConditionalGeneration"), ("bart", "BartForConditionalGeneration")),
    "a mixture of experts": (("mixtral", "MixtralForCausalLM"), ("qwen2_moe", "Qwen2MoeForCausalLM")),
    "a state-space model": (("mamba", "MambaForCausalLM"), ("mamba2", "Mamba2ForCausalLM")),
    "vision": (("vit", "ViTModel"), ("dinov2", "Dinov2Model")),
    "audio": (("whisper", "WhisperForConditionalGeneration"), ("wav2vec2", "Wav2Vec2Model")),
    "pictures and text": (("llava", "LlavaForConditionalGeneration"), ("qwen2_vl", "Qwen2VLForConditionalGeneration")),
}

#: Who runs everything else: what one of these uses may act on every model.
_ENTRY_POINTS = frozenset({"DynamoExporter", "OnnxExporter", "ExecutorchExporter"})

#: Tables of functions that act on their own, like those with a ``@register_...`` above them.
_TABLES = frozenset({"_ONNX_TRANSLATION_TABLE", "_IR_FIXES"})

#: How many of the cases that a patch acted on are named in a reason.
_NAMED = 3

Hits = Mapping[CaseId, Collection[str]]
#: A top-level name of a file, ``("exporter_onnx", "_patch_where")``; the module is its path below the package.
Symbol = tuple[str, str]


@dataclass
class ByExporters:
    """What a change to exporters affects.

    Attributes:
        classes: why each model class is run, by modeling file, where one tells.
        unused: changed files of which nothing is used in an export that can be run here.
    """

    classes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    def add(self, path: str, names: Iterable[str], reason: str) -> None:
        for name in names:
            reasons = self.classes.setdefault(path, {}).setdefault(name, [])
            if reason not in reasons:
                reasons.append(reason)


def is_exporter_file(path: str, layout: Layout) -> bool:
    """Whether a file belongs to the checkout's own exporters."""
    return layout is Layout.TRANSFORMERS and path.startswith(f"{FOLDER}/") and path.endswith(".py")


def recorded_hits(reports: Iterable[Report]) -> dict[CaseId, frozenset[str]]:
    """Which patches and fixes of a checkout's exporters acted on which cases, on either side, in earlier reports."""
    found: dict[CaseId, frozenset[str]] = {}
    for case in (case for report in reports for case in report.cases):
        outcomes = (outcome for outcome in (case.base, case.head) if outcome is not None)
        ids = {name for outcome in outcomes for name in outcome.workarounds if name.startswith(REPO_PREFIX)}
        if ids:
            found[case.id] = found.get(case.id, frozenset()) | ids
    return found


def acting_ids(tree: Tree, layout: Layout) -> tuple[str, ...]:
    """The ids of all that acts in a revision's own exporters, as outcomes list them."""
    sources = ExporterCode.read(tree, EXPORTERS[layout].rpartition("/")[0])
    return tuple(sorted(f"{REPO_PREFIX}{'.'.join(symbol)}" for symbol in sources.symbols if sources.acts(symbol)))


def affected_by_exporters(
    changes: Iterable[FileChange], base: StoredTree, head: StoredTree, layout: Layout, hits: Hits
) -> ByExporters:
    """The model classes to run for changed files of the exporters (`is_exporter_file`); see the module."""
    found = ByExporters()
    changes = list(changes)
    if not changes:
        return found
    sources = [ExporterCode.read(tree, FOLDER) for tree in (base, head)]
    locate = _Locator((head, base), layout)
    for change in changes:
        module = _module_of(change.path)
        name = f"exporters/{change.path.removeprefix(FOLDER + '/')}"
        broken = any(module in side.broken for side in sources)
        changed = {""} if broken else _changed_names(module, *sources)
        if not changed:
            continue  # comments and docstrings
        reached = False
        for symbol in sorted(changed):
            said = f"{name}: {symbol} changed" if symbol else f"{name} changed"
            acting: set[Symbol] = set()
            common = not symbol
            for side in sources:
                more, entry = side.users((module, symbol))
                acting, common = acting | more, common or entry
            reached = reached or common or bool(acting)
            for other in sorted(acting):
                _add_acting(found, other, _because(said, symbol, module, other), sources, hits, locate)
            if common:
                _add_sample(found, said, locate)
        if not reached:
            found.unused.append(change.path)
    return found


def edited(base: ExporterCode, head: ExporterCode) -> frozenset[Symbol]:
    """The patches and fixes of head that a change alters, by themselves or in what they use."""
    names = base.symbols.keys() | head.symbols.keys()
    changed = [symbol for symbol in names if not alike(base.symbols.get(symbol), head.symbols.get(symbol))]
    return frozenset(acting for symbol in changed for acting in head.users(symbol)[0])


def _because(said: str, symbol: str, module: str, acting: Symbol) -> str:
    return said if acting == (module, symbol) else f"{said}, which {acting[1]} uses"


def _add_acting(
    found: ByExporters, symbol: Symbol, said: str, sources: list[ExporterCode], hits: Hits, locate: _Locator
) -> None:
    """Add what a patch or fix acts on."""
    name = f"{REPO_PREFIX}{'.'.join(symbol)}"
    cases = sorted(str(case) for case, ids in hits.items() if name in ids)
    if cases:
        more = f" and {len(cases) - _NAMED} more" if len(cases) > _NAMED else ""
        reason = f"{said}, hit by {', '.join(cases[:_NAMED])}{more}"
        for case in (case for case, ids in hits.items() if name in ids):
            for path in locate.files(case.model, case.class_name):
                found.add(path, [case.class_name], reason)
        return
    targets = {target for side in sources for target in side.targets(symbol)}
    modules = sorted(
        {".".join(target.split(".")[:4]) for target in targets if target.startswith("transformers.models.")}
    )
    if targets and all(target.startswith("transformers.models.") for target in targets):
        for module in modules:
            path = locate.path_of(module)
            found.add(path, locate.public(path), f"{said}, which patches {module.rpartition('.')[2]}")
        return
    _add_sample(found, f"{said}, and no case is known that it acts on", locate)


def _add_sample(found: ByExporters, said: str, locate: _Locator) -> None:
    for kind, candidates in SAMPLE.items():
        for model, class_name in candidates:
            paths = locate.files(model, class_name)
            if paths:
                found.add(paths[0], [class_name], f"sample, {kind}: {said}")
                break


class _Locator:
    """Finds modeling files and their classes in the first of the trees that has them."""

    def __init__(self, trees: Sequence[StoredTree], layout: Layout) -> None:
        self._trees = trees
        self._layout = layout
        self.files = cache(self._find_files)
        self._facts = cache(self._read_facts)

    def _find_files(self, model: str, class_name: str) -> Sequence[str]:
        """The modeling files in a model's folder that define a class."""
        folder = f"{MODELS_FOLDER[self._layout]}/{model}/"
        modeling = (path for path in self._paths if path.startswith(folder) and is_modeling_file(path, self._layout))
        return [path for path in modeling if any(class_name in facts.models for facts in self._facts(path))]

    def path_of(self, module: str) -> str:
        """The path of ``transformers.models.x.modeling_x``."""
        return f"{MODELS_FOLDER[self._layout]}/{module.removeprefix('transformers.models.').replace('.', '/')}.py"

    def public(self, path: str) -> tuple[str, ...]:
        """The public model classes of a file."""
        return tuple(dict.fromkeys(name for facts in self._facts(path) for name in facts.public))

    @cached_property
    def _paths(self) -> Sequence[str]:
        return list(dict.fromkeys(path for tree in self._trees for path in tree.blobs()))

    def _read_facts(self, path: str) -> Sequence[Facts]:
        return [facts for side in facts_of([path], self._trees, self._layout) for facts in side.values()]


@dataclass
class ExporterCode:
    """The exporters' files of one side, or one file of workarounds: top-level statements by name, and who uses whom."""

    symbols: dict[Symbol, list[ast.stmt]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    _used_by: dict[Symbol, set[Symbol]] = field(default_factory=dict)

    @classmethod
    def read(cls, tree: Tree, folder: str) -> ExporterCode:
        """Those of the package in a folder."""
        found = cls()
        for path in tree.files(folder):
            if path.endswith(".py"):
                module, file = _module_of(path, folder), _parsed(tree.read(path) or b"")
                if file is None:
                    found.broken.add(module)
                    continue
                for name, statement in _named_statements(file.body):
                    found.symbols.setdefault((module, name), []).append(statement)
        found._link()
        return found

    @classmethod
    def of_file(cls, source: bytes | None) -> ExporterCode:
        """A file of its own, a module without a name; nothing in one that is not there or no Python."""
        found, file = cls(), _parsed(source or b"")
        for name, statement in _named_statements(file.body if file else ()):
            found.symbols.setdefault(("", name), []).append(statement)
        found._link()
        return found

    def users(self, symbol: Symbol) -> tuple[set[Symbol], bool]:
        """The patches and fixes among a symbol and all that use it, and whether an exporter itself is among them."""
        acting: set[Symbol] = set()
        seen: set[Symbol] = set()
        waiting = [symbol] if symbol in self.symbols else []
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            users = self._used_by.get(current, set())
            if self.acts(current):
                acting.add(current)
            else:
                waiting += users
        return acting, any(name in _ENTRY_POINTS for _, name in seen)

    def acts(self, symbol: Symbol) -> bool:
        """Whether a symbol is a patch or a fix, which acts without being called by name."""
        return self._is_registered(symbol) or any(user[1] in _TABLES for user in self._used_by.get(symbol, ()))

    def targets(self, symbol: Symbol) -> set[str]:
        """The dotted paths that a patch is registered for."""
        return {
            argument.value
            for statement in self.symbols.get(symbol, ())
            for decorator in getattr(statement, "decorator_list", ())
            if _called(decorator) == "register_patch"
            for argument in decorator.args[1:]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        }

    def _is_registered(self, symbol: Symbol) -> bool:
        decorators = [d for s in self.symbols[symbol] for d in getattr(s, "decorator_list", ())]
        return any(_called(decorator).startswith("register_") for decorator in decorators) and all(
            isinstance(statement, ast.FunctionDef) for statement in self.symbols[symbol]
        )

    def _link(self) -> None:
        for user, statements in self.symbols.items():
            module = user[0]
            for statement in statements:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name) and (module, node.id) in self.symbols:
                        self._used_by.setdefault((module, node.id), set()).add(user)
                if isinstance(statement, ast.ImportFrom) and statement.level:
                    source = _imported_module(module, statement)
                    for alias in statement.names:
                        if user[1] == (alias.asname or alias.name):
                            self._used_by.setdefault((source, alias.name), set()).add(user)


def _changed_names(module: str, base: ExporterCode, head: ExporterCode) -> set[str]:
    names = {name for side in (base, head) for owner, name in side.symbols if owner == module}
    return {name for name in names if not alike(base.symbols.get((module, name)), head.symbols.get((module, name)))}


def _named_statements(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Top-level statements with the name each defines or changes, those under ``if`` and ``try`` included; what has
    none is called ``""``."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.partition(".")[0], ast.Import([alias])) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):  # each name on its own, so that one more changes no other
            for alias in node.names:
                yield alias.asname or alias.name, ast.ImportFrom(node.module, [alias], node.level)
        elif isinstance(node, ast.If | ast.Try):
            handlers = getattr(node, "handlers", ())
            inner = [*node.body, *(s for h in handlers for s in h.body), *node.orelse, *getattr(node, "finalbody", ())]
            yield from _named_statements(inner)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield _root_name(node), node


def _root_name(node: ast.stmt) -> str:
    """The name that an assignment or a call on it begins with: of ``TABLE.update(...)`` and ``TABLE[x] = y`` TABLE."""
    target: ast.AST | None = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    target = target or getattr(node, "value", None)
    while isinstance(target, ast.Call | ast.Attribute | ast.Subscript):
        target = target.func if isinstance(target, ast.Call) else target.value
    return target.id if isinstance(target, ast.Name) else ""


def _called(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function).rpartition(".")[2]


def _imported_module(module: str, statement: ast.ImportFrom) -> str:
    """The module below the package that a relative import names, for a file of the package."""
    parts = module.split(".") if module else []
    parts = parts[: len(parts) - statement.level] if statement.level <= len(parts) else []
    return ".".join([*parts, *([statement.module] if statement.module else [])])


def _module_of(path: str, folder: str = FOLDER) -> str:
    inside = path.removeprefix(f"{folder}/").removesuffix(".py")
    return inside.removesuffix("/__init__").replace("/", ".") if inside != "__init__" else ""


def _parsed(source: bytes) -> ast.Module | None:
    try:
        return parse(source)
    except SourceError:
        return None
