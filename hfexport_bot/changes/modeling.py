"""Read a modeling file without importing it: its model classes; whether two versions are the same code."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

# What an imported base class must be called to count as a model that has a forward.
_IMPORTED_MODEL = re.compile(r"[A-Z]\w*(?:Model|For[A-Z]\w*)")
_NO_MODELS = frozenset({"BaseModel", "RootModel"})  # pydantic's
# What an imported base class must be called to count as a model that generates.
_IMPORTED_GENERATING = re.compile(r"[A-Z]\w*(?:ForCausalLM|LMHeadModel|ForConditionalGeneration)")
# Decorators that only write a docstring.
_DOCUMENTING = re.compile(r"\w*docstrings?(?:_to_model_forward)?")
# Imported mixins that bring a forward: transformers' modeling_layers.
_IMPORTED_FORWARD = re.compile(r"GenericFor\w+")


_GENERATED = re.compile(rb"automatically generated from (?:\S*/)?(modular_\w+\.py)")


#: Larger files are data, not code, and their trees take some hundred times as much memory.
MAX_BYTES = 4 << 20


class SourceError(ValueError):
    """A file is no Python. ``line`` counts from 1, 0 when unknown."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line

    def told(self, where: str = "") -> str:
        """Why the file is no Python. ``where`` says on which sides."""
        return f"syntax error{where}, line {self.line}: {self}"


class TooLargeError(SourceError):
    """A file is data rather than code."""

    def told(self, where: str = "") -> str:
        """How large is too large."""
        return f"{self}{where}"


def generated_from(source: bytes) -> str:
    """The name of the modular file that a file's head says it was generated from; empty where it says nothing."""
    header = _GENERATED.search(source, 0, 4096)
    return header[1].decode() if header else ""


def parse(source: bytes) -> ast.Module:
    """Parse a file's bytes, honouring its coding line. Raises `SourceError`."""
    if len(source) > MAX_BYTES:
        raise TooLargeError(f"larger than {MAX_BYTES >> 20} MiB, which is too large to be read", 0)
    try:
        with warnings.catch_warnings():
            # An invalid escape in the code under test is its author's business, not this command's output.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        raise SourceError(error.msg, error.lineno or 0) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceError(str(error) or type(error).__name__, 0) from None


#: The class that a name of a file leads to in another file, by the dotted name that is written; None for others'.
Elsewhere = Callable[[str], "tuple[Classes, str] | None"]


def nowhere(dotted: str) -> None:
    """For a file that is read alone."""


def public_model_classes(module: ast.Module, elsewhere: Elsewhere = nowhere) -> tuple[str, ...]:
    """The model classes that the file's ``__all__`` offers; all of them where it has none or offers no model.

    The others are parts of these (``T5Stack``), so that running them too would measure everything twice.
    """
    classes, offered = model_classes(module, elsewhere), _offered(module)
    return tuple(name for name in classes if name in offered) or classes


def model_classes(module: ast.Module, elsewhere: Elsewhere = nowhere) -> tuple[str, ...]:
    """The classes that can be exported, in the order of the file.

    A model class derives from ``PreTrainedModel`` by the names of its bases, through classes of the file, those that
    ``elsewhere`` finds, or other imported ones that are called like a model, and has a forward that is not abstract:
    its own, one that it inherits from these, or an imported model's. ``XPreTrainedModel`` bases and private classes
    are left out.
    """
    file = read_classes(module, elsewhere)
    return tuple(
        name
        for name, node in file.classes.items()
        if not name.startswith("_")
        and not name.endswith("PreTrainedModel")
        and not _is_abstract(node)
        and file.is_pretrained(name)
        and file.has_forward(name)
    )


def plain_modules(module: ast.Module, elsewhere: Elsewhere = nowhere) -> tuple[str, ...]:
    """The classes that have a forward and are no models only because they derive from ``torch.nn.Module`` and not from
    ``PreTrainedModel``, in the order of the file."""
    file = read_classes(module, elsewhere)
    return tuple(
        name
        for name in file.classes
        if not name.startswith("_") and not file.is_pretrained(name) and file.is_module(name) and file.has_forward(name)
    )


def without_forward(module: ast.Module, elsewhere: Elsewhere = nowhere) -> tuple[str, ...]:
    """The public classes that derive from ``PreTrainedModel`` and are no models only because they have no forward, in
    the order of the file."""
    file = read_classes(module, elsewhere)
    return tuple(
        name
        for name, node in file.classes.items()
        if not name.startswith("_")
        and not name.endswith("PreTrainedModel")
        and not _is_abstract(node)
        and file.is_pretrained(name)
        and not file.has_forward(name)
    )


def generating_classes(module: ast.Module, elsewhere: Elsewhere = nowhere) -> tuple[str, ...]:
    """Those of `model_classes` that have ``generate``: by the names of their bases, through classes of the file, they
    derive from ``GenerationMixin`` or from an imported model that is called like one that generates."""
    file = read_classes(module, elsewhere)
    return tuple(name for name in model_classes(module, elsewhere) if file.generates(name))


def _offered(module: ast.Module) -> set[str]:
    """The strings in assignments to ``__all__``."""
    found: set[str] = set()
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if value is not None and any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            found.update(n.value for n in ast.walk(value) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return found


Fields = Mapping[type[ast.AST], tuple[str, ...]]

#: Fields of functions that their callers never see.
_HINTS: Fields = {
    ast.FunctionDef: ("returns", "type_comment"),
    ast.AsyncFunctionDef: ("returns", "type_comment"),
    ast.arg: ("annotation", "type_comment"),
}
#: The same, and those that are never evaluated in a function's body; in that of a class they may make a field.
_LOCAL_HINTS: Fields = {**_HINTS, ast.AnnAssign: ("annotation", "simple")}


def alike(old: object, new: object, hints: Fields = _HINTS) -> bool:
    """Whether two trees run the same code. Positions, bare strings, type hints of functions and what decorators that
    only write a docstring are given do not count. An own walk: dumping both to text takes five times as long."""
    if type(old) is not type(new):
        return False
    if isinstance(old, ast.AST):
        if isinstance(old, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            hints = _HINTS if isinstance(old, ast.ClassDef) else _LOCAL_HINTS
        skipped = hints.get(type(old), ())
        for name in old._fields:
            one, other = getattr(old, name, None), getattr(new, name, None)
            if one is not other and name not in skipped and not alike(one, other, hints):
                return False
        return True
    if isinstance(old, list) and isinstance(new, list):
        before, after = _code(old), _code(new)
        return len(before) == len(after) and all(
            alike(one, other, hints) for one, other in zip(before, after, strict=True)
        )
    return old == new


def _code(nodes: list[ast.AST]) -> list[ast.AST]:
    """Nodes that do something: neither a bare string nor ``pass``, nor a decorator that only documents."""
    return [
        node
        for node in nodes
        if not isinstance(node, ast.Pass)
        and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        and not (isinstance(node, ast.Call | ast.Name | ast.Attribute) and is_documenting(node))
    ]


def is_documenting(decorator: ast.expr) -> bool:
    """Whether a decorator only writes a docstring."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return bool(_DOCUMENTING.fullmatch(name))


def _classes(body: list[ast.stmt]) -> Iterator[ast.ClassDef]:
    """Top-level classes, those under ``if is_x_available():`` and ``try:`` included."""
    return (node for node in flat_statements(body) if isinstance(node, ast.ClassDef))


def flat_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a level, those under ``if`` and ``try`` included."""
    for node in body:
        if isinstance(node, ast.If):
            yield from flat_statements(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from flat_statements(node.body + handlers + node.orelse + node.finalbody)
        else:
            yield node


def _imported_names(module: ast.Module) -> dict[str, str]:
    """Local name to original name, for names imported under another where a class may use them as its base."""
    return {
        alias.asname: alias.name
        for node in flat_statements(module.body)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }


def _decorators(function: ast.FunctionDef) -> set[str]:
    return {ast.unparse(decorator).rpartition(".")[2] for decorator in function.decorator_list}


def _is_abstract(node: ast.ClassDef) -> bool:
    return any(isinstance(item, ast.FunctionDef) and "abstractmethod" in _decorators(item) for item in node.body)


def _own_forward(node: ast.ClassDef) -> bool | None:
    """Whether the class body defines a forward that does something; None when it says nothing of forward."""
    for item in reversed(node.body):
        if isinstance(item, ast.FunctionDef) and item.name == "forward":
            statements = [s for s in item.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            raises = len(statements) == 1 and isinstance(statements[0], ast.Raise)
            return not (raises and "NotImplementedError" in ast.unparse(statements[0]))
        if isinstance(item, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "forward" for target in item.targets
        ):
            return True
    return None


def read_classes(module: ast.Module, elsewhere: Elsewhere = nowhere) -> Classes:
    """The classes of one file."""
    return Classes({node.name: node for node in _classes(module.body)}, _imported_names(module), elsewhere)


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of one file and what they inherit, by names alone. ``answers`` are kept as they are found."""

    classes: Mapping[str, ast.ClassDef]
    imported: Mapping[str, str]
    elsewhere: Elsewhere
    answers: dict[tuple[_Says, str], bool] = field(default_factory=dict)

    def is_pretrained(self, name: str) -> bool:
        """Whether a class derives from ``PreTrainedModel``."""
        return self._inherits(name, Classes._says_pretrained)

    def is_module(self, name: str) -> bool:
        """Whether a class derives from ``torch.nn.Module``."""
        return self._inherits(name, Classes._says_module)

    def has_forward(self, name: str) -> bool:
        """Whether a class has a forward that is not abstract."""
        return self._inherits(name, Classes._says_forward)

    def generates(self, name: str) -> bool:
        """Whether a class has ``generate``."""
        return self._inherits(name, Classes._says_generates)

    def _inherits(self, name: str, says: _Says) -> bool:
        """Whether a class, or one that it derives from, has something; where its name or body does not say, its bases
        do. Not recursive: a file may derive any number of classes from one another."""
        waiting, seen = [(self, name)], set[tuple[Classes, str]]()
        found = False
        while waiting and not found:
            file, each = waiting.pop()
            if (file, each) in seen:
                continue
            seen.add((file, each))
            known = file.answers.get((says, each))
            answer = says(file, each) if known is None else known
            found = bool(answer)
            if answer is None:
                waiting += file._bases(each)
        self.answers[says, name] = found
        return found

    def _says_pretrained(self, name: str) -> bool | None:
        if name.endswith("PreTrainedModel"):
            return True
        return None if name in self.classes else self._is_imported_model(name) or name.startswith("PreTrained")

    def _says_module(self, name: str) -> bool | None:
        return None if name in self.classes else name == "Module"

    def _says_forward(self, name: str) -> bool | None:
        if name in self.classes:
            return _own_forward(self.classes[name])
        return bool(_IMPORTED_FORWARD.fullmatch(name)) or self._is_imported_model(name)

    def _says_generates(self, name: str) -> bool | None:
        if name in self.classes:
            return None
        return name.endswith("GenerationMixin") or bool(_IMPORTED_GENERATING.fullmatch(name))

    def _is_imported_model(self, name: str) -> bool:
        return (
            bool(_IMPORTED_MODEL.fullmatch(name))
            and not name.endswith("PreTrainedModel")
            and not name.startswith("Generic")
            and name not in _NO_MODELS
        )

    def _bases(self, name: str) -> Iterator[tuple[Classes, str]]:
        """Each base with the file it is in: of one that is not found the last segment of its name, imported aliases
        undone: `nn.Module` is `Module`."""
        for base in self.classes[name].bases:
            target = base.value if isinstance(base, ast.Subscript) else base
            if not isinstance(target, ast.Attribute | ast.Name):
                continue
            dotted = ast.unparse(target)
            found = None if dotted in self.classes else self.elsewhere(dotted)
            if found is not None:
                yield found
            elif isinstance(target, ast.Attribute):
                yield self, target.attr
            else:
                yield self, self.imported.get(target.id, target.id)


#: What a class has by its own name or body; None leaves it to its bases.
_Says = Callable[[Classes, str], bool | None]
