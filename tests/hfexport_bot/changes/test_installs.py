"""A change of what is installed affects every model, whichever file says it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.selection import SAME_NEEDS, Selection
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.reporting.summary import headline
from hfexport_bot.schema import Layout, Report, Revision

MODEL = "class AModel(PreTrainedModel):\n    def forward(self): return 1\n"
OWN = {"zoo/models/modeling_a.py": MODEL}
CHECKOUT = {"src/transformers/models/a/modeling_a.py": MODEL, "src/transformers/__init__.py": ""}
INCLUDES = {"requirements.txt": "-r reqs/base.pip\n"}

#: Path, and a text whose braces take one version on base and another on head.
READ = {
    "requirements.txt": "torch=={}\n",
    "requirements-dev.txt": "torch=={}\n",
    "requirements_export.txt": "onnx>={}\n",
    "requirements.lock": "torch=={}\n",
    "setup.cfg": "[options]\ninstall_requires =\n    torch=={}\n",
    "uv.lock": '[[package]]\nname = "torch"\nversion = "{}"\n',
    "poetry.lock": '[[package]]\nname = "torch"\nversion = "{}"\n',
    "pdm.lock": '[[package]]\nname = "torch"\nversion = "{}"\n',
    "pylock.toml": '[[packages]]\nname = "torch"\nversion = "{}"\n',
    "Pipfile.lock": '{{"default": {{"torch": {{"version": "=={}"}}}}}}',
}
PYPROJECT = (
    '[project]\nname="x"\ndependencies=["torch=={}"]\n',
    '[project]\nname="x"\n[project.optional-dependencies]\nall=["torch=={}"]\n',
    '[tool.poetry]\nname="x"\n[tool.poetry.dependencies]\ntorch="{}"\n',
)
NOT_READ = (
    ("pyproject.toml", '[project]\ndependencies=["torch"]\n[tool.uv.sources]\ntorch={{git="https://x/y", rev="{}"}}\n'),
    ("pyproject.toml", '[project]\nrequires-python=">={}"\n'),
    ("pyproject.toml", '[project]\ndependencies=["torch @ https://host/torch-{}.whl"]\n'),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntorch={{git="https://x/y", rev="{}"}}\n'),
    ("setup.cfg", "[options.extras_require]\nall =\n    torch=={}\n"),
    ("setup.cfg", "torch=={}: no such file"),
    ("setup.py", "from setuptools import setup\nsetup(extras_require={{'all': ['torch=={}']}})\n"),
    ("setup.py", "from setuptools import setup\nwanted = '{}'\nsetup(install_requires=[f'torch=={{wanted}}'])\n"),
    ("setup.py", "from setuptools import setup\nneeds = ['torch=={}']\nsetup(**dict(install_requires=needs))\n"),
    ("setup.py", "torch=={}: no Python"),
    ("uv.lock", '[[package]]\nname = "torch"\nversion = "1"\nsource = {{git = "https://x/y?rev={}"}}\n'),
    ("poetry.lock", '[[package]]\nname = "a"\nversion = "1"\n[package.source]\ntype = "git"\nreference = "{}"\n'),
    ("Pipfile", '[packages]\ntorch = "=={}"\n'),
    ("environment.yml", "dependencies:\n- pytorch={}\n"),
    ("environment-gpu.yaml", "dependencies:\n- pip:\n  - torch=={}\n"),
    ("conda.yaml", "channels: [x{}]\n"),
    ("requirements.in", "torch=={}\n"),
    ("constraints.txt", "torch=={}\n"),
    ("requirements.txt", "torch @ https://host/torch-{}.whl\n"),
    ("requirements.txt", "git+https://host/x@{}\n"),
    ("requirements.txt", "--index-url https://host/{}\ntorch\n"),
    ("requirements/models.txt", "torch=={}\n"),
)
SAME = (
    ("requirements.txt", "torch==2.0 --hash=sha256:{}  # pinned\n"),
    ("requirements.lock", "torch==2.0 --hash=sha256:{}\n"),
    ("pyproject.toml", '[project]\nname="x"\nversion="{}"\ndependencies=["torch"]\n[tool.ruff]\nline-length={}\n'),
    ("pyproject.toml", '[project]\nname="x"\n[dependency-groups]\ndev=["ruff=={}"]\n'),
    ("setup.py", "from setuptools import setup\nsetup(version='{}', install_requires=['torch'])\n"),
    ("setup.py", "from setuptools import setup\nneeds = ['torch']\nsetup(version='{}', install_requires=needs)\n"),
    ("setup.cfg", "[metadata]\nversion = {}\n[options]\ninstall_requires =\n    torch\n"),
    ("poetry.lock", '[[package]]\nname = "torch"\nversion = "2"\nfiles = ["{}"]\n[metadata]\ncontent-hash = "{}"\n'),
    ("environment.yml", "name: x{}\ndependencies:\n- pytorch\n"),
)


def change(path: str, text: str, others: Mapping[str, str], layout: Layout) -> Selection:
    base, head = (
        MappingTree({**others, path: text.replace("{}", v).replace("{{", "{").replace("}}", "}")})
        for v in ("1.26", "1.27")
    )
    return select([FileChange(path, path)], base, head, layout)


@pytest.mark.parametrize("others", [OWN, CHECKOUT])
@pytest.mark.parametrize(
    ("path", "text"),
    [*READ.items(), *(("pyproject.toml", text) for text in PYPROJECT), *NOT_READ],
)
def test_every_model_is_affected(path: str, text: str, others: Mapping[str, str]) -> None:
    layout = Layout.MODELING if others is OWN else Layout.TRANSFORMERS
    found = change(path, text, others, layout)
    assert [module.classes for module in found.affected] == [("AModel",)]
    assert found.affected[0].reason.startswith(f"{path} changed")
    assert found.not_run == ()


@pytest.mark.parametrize("text", READ.values())
def test_what_moved_is_named_where_it_was_read(text: str) -> None:
    path = next(path for path, each in READ.items() if each is text)
    (module,) = change(path, text, OWN, Layout.MODELING).affected
    assert module.reason.endswith("1.26 to onnx>=1.27" if "onnx" in text else "torch==1.26 to torch==1.27")


def test_an_included_file_and_those_beside_the_models_count() -> None:
    (module,) = change("reqs/base.pip", "torch=={}\n", OWN | INCLUDES, Layout.MODELING).affected
    assert module.reason == "reqs/base.pip changed: torch==1.26 to torch==1.27"
    for path in ("zoo/requirements.txt", "zoo/models/pyproject.toml"):
        (module,) = change(path, "torch=={}\n", OWN, Layout.MODELING).affected
        assert module.reason == f"{path} changed"
    for path in ("tools/requirements.txt", "docs/requirements.txt", "notes.txt"):
        assert change(path, "torch=={}\n", OWN, Layout.MODELING).affected == ()


@pytest.mark.parametrize("others", [OWN, CHECKOUT])
@pytest.mark.parametrize(("path", "text"), SAME)
def test_what_installs_the_same_affects_none_and_is_said_so(path: str, text: str, others: Mapping[str, str]) -> None:
    found = change(path, text, others, Layout.MODELING if others is OWN else Layout.TRANSFORMERS)
    assert found.affected == ()
    assert [(item.name, item.reason) for item in found.not_run] == [(path, SAME_NEEDS)]
    report = Report(command="run", head=Revision(name="x"), not_run=found.not_run)
    assert headline(report) == "nothing affected · safe to merge: yes"


def test_the_table_of_transformers_setup_is_read_whatever_else_is_in_it() -> None:
    deps = '_deps = ["numpy>={0}"]\ninstall_requires = [deps["numpy"]]\nversion = "1"\n'
    moved = change("setup.py", deps.replace("{0}", "{}"), CHECKOUT, Layout.TRANSFORMERS)
    assert moved.affected[0].reason == "setup.py changed: numpy>=1.26 to numpy>=1.27"
    same = deps.replace("{0}", "1").replace('"1"', '"{}"')
    assert change("setup.py", same, CHECKOUT, Layout.TRANSFORMERS).affected == ()


def test_a_file_that_comes_or_goes_counts() -> None:
    without, with_it = MappingTree(OWN), MappingTree(OWN | {"environment.yml": "dependencies: [pytorch]"})
    for found in (
        select([FileChange(None, "environment.yml")], without, with_it, Layout.MODELING),
        select([FileChange("environment.yml", None)], with_it, without, Layout.MODELING),
    ):
        assert [module.reason for module in found.affected] == ["environment.yml changed"]


def test_exporters_of_the_checkout_are_told_apart_where_they_are_not_run() -> None:
    path = "src/transformers/exporters/exporter_onnx.py"
    found = change(path, "x = {}\n", CHECKOUT, Layout.TRANSFORMERS)
    assert [(item.name, item.reason) for item in found.not_run] == [
        (path, "the engine own does not use the checkout's exporters; --engine repo or both does")
    ]


def test_kernels_of_the_hub_count_only_where_the_project_needs_them_to_run() -> None:
    deps = '_deps = ["numpy>=1", "kernels>={}"]\ninstall_requires = [deps["numpy"]]\n'
    assert change("setup.py", deps, CHECKOUT, Layout.TRANSFORMERS).affected == ()
    needed = deps.replace('[deps["numpy"]]', '[deps["kernels"]]')
    assert change("setup.py", needed, CHECKOUT, Layout.TRANSFORMERS).affected != ()
