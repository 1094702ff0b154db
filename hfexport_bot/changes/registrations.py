"""The workarounds that a repository's own file and this project's exporters register, read off their decorators and
calls without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hfexport_bot.changes.modeling import SourceError, parse
from hfexport_bot.changes.place import installed_root
from hfexport_bot.changes.tree import FolderTree, Tree
from hfexport_bot.schema import Backend, WorkaroundInfo

#: Where this project's own workarounds lie.
OWN_FOLDER = "exporters"

#: By the function that registers: the kind of workaround; its backend, empty where that is an argument; and its stage,
#: empty where it follows from what is patched. `exporters.registry` and `exporters.skips` say the same.
_REGISTERING = {
    "register_patch": ("patch", "", ""),
    "register_model_patch": ("model_patch", "", "model_patches"),
    "register_export_input_preparer": ("input_preparer", "dynamo", "signature"),
    "register_fx_node_fix": ("node_fix", "", "node_fixes"),
    "register_fx_program_fix": ("program_fix", "", "program_fixes"),
    "register_translation": ("translation", "onnx", "translate"),
    "register_ir_fix": ("ir_fix", "onnx", "ir_fixes"),
    "register_export_skip": ("skip", "", "source"),
    "register_onnx_disable_optimize": ("no_optimize", "onnx", "optimize"),
}
#: Those that are called with a name rather than put before a function.
_CALLED = ("skip", "no_optimize")
#: Paths under which a patch changes the backend's own code.
_BACKEND_PACKAGES = {"onnx": ("torch.onnx", "onnxscript", "onnx_ir"), "executorch": ("executorch",)}


@dataclass(frozen=True)
class Registrations:
    """What a file registers. ``whole``: nothing else may be registered by it, in a way that cannot be read."""

    found: tuple[WorkaroundInfo, ...] = ()
    whole: bool = True

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all that was found."""
        return frozenset(each.id for each in self.found)


def read_registrations(tree: Tree, path: str | None) -> Registrations:
    """What a file of a tree registers; nothing where there is none."""
    source = tree.read(path) if path else None
    try:
        module = parse(source or b"")
    except SourceError:  # every case of the revision ends as an error that says so
        return Registrations(whole=False)
    aliases = {
        alias.asname: alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    calls = [
        (node, name)
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and (name := _name(node.func, aliases)) in _REGISTERING
    ]
    functions = {
        id(decorator): node.name
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    }
    read = [_info(node, name, functions.get(id(node), "")) for node, name in calls]
    found = {each.id: each for each in read if each is not None}
    return Registrations(tuple(found.values()), None not in read and not _imports_own(module, tree))


def installed_ids() -> frozenset[str]:
    """The ids of what the installed exporters register. No process that imports them has to be started for it."""
    root = installed_root(OWN_FOLDER)
    if root is None:
        return frozenset()
    tree = FolderTree(root)
    files = [path for path in tree.files(OWN_FOLDER) if path.endswith(".py")]
    return frozenset().union(*(read_registrations(tree, path).ids for path in files))


def _name(function: ast.expr, aliases: dict[str | None, str]) -> str:
    last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return aliases.get(last, last)


def _info(call: ast.Call, name: str, function: str) -> WorkaroundInfo | None:
    """What one call registers: for the ``function`` it is put before, or by a name; None where that cannot be read."""
    kind, backend, stage = _REGISTERING[name]
    strings = [*_strings(call.args)]
    keywords = {each.arg or "": value for each in call.keywords for value in _strings([each.value])}
    if kind in _CALLED and strings:
        function, *strings = strings
        backend = backend or keywords.get("backend", "")
        strings += [keywords[key] for key in ("shapes", "task") if key in keywords]
    elif not backend:
        backend = keywords.get("backend") or (strings.pop(0) if strings else "")
    if kind == "patch" and backend != Backend.DYNAMO and len([*_strings(call.args)]) < len(call.args):
        return None  # the stage is that of paths which are not written out
    if not function or backend not in {*Backend}:
        return None
    if not stage:
        of_backend = all(path.startswith(_BACKEND_PACKAGES.get(backend, ())) for path in strings)
        dynamo = backend == Backend.DYNAMO
        stage = "model_patches" if dynamo else f"{backend}_patches" if of_backend else "torch_patches"
    return WorkaroundInfo(
        id=f"{backend}/{stage}/{function if kind in _CALLED else function.lstrip('_')}",
        kind=kind,
        backend=Backend(backend),
        stage=stage,
        reason=keywords.get("reason", ""),
        targets=tuple(strings),
    )


def _strings(nodes: Iterable[ast.expr]) -> Iterator[str]:
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _imports_own(module: ast.Module, tree: Tree) -> bool:
    """Whether a file imports others of its tree, which may register more."""
    names: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                return True
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    tops = {name.partition(".")[0] for name in names} - {"exporters"}
    return any(tree.read(f"{top}.py") is not None or any(True for _ in tree.files(top)) for top in tops)
