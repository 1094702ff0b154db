"""What a revision's own files ask to be installed, and where that differs from what is.

Files are read, never run, and nothing is looked up: from a `Tree` and the installed versions to a list of differences.
A firm request is one that the project needs to run; extras, groups and tools of developers are not, and count only for
packages that decide what an export comes to. A lock file's pin goes before any range. What cannot be read, or is not
installed from an index, becomes a problem in one line and stops nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from hfexport_bot.changes.declarations import Asked, Reader
from hfexport_bot.changes.locks import LOCKS, Pin, read_lock
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import Layout

#: What an export's outcome, its graph and its numbers come from, beside what the project needs to run at all.
MATTERS = frozenset(
    {
        *("torch", "torchao", "torchaudio", "torchvision", "numpy", "sympy", "ml-dtypes"),
        *("onnx", "onnx-ir", "onnxruntime", "onnxscript", "executorch"),
        *("transformers", "huggingface-hub", "safetensors", "tokenizers", "sentencepiece", "pillow"),
        *("accelerate", "einops", "peft", "timm"),  # and not `kernels`: no case fetches one
    }
)
#: Never replaced: a runner reads its cases with pydantic, and the others take no part.
KEPT = frozenset({"hfexport-bot", "pip", "pydantic", "pydantic-core", "setuptools", "wheel"})


@dataclass(frozen=True)
class Difference:
    """A package that a revision wants in another version: ``wanted`` is a specifier such as ``==5.23.0``,
    ``installed`` a version or None for a missing one, ``source`` the file that says so."""

    name: str
    wanted: str
    installed: str | None
    source: str
    extras: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """As an installer takes it: ``name[extra]==1.0``."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{self.wanted}"

    def __str__(self) -> str:
        have = f"{self.installed} is installed" if self.installed else "not installed"
        return f"{self.name}{self.wanted} ({self.source}; {have})"


@dataclass(frozen=True)
class Requirements:
    """What a revision asks for. ``problems``: one line each for what could not be read or will not be installed;
    ``included``: files that others include."""

    asked: tuple[Asked, ...] = ()
    pins: Mapping[str, Pin] | None = None
    provided: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    included: frozenset[str] = frozenset()

    def differences(self, installed: Mapping[str, str]) -> tuple[Difference, ...]:
        """What is asked for and not ``installed`` (canonical name to version), by name."""
        pins = self.pins or {}
        found = (
            self._difference(name, pins.get(name), installed.get(name))
            for name in sorted({*pins, *(each.name for each in self.asked)} - self.provided - KEPT)
        )
        return tuple(each for each in found if each)

    def _difference(self, name: str, pin: Pin | None, have: str | None) -> Difference | None:
        asked = [each for each in self.asked if each.name == name]
        if pin is not None and pin.version is None:
            return None
        firm = [each for each in asked if each.firm]
        if not firm and (have is None or name not in MATTERS):
            return None
        extras = tuple(sorted({extra for each in firm for extra in each.extras}))
        if pin is not None:
            same = have is not None and _public(have) == pin.version
            return None if same else Difference(name, f"=={pin.version}", have, pin.source, extras)
        counted = firm or asked
        unmet = [each for each in counted if have is None or not _meets(have, each.specifier)]
        if not unmet:
            return None
        wanted = SpecifierSet(",".join(str(each.specifier) for each in counted if str(each.specifier)))
        return Difference(name, str(wanted), have, unmet[0].source, extras)


def read_requirements(tree: Tree, layout: Layout) -> Requirements:
    """Read what a revision asks for, from the files at its root. Raises nothing of its own: see ``problems``."""
    if layout is Layout.INSTALLED:
        return Requirements()
    reader = Reader(tree)
    at_root = sorted(path for path in tree.files() if "/" not in path)
    reader.pyproject()
    reader.setup_cfg()
    if layout is Layout.TRANSFORMERS:
        reader.transformers_setup()
        reader.provided.add("transformers")
    else:
        reader.setup_py()
    for path in at_root:
        if fnmatchcase(path, "requirements*.txt"):
            reader.requirements_file(path, firm=path == "requirements.txt")
    pins: dict[str, Pin] = {}
    for path in (path for path in LOCKS if path in at_root):
        source = reader.text(path)
        if source is not None:
            found, problems = read_lock(path, source)
            pins = found | pins
            reader.problems += problems
    reader.leave_out({name: pin.source for name, pin in pins.items() if pin.version is None})
    return Requirements(
        tuple(reader.asked),
        pins,
        frozenset(reader.provided),
        tuple(dict.fromkeys(reader.problems)),
        frozenset(reader.included),
    )


def _meets(version: str, specifier: SpecifierSet) -> bool:
    try:
        return specifier.contains(version, prereleases=True)
    except InvalidVersion:  # of a broken installation
        return False


def _public(version: str) -> str:
    """A version without its local part: a build for another device is the same release."""
    try:
        return Version(version).public
    except InvalidVersion:
        return version
