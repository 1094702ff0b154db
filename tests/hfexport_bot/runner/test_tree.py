"""The runner finds the classes of a revision's tree, and only that tree's transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from hfexport_bot.schema import Layout, RunnerSetup
from hfexport_bot.runner import tree

tree._BEFORE_TREE = ("hfexport_bot.runner",)
setup = RunnerSetup(layout=Layout(sys.argv[1]), tree=sys.argv[2])
results = []
if setup.layout is not Layout.MODELING:
    try:
        results.append(tree.prepare_tree(setup))
    except tree.TreeError as error:
        results.append(f"TreeError: {error}")
for wanted in sys.argv[3:]:
    module, _, name = wanted.partition(":")
    try:
        found = tree.load_class(module, name, setup)
        results.append([found.__module__, sys.modules[found.__module__].__file__, getattr(found, "config", None)])
    except Exception as error:
        results.append(f"{type(error).__name__}: {error}")
print(json.dumps(results))
"""

CONFIG = "class TinyConfig:\n    pass\n"


def load(layout: str, tree: Path, *wanted: str, script: str = SCRIPT) -> list[object]:
    """What a fresh process gets for each ``module:class``: its module, file and config, or the error as text."""
    command = [sys.executable, "-c", script, layout, str(tree), *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results: list[object] = json.loads(done.stdout)
    return results


def write(tree: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return tree


def modeling(statement: str) -> str:
    return f"{statement}\nclass TinyModel:\n    config = TinyConfig.__module__\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("files", "path", "module", "config"),
    [
        pytest.param(
            {"pkg/__init__.py": "", "pkg/models/__init__.py": "", "pkg/configs.py": CONFIG}
            | {"pkg/models/modeling_tiny.py": modeling("from pkg.configs import TinyConfig")},
            "pkg/models/modeling_tiny.py",
            "pkg.models.modeling_tiny",
            "pkg.configs",
            id="package",
        ),
        pytest.param(
            {"src/pkg/__init__.py": "", "src/pkg/models/configs.py": CONFIG}
            | {"src/pkg/models/modeling_tiny.py": modeling("from .configs import TinyConfig")},
            "src/pkg/models/modeling_tiny.py",
            "pkg.models.modeling_tiny",
            "pkg.models.configs",
            id="src layout, inner folder without __init__",
        ),
        pytest.param(
            {"configuration_tiny.py": CONFIG}
            | {"modeling_tiny.py": modeling("from .configuration_tiny import TinyConfig")},
            "modeling_tiny.py",
            "hfexport_tree.modeling_tiny",
            "hfexport_tree.configuration_tiny",
            id="flat, relative",
        ),
        pytest.param(
            {"configuration_tiny.py": CONFIG}
            | {"modeling_tiny.py": modeling("from configuration_tiny import TinyConfig")},
            "modeling_tiny.py",
            "modeling_tiny",
            "configuration_tiny",
            id="flat, absolute",
        ),
        pytest.param(
            {"common.py": CONFIG, "tiny-2.5/modeling_tiny.py": modeling("from ..common import TinyConfig")},
            "tiny-2.5/modeling_tiny.py",
            "hfexport_tree.tiny-2_5.modeling_tiny",
            "hfexport_tree.common",
            id="relative to the parent of a folder with a dot",
        ),
        pytest.param(
            {"__init__.py": "LOADED = True", "configuration_tiny.py": CONFIG}
            | {"modeling_tiny.py": modeling("from . import LOADED\nfrom .configuration_tiny import TinyConfig")},
            "modeling_tiny.py",
            "hfexport_tree.modeling_tiny",
            "hfexport_tree.configuration_tiny",
            id="the tree's root is a package",
        ),
        pytest.param(
            {"json/__init__.py": "", "json/configs.py": CONFIG}
            | {"json/modeling_tiny.py": modeling("from .configs import TinyConfig")},
            "json/modeling_tiny.py",
            "hfexport_tree.json.modeling_tiny",
            "hfexport_tree.json.configs",
            id="a package named as a loaded one",
        ),
    ],
)
def test_modeling_files(tmp_path: Path, files: dict[str, str], path: str, module: str, config: str) -> None:
    tree = write(tmp_path / "a tree", files)
    assert load("modeling", tree, f"{path}:TinyModel") == [[module, str(tree / path), config]]


@pytest.mark.process
def test_what_a_tree_does_not_have(tmp_path: Path) -> None:
    tree = write(tmp_path, {"t/modeling_tiny.py": "class TinyModel: pass\nsomething = 1", "bad.py": "class :"})
    wrong_class, no_class, no_file, outside, syntax = load(
        "modeling",
        tree / "t",
        "modeling_tiny.py:TinyModle",
        "modeling_tiny.py:something",
        "modeling_huge.py:TinyModel",
        "../bad.py:TinyModel",
        str(tree / "bad.py") + ":TinyModel",
    )
    file = tree / "t" / "modeling_tiny.py"
    assert wrong_class == f"ClassNotFoundError: {file} defines no class TinyModle; did you mean TinyModel?"
    assert no_class == f"ClassNotFoundError: {file} defines no class something"
    assert no_file == f"TreeError: modeling_huge.py is no file in the tree {tree / 't'}"
    assert str(outside).startswith("TreeError: ../bad.py is no file in the tree")
    assert "is no file in the tree" in str(syntax)
    assert "SyntaxError" in str(load("modeling", tree, "bad.py:TinyModel")[0])


@pytest.mark.process
def test_a_checkouts_own_transformers(tmp_path: Path) -> None:
    tree = write(
        tmp_path,
        {
            "src/transformers/__init__.py": "__version__ = '9.9'",
            "src/transformers/models/tiny/modeling_tiny.py": "from ...common import TinyConfig\n"
            + modeling("import transformers"),
            "src/transformers/common.py": CONFIG,
        },
    )
    versions, found = load("transformers", tree, "transformers.models.tiny.modeling_tiny:TinyModel")
    assert isinstance(versions, dict)
    assert versions["transformers"] == "9.9"
    assert set(versions) == {"torch", "transformers", "onnx", "onnxscript", "onnxruntime", "executorch"}
    file = tree / "src/transformers/models/tiny/modeling_tiny.py"
    assert found == ["transformers.models.tiny.modeling_tiny", str(file), "transformers.common"]


@pytest.mark.process
def test_a_tree_that_is_no_checkout_or_does_not_import(tmp_path: Path) -> None:
    assert load("transformers", tmp_path) == [
        f"TreeError: {tmp_path} is no transformers checkout: it has no src/transformers/__init__.py"
    ]
    assert load("transformers", tmp_path / "gone") == [f"TreeError: the tree {tmp_path / 'gone'} is no folder"]
    tree = write(tmp_path, {"src/transformers/__init__.py": "def broken(:"})
    (message,) = load("transformers", tree)
    assert str(message).startswith(f"TreeError: the transformers of {tree} does not import: SyntaxError: ")
    needs = 'raise ImportError("tokenizers<=0.23.0 is required, but found 0.23.3.\\nTry: pip install -U")'
    tree = write(tmp_path / "old", {"src/transformers/__init__.py": needs})
    assert load("transformers", tree) == [
        f"TreeError: the transformers of {tree} does not import: ImportError: tokenizers<=0.23.0 is required, but "
        "found 0.23.3; --install gives it the versions it asks for"
    ]


@pytest.mark.process
def test_another_transformers_imported_before(tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"transformers.py": ""})
    tree = write(tmp_path / "tree", {"src/transformers/__init__.py": ""})
    script = f"import sys; sys.path.insert(0, {str(other)!r}); import transformers\n{SCRIPT}"
    expected = f"TreeError: transformers was imported from {other}/transformers.py before the tree {tree} was prepared"
    assert load("transformers", tree, script=script) == [expected]
