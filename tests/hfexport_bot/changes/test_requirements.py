"""What a revision asks for, and where that differs from what is installed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from hfexport_bot.changes import declarations
from hfexport_bot.changes.declarations import poetry_specifier
from hfexport_bot.changes.requirements import Requirements, read_requirements
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout

INSTALLED = {
    "huggingface-hub": "1.33.0",
    "numpy": "2.4.6",
    "onnxscript": "0.7.2",
    "pydantic": "2.14.4",
    "pytest": "9.2.0",
    "requests": "2.34.2",
    "tokenizers": "0.23.3",
    "torch": "2.13.0+cpu",
    "transformers": "5.24.0",
    "urllib3": "2.8.0",
}


def read(files: Mapping[str, str], layout: Layout = Layout.MODELING) -> Requirements:
    return read_requirements(MappingTree(files), layout)


def differing(files: Mapping[str, str], layout: Layout = Layout.MODELING) -> list[tuple[str, str | None, str]]:
    found = read(files, layout).differences(INSTALLED)
    return [(each.requirement, each.installed, each.source) for each in found]


SETUP = """
from setuptools import setup
_deps = [
    "huggingface-hub>=0.34,<1.0",  # an older checkout
    "numpy>=1.17",
    "tokenizers>=0.22,<=0.23.0",
    "torch>=2.5",
    "pytest<9",
    "urllib3<2",
    "timm>=1.0",
    "python>=3.6",
]
deps = {b: a for a, b in (x for x in _deps)}
extras = {"quality": [deps["urllib3"]]}
install_requires = [deps["huggingface-hub"], deps["numpy"], deps["tokenizers"]]
setup(name="transformers", install_requires=list(install_requires))
"""


def test_an_older_checkout_wants_older_libraries_and_its_extras_are_nobodys_business() -> None:
    assert differing({"setup.py": SETUP}, Layout.TRANSFORMERS) == [
        ("huggingface-hub<1.0,>=0.34", "1.33.0", "setup.py"),
        ("tokenizers<=0.23.0,>=0.22", "0.23.3", "setup.py"),
    ]


def test_of_what_a_checkout_does_not_need_only_what_matters_and_is_installed_counts() -> None:
    setup = SETUP.replace("torch>=2.5", "torch>=2.14").replace("<1.0", "").replace(",<=0.23.0", "")
    assert differing({"setup.py": setup}, Layout.TRANSFORMERS) == [("torch>=2.14", "2.13.0+cpu", "setup.py")]


def test_a_checkout_without_a_list_in_setup_py_has_a_table() -> None:
    table = 'deps = {"tokenizers": "tokenizers<0.23", "timm": "timm>=2"}'
    files = {"setup.py": "import x", "src/transformers/dependency_versions_table.py": table}
    found = differing(files, Layout.TRANSFORMERS)
    assert found == [("tokenizers<0.23", "0.23.3", "src/transformers/dependency_versions_table.py")]


def test_a_checkout_provides_transformers_itself() -> None:
    files = {"setup.py": SETUP.replace('"timm', '"transformers==1", "timm'), "requirements.txt": "transformers==2"}
    assert "transformers" not in str(differing(files, Layout.TRANSFORMERS))


def test_the_installed_transformers_asks_for_nothing() -> None:
    assert read({"requirements.txt": "numpy<1"}, Layout.INSTALLED) == Requirements()


def test_dependencies_of_pyproject_count_where_they_are_not_met() -> None:
    pyproject = """
[project]
name = "zoo"
dependencies = ["transformers>=5.25", "numpy>=2", "einops[all]>=0.8", "zoo", "requests<2; python_version < '3'"]
optional-dependencies = {dev = ["pytest<9", "onnxscript==0.6.0", "timm"], docs = ["sphinx"]}
[dependency-groups]
test = ["tokenizers>1", {include-group = "dev"}]
"""
    assert differing({"pyproject.toml": pyproject}) == [
        ("einops[all]>=0.8", None, "pyproject.toml"),
        ("onnxscript==0.6.0", "0.7.2", "pyproject.toml"),
        ("tokenizers>1", "0.23.3", "pyproject.toml"),
        ("transformers>=5.25", "5.24.0", "pyproject.toml"),
    ]


def test_what_the_runner_itself_needs_is_never_replaced() -> None:
    assert differing({"requirements.txt": "pydantic<2\npip<20\n"}) == []


def test_ranges_of_several_files_are_met_together() -> None:
    files = {"pyproject.toml": '[project]\ndependencies = ["transformers>=5"]', "requirements.txt": "transformers<5.24"}
    assert differing(files) == [("transformers<5.24,>=5", "5.24.0", "requirements.txt")]


@pytest.mark.parametrize(
    ("path", "lock"),
    [
        ("requirements.lock", "# made by a tool\ntransformers==5.23.0 \\\n    --hash=sha256:ab\nidna==1.0\n"),
        ("uv.lock", '[[package]]\nname = "transformers"\nversion = "5.23.0"\nsource = {registry = "https://x/simple"}'),
        ("poetry.lock", '[[package]]\nname = "transformers"\nversion = "5.23.0"\ngroups = ["main"]\n'),
        ("pdm.lock", '[[package]]\nname = "transformers"\nversion = "5.23.0"\nmarker = "python_version >= \'3\'"\n'),
        ("pylock.toml", 'lock-version = "1.0"\n[[packages]]\nname = "transformers"\nversion = "5.23.0"\n'),
        (
            "Pipfile.lock",
            json.dumps({"default": {"Transformers": {"version": "==5.23.0"}}}),
        ),
    ],
)
def test_a_pin_of_a_lock_file_goes_before_ranges(path: str, lock: str) -> None:
    files = {"pyproject.toml": '[project]\ndependencies = ["transformers>=5"]', path: lock}
    assert differing(files) == [("transformers==5.23.0", "5.24.0", path)]


def test_a_lock_file_alone_counts_for_what_matters_and_is_installed() -> None:
    lock = "torch==2.13.0\nnumpy==2.4.1\nrequests==2.1\ntimm==1.0\npytest==8.0\n"
    assert differing({"requirements.lock": lock}) == [("numpy==2.4.1", "2.4.6", "requirements.lock")]


def test_a_build_for_another_device_is_the_same_release() -> None:
    assert differing({"requirements.lock": "torch==2.13.0+cu130"}) == []


def test_of_two_pins_of_a_package_the_one_for_this_machine_counts() -> None:
    lock = """
[[package]]
name = "numpy"
version = "1.0"
resolution-markers = ["python_full_version < '3.8'"]
[[package]]
name = "numpy"
version = "2.4.6"
resolution-markers = ["python_full_version >= '3.8'"]
[[package]]
name = "zoo"
version = "1"
source = {editable = "."}
"""
    assert differing({"uv.lock": lock}) == []


def test_a_requirements_file_is_read_as_pip_reads_it() -> None:
    files = {
        "requirements.txt": "--index-url https://user:secret@host/simple\n-r requirements/base.txt\n"
        "onnxscript == 0.6.0 \\\n  --hash=sha256:ab  # why\n-e .\n\n# no\n-c limits.txt\n",
        "requirements/base.txt": "-r ../requirements.txt\ntokenizers<0.23",
        "limits.txt": "numpy<2\nrequests<1",
        "requirements-dev.txt": "pytest<9\ntorch<2\n",
    }
    assert differing(files) == [
        ("numpy<2", "2.4.6", "limits.txt"),
        ("onnxscript==0.6.0", "0.7.2", "requirements.txt"),
        ("tokenizers<0.23", "0.23.3", "requirements/base.txt"),
        ("torch<2", "2.13.0+cpu", "requirements-dev.txt"),
    ]
    assert read(files).problems == ()


def test_setup_files_are_read_and_not_run() -> None:
    setup = "raise SystemExit\nneeds = ['transformers<5']\nsetuptools.setup(install_requires=needs)"
    config = "[metadata]\nname = zoo\n[options]\ninstall_requires =\n    numpy<2  # old\n    zoo\n"
    assert differing({"setup.py": setup, "setup.cfg": config}) == [
        ("numpy<2", "2.4.6", "setup.cfg"),
        ("transformers<5", "5.24.0", "setup.py"),
    ]


def test_poetry_has_versions_of_its_own() -> None:
    pyproject = """
[tool.poetry.dependencies]
python = "^3.9"
transformers = "^4.40"
numpy = {version = "~1.26", markers = "python_version >= '3.9'"}
requests = {version = "<1", optional = true}
onnxscript = [{version = "0.6.0", markers = "python_version >= '3'"}, {version = "9", markers = "python_version < '3'"}]
[tool.poetry.group.dev.dependencies]
pytest = "^7"
"""
    assert differing({"pyproject.toml": pyproject}) == [
        ("numpy<1.27,>=1.26", "2.4.6", "pyproject.toml"),
        ("onnxscript==0.6.0", "0.7.2", "pyproject.toml"),
        ("transformers<5,>=4.40", "5.24.0", "pyproject.toml"),
    ]
    written = {"^0.2.3": ">=0.2.3,<0.3", "^0.0.3": ">=0.0.3,<0.0.4", "~1": ">=1,<2", "1.2.*": "==1.2.*", "1.2": "==1.2"}
    for text, expected in written.items():
        assert set(str(poetry_specifier(text)).split(",")) == set(expected.split(","))
    assert str(poetry_specifier("*")) == ""
    assert poetry_specifier("^1 || ^2") is None


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"uv.lock": "[[package"}, "uv.lock cannot be read, and its pins were not used: "),
        ({"uv.lock": "package = 3"}, "uv.lock cannot be read, and its pins were not used: [[package]] is no list"),
        ({"Pipfile.lock": "[]"}, "Pipfile.lock cannot be read, and its pins were not used: "),
        ({"Pipfile.lock": '{"default": {"a": 1}}'}, "Pipfile.lock cannot be read, and its pins were not used: "),
        ({"requirements.lock": "numpy==1\n<<<<<<< HEAD\n"}, "its pins were not used: line 2 is no requirement such as"),
        ({"poetry.lock": '[[package]]\nname="numpy"\nversion="one"'}, "poetry.lock: 'one' is no version of numpy"),
        ({"pyproject.toml": "[project"}, "pyproject.toml cannot be read: "),
        ({"setup.cfg": "[options\n"}, "setup.cfg cannot be read: "),
        ({"setup.py": "def ("}, "setup.py cannot be read: "),
        (
            {"requirements.txt": "torch=>2"},
            "requirements.txt line 1: 'torch=>2' is no requirement such as `torch>=2.6`",
        ),
        ({"requirements.txt": "\n-r gone.txt"}, "gone.txt is included and not there"),
        ({"requirements.txt": "-r ../../etc/x"}, "requirements.txt line 1 includes a file from outside"),
        ({"requirements.txt": "git+https://me:secret@host/x"}, "requirements.txt line 1 takes a package from a URL"),
        (
            {"requirements.txt": "x @ https://me:secret@host/x.whl"},
            "requirements.txt line 1 takes x from a URL or a path",
        ),
        ({"requirements.txt": "./wheels/x.whl"}, "requirements.txt line 1 takes a package from a URL or a path"),
        ({"pyproject.toml": '[project]\nrequires-python = ">=4"'}, "pyproject.toml wants Python >=4, and this is 3."),
        ({"pyproject.toml": '[tool.poetry.dependencies]\na = "?"'}, "pyproject.toml: a: '?' is no version"),
        ({"pyproject.toml": '[tool.poetry.dependencies]\na = {git = "x"}'}, "pyproject.toml takes a from a URL"),
    ],
)
def test_what_cannot_be_read_is_one_line_without_secrets(files: dict[str, str], problem: str) -> None:
    (found,) = read(files).problems
    assert problem in found
    assert "\n" not in found
    assert "secret" not in found


def test_what_comes_from_a_repository_of_its_own_is_not_installed() -> None:
    lock = '[[package]]\nname = "transformers"\nversion = "5.25.0.dev0"\nsource = {git = "https://host/t?rev=main"}\n'
    files = {"pyproject.toml": '[project]\ndependencies = ["transformers>=6"]', "uv.lock": lock}
    assert differing(files) == []
    assert read(files).problems == ("uv.lock takes transformers from a URL or a path: nothing is installed from there",)


def test_a_difference_says_who_wants_what() -> None:
    (difference,) = read({"requirements.txt": "numpy<2"}).differences(INSTALLED)
    assert str(difference) == "numpy<2 (requirements.txt; 2.4.6 is installed)"
    (difference,) = read({"requirements.txt": "numpy<2"}).differences({})
    assert str(difference) == "numpy<2 (requirements.txt; not installed)"


def test_a_file_that_is_too_large_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "_MAX_BYTES", 1 << 20)
    files = {"requirements.txt": "numpy<2\n" + "#" * (1 << 20)}
    assert differing(files) == []
    assert read(files).problems == ("requirements.txt is larger than 1 MiB and was not read",)
