"""Which files hold models, and what their modules and models are called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Layout

#: The folder of the models in the layouts that have one.
MODELS_FOLDER = {Layout.TRANSFORMERS: "src/transformers/models", Layout.INSTALLED: "transformers/models"}

#: The file that a transformers with exporters of its own has; for a repository's own models, the installed one's.
EXPORTERS = {
    Layout.TRANSFORMERS: "src/transformers/exporters/__init__.py",
    Layout.INSTALLED: "transformers/exporters/__init__.py",
    Layout.MODELING: "transformers/exporters/__init__.py",
}

# TensorFlow and Flax files of older repositories are named alike.
_MODELING = re.compile(r"modeling_(?!tf_|flax_).+\.py")
_ID_PATH = re.compile(r"[\w.\-]+(/[\w.\-]+)*")


@dataclass(frozen=True)
class ModelFile:
    """A modeling file: its path in the tree, the module a runner is asked for, and the model of case ids."""

    path: str
    module: str
    model: str


def detect_layout(tree: Tree) -> Layout:
    """A transformers checkout, or a repository with its own modeling files."""
    checkout = tree.files(MODELS_FOLDER[Layout.TRANSFORMERS])
    return Layout.TRANSFORMERS if checkout else Layout.MODELING


def is_test_or_doc(path: str) -> bool:
    """Whether a file only tests or documents."""
    parts = PurePosixPath(path).parts
    name = parts[-1]
    folders = {"tests", "test", "docs", "doc"}
    return bool(folders.intersection(parts[:-1])) or name.startswith("test_") or name == "conftest.py"


def is_modeling_file(path: str, layout: Layout) -> bool:
    """Whether a path names a PyTorch modeling file where this layout keeps them."""
    return bool(_MODELING.fullmatch(PurePosixPath(path).name)) and _in_place(path, layout)


def has_odd_name(path: str) -> bool:
    """Whether a path has characters that a case id can't hold."""
    return not _ID_PATH.fullmatch(path)


def _in_place(path: str, layout: Layout) -> bool:
    folder = MODELS_FOLDER.get(layout)
    if folder is None:
        return not is_test_or_doc(path)
    # The files of `auto` and the like lie in folders too: nothing lies in the models' folder itself.
    return path.startswith(folder + "/") and path.count("/") > folder.count("/") + 1


def model_file(path: str, layout: Layout) -> ModelFile:
    """Name the module and the model of a modeling file, see `is_modeling_file`."""
    folder = MODELS_FOLDER.get(layout)
    stem = path.removesuffix(".py")
    if folder is None:
        return ModelFile(path, module=path, model=stem)
    inside = stem.removeprefix(folder + "/")
    return ModelFile(
        path,
        module="transformers.models." + inside.replace("/", "."),
        model=inside.rpartition("/")[0],
    )
