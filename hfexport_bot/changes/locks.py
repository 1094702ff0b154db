"""Lock files: the version each package is pinned to, for this Python and platform."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


@dataclass(frozen=True)
class Pin:
    """``version`` without its local part, None for what is taken from elsewhere than an index; ``source`` is the lock
    file."""

    version: str | None
    source: str


#: (name, version, markers of which one must hold, from elsewhere than an index)
_Entry = tuple[Any, Any, list[str], bool]


def read_lock(path: str, source: str) -> tuple[dict[str, Pin], list[str]]:
    """The pins of a lock file by canonical name, and a line for each thing that is wrong with it.

    ``path`` is one of `LOCKS`. Of several versions for one package the newest whose markers hold is taken.
    """
    try:
        entries = list(LOCKS[path](source))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return {}, [f"{path} cannot be read, and its pins were not used: {reason}"]
    found: dict[str, Version] = {}
    elsewhere: set[str] = set()
    problems = []
    for name, version, markers, from_elsewhere in entries:
        if not isinstance(name, str) or not isinstance(version, str) or not _any_holds(markers):
            continue
        if from_elsewhere:
            elsewhere.add(canonicalize_name(name))
            continue
        try:
            pinned = Version(Version(version).public)
        except InvalidVersion:
            problems.append(f"{path}: {version[:80]!r} is no version of {name[:80]}; that pin was not used")
            continue
        key = canonicalize_name(name)
        found[key] = max(pinned, found.get(key, pinned))
    pins = {name: Pin(str(version), path) for name, version in found.items()}
    return pins | {name: Pin(None, path) for name in elsewhere}, problems


def _any_holds(markers: list[str]) -> bool:
    return not markers or any(holds(marker) for marker in markers)


def holds(text: str) -> bool:
    """Whether an environment marker is true here; one that makes no sense is not."""
    try:
        return Marker(text).evaluate({"extra": "", "extras": set(), "dependency_groups": set()})
    except (InvalidMarker, ValueError, KeyError, TypeError):
        return False


def _packages(content: dict[str, Any], key: str) -> list[dict[str, Any]]:
    packages = content.get(key, [])
    if not isinstance(packages, list) or not all(isinstance(each, dict) for each in packages):
        raise ValueError(f"[[{key}]] is no list of tables")
    return packages


def _markers(*values: Any) -> list[str]:
    return [
        each for value in values for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)
    ]


def _uv(source: str) -> Iterator[_Entry]:
    for package in _packages(tomllib.loads(source), "package"):
        origin = package.get("source") or {}
        if {"editable", "virtual", "directory"}.intersection(origin):
            continue  # the project itself, or a part of it
        elsewhere = bool({"git", "url", "path"}.intersection(origin))
        yield package.get("name"), package.get("version"), _markers(package.get("resolution-markers")), elsewhere


def _poetry(source: str) -> Iterator[_Entry]:
    for package in _packages(tomllib.loads(source), "package"):
        markers = package.get("markers")  # one for all, or one for each group
        markers = list(markers.values()) if isinstance(markers, dict) else markers
        origin = (package.get("source") or {}).get("type", "legacy")
        if origin != "directory":
            yield package.get("name"), package.get("version"), _markers(markers), origin in ("git", "url", "file")


def _pdm(source: str) -> Iterator[_Entry]:
    for package in _packages(tomllib.loads(source), "package"):
        elsewhere = bool({"git", "url"}.intersection(package))
        if "path" not in package:
            yield package.get("name"), package.get("version"), _markers(package.get("marker")), elsewhere


def _pylock(source: str) -> Iterator[_Entry]:
    for package in _packages(tomllib.loads(source), "packages"):
        if "directory" not in package:
            elsewhere = bool({"vcs", "archive"}.intersection(package))
            yield package.get("name"), package.get("version"), _markers(package.get("marker")), elsewhere


def _pipfile(source: str) -> Iterator[_Entry]:
    content = json.loads(source)
    for section in ("default", "develop"):
        for name, entry in content.get(section, {}).items():
            elsewhere = bool({"git", "file", "path"}.intersection(entry))
            version = "0" if elsewhere else entry.get("version", "").removeprefix("==")
            if version:
                yield name, version, _markers(entry.get("markers")), elsewhere


def _requirements(source: str) -> Iterator[_Entry]:
    for number, line in logical_lines(source):
        if line.startswith(("-", ".", "/")):
            continue  # options, and what is no package of an index
        try:
            found = Requirement(without_hashes(line))
        except InvalidRequirement:
            if "://" in line:
                continue
            raise ValueError(f"line {number} is no requirement such as `torch==2.13.0`") from None
        pinned = [
            each.version for each in found.specifier if each.operator in ("==", "===") and "*" not in each.version
        ]
        version = "0" if found.url else next(iter(pinned), None)
        yield found.name, version, _markers(found.marker and str(found.marker)), found.url is not None


def logical_lines(source: str) -> Iterator[tuple[int, str]]:
    """Lines of a file in pip's format that say something, joined where they go on, with the number of the first."""
    begun, parts = 0, list[str]()
    for number, raw in enumerate([*source.splitlines(), ""], start=1):
        begun = begun if parts else number
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            if text := " ".join("".join(parts).split()):
                yield begun, text
            parts = []


def without_hashes(line: str) -> str:
    """A line of a file in pip's format without its ``--hash`` options."""
    return re.sub(r"\s--hash[=\s]\S+", "", line).strip()


#: Lock files at a repository's root and how each is read; of two that pin a package the earlier one counts.
LOCKS: dict[str, Callable[[str], Iterable[_Entry]]] = {
    "pylock.toml": _pylock,
    "uv.lock": _uv,
    "poetry.lock": _poetry,
    "pdm.lock": _pdm,
    "Pipfile.lock": _pipfile,
    "requirements.lock": _requirements,
}
