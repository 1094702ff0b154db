"""What a file says of what is to be installed beside the versions that `requirements` reads: packages from elsewhere
than an index, indexes, another Python, and files of kinds that are not read.

Two versions of a file that say the same here, and ask for the same versions, install the same. Where a file cannot be
read, its text counts as it is.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import yaml
from packaging.requirements import InvalidRequirement, Requirement

from hfexport_bot.changes.locks import LOCKS, logical_lines, without_hashes
from hfexport_bot.changes.modeling import parse

#: Keys of lock files that name files and hashes, or the tool that wrote them.
_NO_MATTER = frozenset(
    {"metadata", "_meta", "files", "wheels", "sdist", "hashes", "hash", "content-hash", "content_hash", "upload-time"}
)
#: Parts of a pyproject.toml that change what is installed, by their path; ``*`` is any key.
_INSTALLING = (
    *("project.requires-python", "project.dynamic", "tool.uv", "tool.setuptools.dynamic"),
    *("tool.poetry.dependencies.python", "tool.poetry.source", "tool.pdm.source", "tool.pdm.resolution"),
)
#: Lists and tables of requirements, of which those from elsewhere count here.
_REQUIRING = (
    *("project.dependencies", "project.optional-dependencies.*", "dependency-groups.*"),
    *("tool.poetry.dependencies.*", "tool.poetry.group.*.dependencies.*"),
)
_SETUP = ("install_requires", "extras_require", "python_requires", "dependency_links", "setup_requires")


def says(path: str, source: str) -> str:
    """What a declaring file says beside versions, in a form that is equal where it is the same."""
    name = path.rpartition("/")[2]
    for pattern, read in _KINDS.items():
        if fnmatchcase(name, pattern):
            try:
                return json.dumps(read(source), sort_keys=True, default=str)
            except (ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError, configparser.Error):
                return source
    return source


def is_declaring_name(name: str) -> bool:
    """Whether a file is of a kind that says what is to be installed."""
    return any(fnmatchcase(name, pattern) for pattern in _KINDS)


def _requirement_lines(source: str) -> list[str]:
    """Lines that ask for something else than a version of a package of the index."""
    lines = (without_hashes(line) for _, line in logical_lines(source))
    return [line for line in lines if _is_from_elsewhere(line)]


def _is_from_elsewhere(text: str) -> bool:
    try:
        return Requirement(text).url is not None
    except InvalidRequirement:
        return True


def _every_line(source: str) -> list[str]:
    return [without_hashes(line) for _, line in logical_lines(source)]


def _pyproject(source: str) -> Any:
    content = tomllib.loads(source)
    required = [each for path in _REQUIRING for each in _at(content, path.split("."))]
    flat = [each for value in required for each in (value if isinstance(value, list) else [value])]
    elsewhere = [each for each in flat if not isinstance(each, str) or " @ " in each or "://" in each]
    return [elsewhere, *(_at(content, path.split(".")) for path in _INSTALLING)]


def _at(value: Any, path: list[str]) -> list[Any]:
    """What is found at a path of keys."""
    if not path:
        return [value]
    if not isinstance(value, dict):
        return []
    keys = sorted(value) if path[0] == "*" else [path[0]]
    return [found for key in keys if key in value for found in _at(value[key], path[1:])]


def _setup_cfg(source: str) -> Any:
    parser = configparser.RawConfigParser()
    parser.read_string(source)
    options = {name: parser.get("options", name, fallback="") for name in _SETUP}
    extras = "options.extras_require"
    return [options, dict(parser.items(extras)) if parser.has_section(extras) else {}]


def _setup_py(source: str) -> Any:
    """The arguments that ask for packages; all of the code where these are computed, or may be."""
    module = parse(source.encode())
    calls = [each for each in ast.walk(module) if isinstance(each, ast.Call) and _is_setup(each.func)]
    keywords = [each for call in calls for each in call.keywords]
    asking = [each.value for each in keywords if each.arg in _SETUP]
    if not calls or any(each.arg is None for each in keywords) or not all(map(_is_written_out, asking)):
        return _without_version(ast.dump(module))
    return [ast.dump(each) for each in asking]


def _without_version(dumped: str) -> str:
    """Code without the project's own version, which every release changes."""
    return re.sub(r"keyword\(arg='version', value=Constant\(value=[^)]*\)\)", "", dumped)


def _is_setup(function: ast.expr) -> bool:
    return getattr(function, "id", getattr(function, "attr", "")) == "setup"


def _is_written_out(value: ast.expr) -> bool:
    return not any(isinstance(each, ast.Name | ast.Call | ast.Subscript | ast.JoinedStr) for each in ast.walk(value))


def _lock(source: str) -> Any:
    return _without_files(json.loads(source) if source.lstrip().startswith("{") else tomllib.loads(source))


def _without_files(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_files(each) for key, each in value.items() if key not in _NO_MATTER}
    return [_without_files(each) for each in value] if isinstance(value, list) else value


def _conda(source: str) -> Any:
    content = yaml.safe_load(source)
    return [content.get("channels"), content.get("dependencies")]


#: Kinds of files by their names, and how each is read.
_KINDS: dict[str, Callable[[str], Any]] = {
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
    "requirements.lock": _requirement_lines,
    **{name: _lock for name in LOCKS if name != "requirements.lock"},
    "Pipfile": tomllib.loads,
    "requirements*.txt": _requirement_lines,
    "requirements*.in": _every_line,
    "constraints*.txt": _every_line,
    "environment*.y*ml": _conda,
    "conda*.y*ml": _conda,
    "*-environment.y*ml": _conda,
}
