"""Which names a piece of code uses: those from outside of it, attributes of ``self`` and of other objects, imports
inside it, and short strings that may name a model type or a method."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from hfexport_bot.changes.modeling import is_documenting
from hfexport_bot.changes.units import is_text

#: Strings that may name a model type, or, in a table, a class or a method.
_TYPE = re.compile(r"[a-z][a-z0-9_\-]{1,40}")
_ENTRY = re.compile(r"\.?[A-Za-z_][\w\-.]{1,80}")
#: Follows the name of a class that an object is only asked for.
ONLY_NAMED = "?"
#: Follows the name of a class in a type hint of ``__init__``.
HINT = ":"
#: Follows the name of a table that an entry is put into: to do so looks none up.
FILLS = "="
#: Follows the name of what is asked for an attribute by a function, such as ``getattr``, that takes nothing else of it.
ASKED = "!"
#: Used by code that chooses among all names of its file.
ANY_NAME = "*"
#: Begins the names of operators that a file may define for torch.
OPERATORS = "torch.ops."
#: Functions that import by a string, and that evaluate one.
_IMPORTS = frozenset({"import_module", "__import__"})
_ASKING = frozenset({"getattr", "hasattr", "setattr", "delattr"})
_EVALUATES = frozenset({"eval", "exec"})
_CHAINED = (ast.Attribute, ast.Subscript)
#: A part of a text that is filled in at run time.
FILLED_IN = re.compile(r"\{[^{}]*\}|%[sdir]")
#: So many texts that code may put together are told one by one.
_MANY = 50

#: What the constants of a file are, or hold, that are texts.
Constants = Mapping[str, Sequence[str]]


class Part(NamedTuple):
    """What one part of a definition uses.

    ``names``: names from outside with what follows them, ``ACT2FN["gelu"]``, ``nn.Linear``, ``module.*`` for an
    attribute chosen at run time. ``own``: attributes of self, cls and super(); ``attrs``: of any other object; both may
    hold globs. ``imports``: rows of `facts.Import` inside functions. ``method``: a function of a class.
    """

    names: Sequence[str]
    own: Sequence[str]
    attrs: Sequence[str]
    strings: Sequence[str]
    imports: Sequence[tuple[str, int, str, str | None]]
    method: bool


def read_part(nodes: Iterable[ast.AST], kind: str, constants: Constants | None = None) -> Part:
    """What the nodes of one part use; ``kind`` is that of its definition. ``constants``: what its file's are."""
    nodes = list(nodes)
    walker = _Walker(kind == "class", _ENTRY if kind == "constant" else _TYPE, constants or {})
    for node in nodes:
        walker.walk(node)
    for root, chain in walker.pending:
        walker.names.add(".".join((root, *chain)).replace(".[", "["))
    return Part(
        sorted(walker.names),
        sorted(walker.own),
        sorted(walker.attrs),
        sorted(walker.strings),
        sorted(walker.imports, key=repr),
        kind == "class" and any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in nodes),
    )


class _Walker:
    def __init__(self, method: bool, word: re.Pattern[str], constants: Constants) -> None:
        self._constants = constants
        self.names: set[str] = set()
        self.own: set[str] = set()
        self.attrs: set[str] = set()
        self.strings: set[str] = set()
        self.imports: set[tuple[str, int, str, str | None]] = set()
        #: Names met so far that the function at hand has not bound, each with what follows it.
        self.pending: list[tuple[str, tuple[str, ...]]] = []
        self._bound: set[str] = set()
        #: What a method calls its object or class.
        self._first = ""
        self._depth = 0
        self._method = method
        self._word = word

    def walk(self, node: ast.AST) -> None:
        """Take in one node and all below it."""
        handle = _HANDLERS.get(type(node))
        if handle is not None:
            handle(self, node)
            return
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                for each in value:
                    if isinstance(each, ast.AST):
                        self.walk(each)
            elif isinstance(value, ast.AST):
                self.walk(value)

    def _name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.pending.append((node.id, ()))
        else:
            self._bound.add(node.id)

    def _string(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and self._word.fullmatch(node.value):
            self.strings.add(node.value)

    def _statement(self, node: ast.Expr) -> None:
        if not is_text(node):
            self.walk(node.value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        self.walk(node.target)
        if node.value is not None:
            self.walk(node.value)
        if not self._depth:  # inside functions they are never evaluated
            self.walk(node.annotation)

    def _handler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bound.add(node.name)
        for each in (*([node.type] if node.type else []), *node.body):
            self.walk(each)

    def _ignore(self, node: ast.AST) -> None:
        pass

    def _chain(self, node: ast.Attribute | ast.Subscript) -> None:
        """``a.b.c``, ``a["key"].b``, ``f(x).b``; subscripts that are no literals end a chain."""
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and not isinstance(node.slice, ast.Constant)
        ):
            self.walk(node.slice)
            self.pending.append((node.value.id, (FILLS,)))
            return
        if isinstance(node.ctx, ast.Store) and getattr(getattr(node, "value", None), "attr", "") == "__dict__":
            self.walk(getattr(node, "slice", node.value))  # to set an attribute is no use of the others
            return
        chain: list[str] = []
        current: ast.expr = node
        if isinstance(node.ctx, ast.Store) and isinstance(node, ast.Attribute):
            current = node.value  # to set an attribute is no use of it
        while isinstance(current, _CHAINED):
            if isinstance(current, ast.Attribute):
                chain.append(current.attr)
            else:
                literal = isinstance(current.slice, ast.Constant) and isinstance(current.slice.value, str)
                if _calls(current.value, "globals") and isinstance(current.slice, ast.Constant):
                    self.names.add(str(current.slice.value))
                    self.attrs.update(chain)
                    return
                if isinstance(node.ctx, ast.Load) and ast.unparse(current.value) == "sys.modules":
                    self._loaded(current.slice)
                if not (literal and isinstance(current.value, ast.Name)):
                    self.walk(current.slice)
                    self.walk(current.value)
                    self.attrs.update(chain)
                    return
                self.walk(current.slice)
                chain.append(f"[{ast.unparse(current.slice)}]")
            current = current.value
        chain.reverse()
        if isinstance(current, ast.Name):
            self.pending.append((current.id, tuple(chain) or (ASKED,)))
        elif chain and _calls(current, "super"):
            self.own.add(chain[0])
            self.attrs.update(chain[1:])
        else:
            self.walk(current)
            self.attrs.update(each for each in chain if each[0] != "[")

    def _augmented(self, node: ast.AugAssign) -> None:
        self.walk(node.target)
        self.walk(node.value)
        if isinstance(node.target, ast.Subscript):  # which is looked up first
            self.walk(node.target.value)

    def _call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[0], ast.Name):
            asked = node.args[1]
            word = asked.value if isinstance(asked, ast.Constant) else glob_of(asked)
            self.pending.append((node.args[0].id, (str(word),)))
        elif name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            self.attrs.add(str(node.args[1].value))
        called = node.func.attr if isinstance(node.func, ast.Attribute) else name
        if node.args:
            self._module_by_name(called, node.args[0])
        if name in _EVALUATES or (name == "globals" and not node.args):
            self.names.add(ANY_NAME)
        if name and name == self._first:  # `cls(...)`
            self.own.add("__init__")
        if name == "setattr" and node.args and _is_loaded(node.args[0]):  # to set an attribute is no use of the others
            for each in node.args[1:]:
                self.walk(each)
            return
        if name == "isinstance" and len(node.args) == 2:
            self.walk(node.args[0])
            self._asked(node.args[1])
            return
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name in _ASKING and arguments and isinstance(asked_of := arguments[0], ast.Name):
            self.pending.append((asked_of.id, (ASKED,)))
            arguments = arguments[1:]
        for each in (node.func, *arguments):
            self.walk(each)

    def _module_by_name(self, called: str, node: ast.expr) -> None:
        """Take in a module that a function such as ``import_module`` or ``vars`` is called with first."""
        if called in _IMPORTS:
            self._import_by_name(node)
        elif called == "resolve_name":  # of a module, or of a name behind a colon or the last dot
            for written in texts_of(node, self._constants):
                module, _, inside = written.partition(":")
                both = (module,) if inside else (module, module.rpartition(".")[0])
                self.imports |= {("", 0, each, None) for each in both if each}
        elif called == "vars" and isinstance(node, ast.Name):
            self.pending.append((node.id, (ANY_NAME,)))

    def _import_by_name(self, node: ast.expr) -> None:
        """Take in a module that is imported by a string, or one of those that it begins or ends like."""
        for written in texts_of(node, self._constants):
            module = written.lstrip(".")
            self.imports.add(("", len(written) - len(module), module, None))

    def _loaded(self, node: ast.expr) -> None:
        """Take in a module that is looked up among those that are loaded, or all names of its own."""
        if isinstance(node, ast.Name) and node.id == "__name__":
            self.names.add(ANY_NAME)
        elif texts_of(node, self._constants) != ["*"]:
            self._import_by_name(node)

    def _asked(self, node: ast.expr) -> None:
        """Take in what ``isinstance`` asks for: it is named, and nothing of it runs."""
        for each in node.elts if isinstance(node, ast.Tuple) else [node]:
            if isinstance(each, ast.Name):
                self.pending.append((each.id, (ONLY_NAMED,)))
            else:
                self.walk(each)

    def _hint(self, node: ast.expr) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                self.pending.append((each.id, (HINT,)))
            elif isinstance(each, ast.Attribute):
                self.walk(each)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        level, module = (node.level, node.module or "") if isinstance(node, ast.ImportFrom) else (0, "")
        for alias in node.names:
            local = alias.asname or alias.name.partition(".")[0]
            self._bound.add(local)
            if isinstance(node, ast.ImportFrom):
                self.imports.add((local, level, module, alias.name))
            else:
                self.imports.add((local, 0, alias.name, None))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """A function binds its arguments and what it assigns; what it leaves open is its surroundings' to settle."""
        outer, bound = self.pending, self._bound
        self.pending, self._bound = [], set()
        arguments = [*node.args.posonlyargs, *node.args.args]
        first = arguments[0].arg if arguments and self._method and self._depth == 0 else ""
        if self._depth == 0:
            self._first = first
        extra = [each for each in (node.args.vararg, node.args.kwarg) if each]
        self._bound.update(each.arg for each in (*arguments, *node.args.kwonlyargs, *extra))
        self._depth += 1
        for statement in node.body if isinstance(node.body, list) else [node.body]:
            self.walk(statement)
        self._depth -= 1
        for root, chain in self.pending:
            if root not in self._bound:
                outer.append((root, chain))
            elif chain in ((FILLS,), (ASKED,)):
                pass  # a table or an object of its own
            elif chain and root == first:
                self.own.add(chain[0])
                self.attrs.update(chain[1:])
            else:
                self.attrs.update(each for each in chain if each[0] != "[")
        self.pending, self._bound = outer, bound
        if not isinstance(node, ast.Lambda):
            self._bound.add(node.name)
            for decorator in node.decorator_list:
                if not is_documenting(decorator):
                    self.walk(decorator)
            # A configuration's class is often named in a hint of `__init__` alone.
            hints = [each.annotation for each in arguments] if node.name == "__init__" else []
            for hint in filter(None, hints):
                self._hint(hint)
        for default in filter(None, (*node.args.defaults, *node.args.kw_defaults)):
            self.walk(default)


_HANDLERS: dict[type[ast.AST], Callable[[_Walker, Any], None]] = {
    ast.Name: _Walker._name,
    ast.Attribute: _Walker._chain,
    ast.Subscript: _Walker._chain,
    ast.Call: _Walker._call,
    ast.FunctionDef: _Walker._function,
    ast.AsyncFunctionDef: _Walker._function,
    ast.Lambda: _Walker._function,
    ast.Constant: _Walker._string,
    ast.Import: _Walker._import,
    ast.ImportFrom: _Walker._import,
    ast.AnnAssign: _Walker._annotated,
    ast.AugAssign: _Walker._augmented,
    ast.ExceptHandler: _Walker._handler,
    ast.Expr: _Walker._statement,
    ast.Load: _Walker._ignore,
    ast.Store: _Walker._ignore,
}


def _is_loaded(node: ast.expr) -> bool:
    """Whether an expression is a module that is looked up among those that are loaded."""
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules"


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def glob_of(node: ast.expr) -> str:
    """``f"_validate_{kind}"`` as ``_validate_*``; anything else that is settled at run time as ``*``."""
    return texts_of(node, {})[0]


def texts_of(node: ast.expr, constants: Constants) -> list[str]:
    """What a text may be that code puts together of others, with ``*`` for what is settled at run time. The name of the
    package is what a relative import has before its dot: nothing."""
    pieces: Sequence[ast.expr] = ()
    between = ""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.Name):
        return [""] if node.id == "__package__" else [*constants.get(node.id, ("*",))]
    if isinstance(node, ast.Subscript):
        return texts_of(node.value, constants) if isinstance(node.value, ast.Name) else ["*"]
    if isinstance(node, ast.JoinedStr):
        pieces = node.values
    elif isinstance(node, ast.FormattedValue):
        return texts_of(node.value, constants)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        pieces = (node.left, node.right)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return [FILLED_IN.sub("*", text) for text in texts_of(node.left, constants)]
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Constant)
    ):
        if node.func.attr == "format":
            return [FILLED_IN.sub("*", str(node.func.value.value))]
        if node.func.attr == "join" and len(node.args) == 1 and isinstance(node.args[0], ast.List | ast.Tuple):
            pieces, between = node.args[0].elts, str(node.func.value.value)
    if not pieces:
        return ["*"]
    found = [between.join(each) for each in product(*(texts_of(piece, constants) for piece in pieces))]
    return found if len(found) <= _MANY else ["*"]


def constants_of(definitions: Mapping[str, Sequence[ast.AST]]) -> Constants:
    """The constants of a file that are a text, or hold several, by the nodes that give them their values."""
    found: dict[str, list[str]] = {}
    for name, nodes in definitions.items():
        values = [node if isinstance(node, ast.Constant) else getattr(node, "value", None) for node in nodes]
        texts = [each for each in values if isinstance(each, ast.Constant)]
        if nodes and len(texts) == len(nodes):
            found[name] = [str(each.value) for each in texts if isinstance(each.value, str)]
    return {name: texts for name, texts in found.items() if 0 < len(texts) <= _MANY}
