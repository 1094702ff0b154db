"""Load model classes from a revision's tree, and make sure whose transformers is in use.

Three layouts (``schema.Layout``): a transformers checkout, the installed transformers, and a repository with modeling
files of its own. The last is imported the way its own code expects to be:

- a regular package (folders with ``__init__.py``) under its real dotted name, also below ``src/``;
- a file without relative imports in a plain folder as a top-level module, its siblings importable by name;
- a file with relative imports in a plain folder (as remote code on the hub is written) inside a made-up package that
  spans the tree, so that ``from .x`` and ``from ..y`` both resolve.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from hfexport_bot.schema import Layout, RunnerSetup

#: Name of the made-up package whose folder is the tree itself.
TREE_PACKAGE = "hfexport_tree"

#: Top-level packages that a tree must not be able to shadow: imported before the tree is on ``sys.path``.
_BEFORE_TREE = ("torch", "numpy", "onnx", "onnxscript", "exporters", "hfexport_bot.runner")
_VERSIONS = ("torch", "onnx", "onnxscript", "onnxruntime", "executorch")


class TreeError(Exception):
    """The tree cannot be used at all; the message says why."""


class ClassNotFoundError(AttributeError):
    """A modeling file defines no class of the wanted name; the message names both."""


def put_overlay_first(folders: Sequence[str]) -> None:
    """Import from the folders of an overlay environment before all that is installed, but after Python itself: old
    packages bring modules of its library along. What has been imported stays as it is."""
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own |= {f"{folder}/lib-dynload" for folder in own}
    position = max((index for index, entry in enumerate(sys.path, start=1) if entry in own), default=0)
    sys.path[position:position] = folders
    importlib.invalidate_caches()


def prepare_tree(setup: RunnerSetup) -> dict[str, str]:
    """Import the transformers that ``setup`` asks for, once, in the warm parent.

    Returns the versions of torch, transformers and the exporting libraries, by name ("missing" where there is none).

    Raises:
        TreeError: the tree is none of its layout, its transformers does not import, or another one was imported
            before.
    """
    for name in _BEFORE_TREE:
        importlib.import_module(name)
    if setup.layout is Layout.TRANSFORMERS:
        transformers = _import_checkout(_tree(setup))
    else:
        if setup.layout is Layout.MODELING:
            _tree(setup)
        transformers = _import_transformers("the installed transformers")
    versions = {name: _version(name) for name in _VERSIONS}
    versions["transformers"] = str(getattr(transformers, "__version__", "unknown"))
    return versions


def load_class(module: str, class_name: str, setup: RunnerSetup) -> type:
    """The class ``class_name`` of ``module``.

    ``module`` is a dotted name for a checkout or the installed transformers, and a path relative to the tree, such as
    ``pkg/models/modeling_tiny.py``, for a repository with its own modeling files.

    Raises:
        ClassNotFoundError: the module defines no such class.
        TreeError: the path leads nowhere or out of the tree.
        Exception: whatever importing the module raises.
    """
    loaded = load_file(module, setup) if setup.layout is Layout.MODELING else importlib.import_module(module)
    found = getattr(loaded, class_name, None)
    if not isinstance(found, type):
        classes = [name for name, value in vars(loaded).items() if isinstance(value, type)]
        near = difflib.get_close_matches(class_name, classes, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ClassNotFoundError(f"{loaded.__file__ or module} defines no class {class_name}{hint}")
    return found


def load_file(path: str, setup: RunnerSetup) -> ModuleType:
    """Import one Python file of the tree, ``path`` relative to it, under the name its own neighbours use.

    Two calls for one file give the same module. Raises ``TreeError`` when there is no such file in the tree.
    """
    tree = _tree(setup)
    file = (tree / path).resolve()
    if not file.is_relative_to(tree) or not file.is_file():
        raise TreeError(f"{path} is no file in the tree {tree}")
    top = _topmost_package(file.parent, tree)
    if top is not None:
        parts, search = file.relative_to(top.parent).with_suffix("").parts, [top.parent]
    elif _has_relative_imports(file):
        return importlib.import_module(_name_in_tree(file, tree))
    else:
        parts, search = (file.stem,), [tree, file.parent]
    if any("." in part for part in parts) or _is_taken(parts[0], top or file):
        return importlib.import_module(_name_in_tree(file, tree))
    for folder in search:
        _put_first(folder)
    name = ".".join(parts)
    module = importlib.import_module(name)
    if module.__file__ is None or Path(module.__file__).resolve() != file:
        raise TreeError(f"{path} imports as {name}, which is {module.__file__} instead: two modules share the name")
    return module


# -- transformers ----------------------------------------------------------------------------------------------


def _tree(setup: RunnerSetup) -> Path:
    if setup.tree is None:
        raise TreeError(f"the {setup.layout} layout needs a tree, and none was given")
    tree = Path(setup.tree).resolve()
    if not tree.is_dir():
        raise TreeError(f"the tree {tree} is no folder")
    return tree


def _import_checkout(tree: Path) -> ModuleType:
    source = tree / "src"
    if not (source / "transformers" / "__init__.py").is_file():
        raise TreeError(f"{tree} is no transformers checkout: it has no src/transformers/__init__.py")
    before = sys.modules.get("transformers")
    if before is not None and not _lies_in(before, source):
        raise TreeError(f"transformers was imported from {before.__file__} before the tree {tree} was prepared")
    _put_first(source)
    transformers = _import_transformers(f"the transformers of {tree}", "--install gives it the versions it asks for")
    if not _lies_in(transformers, source):
        raise TreeError(f"transformers was imported from {transformers.__file__}, not from the tree {tree}")
    return transformers


def _import_transformers(whose: str, advice: str = "") -> ModuleType:
    """The module. ``advice``: what to do where it, or a package of the right version, is missing; transformers' own,
    after its first line, is for users of one environment."""
    try:
        return importlib.import_module("transformers")
    except (Exception, SystemExit) as error:  # a revision may hold any mistake, a syntax error included
        is_missing = advice and isinstance(error, ImportError)
        said = f"{str(error).partition(chr(10))[0].rstrip('.')}; {advice}" if is_missing else str(error)
        raise TreeError(f"{whose} does not import: {type(error).__name__}: {said}") from error


def _lies_in(module: ModuleType, folder: Path) -> bool:
    return module.__file__ is not None and Path(module.__file__).resolve().is_relative_to(folder)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


# -- a repository's own modeling files -------------------------------------------------------------------------


def _topmost_package(folder: Path, tree: Path) -> Path | None:
    """The outermost regular package around ``folder``, inside the tree and below its root; ``None`` without one.

    Folders without ``__init__.py`` between a package and ``folder`` belong to it, as they do for Python.
    """
    inside = [parent for parent in (folder, *folder.parents) if parent != tree and parent.is_relative_to(tree)]
    packages = [parent for parent in inside if (parent / "__init__.py").is_file()]
    if not packages:
        return None
    top = packages[0]
    while top.parent in packages:
        top = top.parent
    return top


def _has_relative_imports(file: Path) -> bool:
    try:
        parsed = ast.parse(file.read_bytes())
    except SyntaxError:
        return False  # importing the file raises it, with the line
    return any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(parsed))


def _put_first(folder: Path) -> None:
    path = str(folder)
    if path in sys.path:
        sys.path.remove(path)
    sys.path.insert(0, path)
    importlib.invalidate_caches()


def _is_taken(name: str, expected: Path) -> bool:
    """Whether ``name`` is a module already, from elsewhere than ``expected``."""
    present = sys.modules.get(name)
    if present is None:
        return False
    file = getattr(present, "__file__", None)
    if file is None:
        return True
    return not Path(file).resolve().is_relative_to(expected)


def _name_in_tree(file: Path, tree: Path) -> str:
    """The dotted name of ``file`` inside the made-up package, whose folders are set up on the way."""
    name = TREE_PACKAGE
    make_package(name, tree)
    folder = tree
    for part in file.parent.relative_to(tree).parts:
        folder = folder / part
        name = f"{name}.{part.replace('.', '_')}"
        if "." in part:  # a dot cannot be part of a module's name, so Python would not find the folder
            make_package(name, folder)
    _put_first(tree)
    _put_first(file.parent)
    return f"{name}.{file.stem}"


def make_package(name: str, folder: Path) -> None:
    if name in sys.modules:
        return
    init = folder / "__init__.py"
    if not init.is_file():
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        package.__package__ = name
        sys.modules[name] = package
        return
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise TreeError(f"{init} cannot be imported")
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules[name]
        raise
