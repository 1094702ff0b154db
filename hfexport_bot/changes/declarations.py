"""What the files at a repository's root say it needs: pyproject.toml, setup.cfg, setup.py and requirements files."""

from __future__ import annotations

import ast
import configparser
import platform
import posixpath
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from hfexport_bot.changes.locks import holds, logical_lines, without_hashes
from hfexport_bot.changes.modeling import SourceError, parse
from hfexport_bot.changes.tree import Tree

_MAX_BYTES = 16 << 20
#: What transformers' setup.py needs where it does not say so in a form we know.
_TRANSFORMERS_NEEDS = ("huggingface-hub", "numpy", "packaging", "pyyaml", "regex", "safetensors", "tokenizers", "tqdm")
_TRANSFORMERS_TABLE = "src/transformers/dependency_versions_table.py"
#: Options of a requirements file that are followed by another one.
_INCLUDE = re.compile(r"(?:-r|--requirement|-c|--constraint)(?:\s+|=)?(\S+)")


@dataclass(frozen=True)
class Asked:
    """A package that a file asks for; ``firm`` when the project needs it to run."""

    name: str
    specifier: SpecifierSet
    extras: tuple[str, ...]
    source: str
    firm: bool


class Reader:
    """Collects what the files of one tree say."""

    def __init__(self, tree: Tree) -> None:
        self.asked: list[Asked] = []
        self.problems: list[str] = []
        self.provided: set[str] = set()
        self._tree = tree
        self.included: set[str] = set()

    def text(self, path: str) -> str | None:
        source = self._tree.read(path)
        if source is not None and len(source) > _MAX_BYTES:
            self.problems.append(f"{path} is larger than {_MAX_BYTES >> 20} MiB and was not read")
            return None
        return None if source is None else source.decode("utf-8-sig", errors="replace")

    # -- one requirement -----------------------------------------------------------------------------------------

    def add(self, text: str, where: str, firm: bool) -> None:
        """Take in one requirement as packaging writes them."""
        try:
            found = Requirement(text)
        except InvalidRequirement:
            self._not_installed(text, where, firm)
            return
        if found.marker is not None and not holds(str(found.marker)):
            return
        if found.url is not None:
            if firm:
                self.problems.append(
                    f"{where} takes {found.name} from a URL or a path: nothing is installed from there"
                )
            return
        self._take(found.name, found.specifier, found.extras, where, firm)

    def _take(self, name: str, specifier: SpecifierSet, extras: Iterable[str], where: str, firm: bool) -> None:
        if name.lower() == "python":
            self.python(str(specifier), where)
        else:
            source = where.partition(" line ")[0]
            self.asked.append(Asked(canonicalize_name(name), specifier, tuple(sorted(extras)), source, firm))

    def _not_installed(self, text: str, where: str, firm: bool) -> None:
        # The text itself may hold a password where it is a URL.
        if re.match(r"[\w.+-]+://|git\+|\.{0,2}/|[\w.]+\.whl", text) or text in (".", "..") or "@" in text:
            self._elsewhere("a package", where, firm)
        else:
            self.problems.append(f"{where}: {text[:80]!r} is no requirement such as `torch>=2.6`; it was passed over")

    def _elsewhere(self, name: str, where: str, firm: bool) -> None:
        if firm:
            self.problems.append(f"{where} takes {name} from a URL or a path: nothing is installed from there")

    def python(self, wanted: str, where: str) -> None:
        """Note where another Python is wanted: no package brings one."""
        try:
            fits = SpecifierSet(wanted).contains(platform.python_version(), prereleases=True)
        except InvalidSpecifier:
            self.problems.append(f"{where}: {wanted[:80]!r} is no version of Python such as `>=3.11`")
            return
        if not fits:
            self.problems.append(f"{where} wants Python {wanted}, and this is {platform.python_version()}")

    # -- files ---------------------------------------------------------------------------------------------------

    def requirements_file(self, path: str, firm: bool) -> None:
        """A file of pip's format and what it includes, each once; its index options are not followed."""
        if path in self.included:
            return
        self.included.add(path)
        source = self.text(path)
        if source is None:
            if self._tree.read(path) is None:
                self.problems.append(f"{path} is included and not there")
            return
        for number, line in logical_lines(source):
            where = f"{path} line {number}"
            if include := _INCLUDE.fullmatch(line):
                inner = posixpath.normpath(posixpath.join(posixpath.dirname(path), include[1]))
                constrains = line.startswith(("-c", "--constraint"))
                if "://" in include[1] or inner.startswith(("../", "/")):
                    self.problems.append(f"{where} includes a file from outside of the repository; it was passed over")
                else:
                    self.requirements_file(inner, firm and not constrains)
            elif line.startswith(("-e", "--editable")):
                target = line.partition(" ")[2].strip()
                if not target.startswith("."):  # the project itself is imported from its tree
                    self._elsewhere("a package", where, firm)
            elif not line.startswith("-"):
                self.add(without_hashes(line), where, firm)

    def pyproject(self) -> None:
        content = self._toml("pyproject.toml")
        where = "pyproject.toml"
        project, tool = _table(content.get("project")), _table(content.get("tool"))
        if isinstance(name := project.get("name"), str):
            self.provided.add(canonicalize_name(name))
        if isinstance(wanted := project.get("requires-python"), str):
            self.python(wanted, where)
        sources = _table(_table(tool.get("uv")).get("sources"))
        elsewhere: dict[str, str] = {
            canonicalize_name(name): where for name, source in sources.items() if not _from_index(source)
        }
        for text in _strings(project.get("dependencies")):
            self.add(text, where, firm=True)
        self.leave_out(elsewhere)
        groups = [_table(project.get("optional-dependencies")), _table(content.get("dependency-groups"))]
        groups.append(_table(_table(tool.get("pdm")).get("dev-dependencies")))
        for text in (text for group in groups for listed in group.values() for text in _strings(listed)):
            self.add(text, where, firm=False)
        if "dependencies" in _strings(project.get("dynamic")):
            dynamic = _table(_table(_table(tool.get("setuptools")).get("dynamic")).get("dependencies")).get("file")
            for path in [dynamic] if isinstance(dynamic, str) else _strings(dynamic):
                self.requirements_file(posixpath.normpath(path), firm=True)
        self._poetry(_table(tool.get("poetry")), where)

    def leave_out(self, names: Mapping[str, str]) -> None:
        """Leave out what the project takes from elsewhere than an index; ``names`` gives the file that says so."""
        for name in sorted(names.keys() & {each.name for each in self.asked if each.firm}):
            self._elsewhere(name, names[name], firm=True)
        self.asked = [each for each in self.asked if each.name not in names]

    def _poetry(self, poetry: Mapping[str, Any], where: str) -> None:
        if isinstance(name := poetry.get("name"), str):
            self.provided.add(canonicalize_name(name))
        groups = [(_table(poetry.get("dependencies")), True), (_table(poetry.get("dev-dependencies")), False)]
        groups += [(_table(_table(each).get("dependencies")), False) for each in _table(poetry.get("group")).values()]
        for table, firm in groups:
            for name, value in table.items():
                for each in value if isinstance(value, list) else [value]:
                    self._poetry_entry(name, each, where, firm)

    def _poetry_entry(self, name: str, value: Any, where: str, firm: bool) -> None:
        details = _table(value)
        text = value if isinstance(value, str) else details.get("version", "*")
        if not _from_index(details):
            self._elsewhere(name, where, firm)
            return
        specifier = poetry_specifier(text) if isinstance(text, str) else None
        if specifier is None:
            self.problems.append(f"{where}: {name}: {str(text)[:80]!r} is no version that is understood")
            return
        marker = f" ; {details['markers']}" if isinstance(details.get("markers"), str) else ""
        optional = details.get("optional") is True
        self.add(f"{name}{specifier}{marker}", where, firm and not optional)

    def setup_cfg(self) -> None:
        source = self.text("setup.cfg")
        if source is None:
            return
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(source)
        except configparser.Error as error:
            self.problems.append(f"setup.cfg cannot be read: {_one_line(error)}")
            return
        if name := parser.get("metadata", "name", fallback=""):
            self.provided.add(canonicalize_name(name))
        for line in parser.get("options", "install_requires", fallback="").splitlines():
            if text := line.partition("#")[0].strip():
                self.add(text, "setup.cfg", firm=True)

    def setup_py(self) -> None:
        """``install_requires`` where it is written out as a list, in the call or as a variable."""
        module = self._parsed("setup.py")
        if module is None:
            return
        keywords = (
            each
            for node in ast.walk(module)
            if isinstance(node, ast.Call) and _called(node) == "setup"
            for each in node.keywords
            if each.arg == "install_requires"
        )
        for keyword in keywords:
            value = _assigned(module, keyword.value.id) if isinstance(keyword.value, ast.Name) else keyword.value
            for text in _texts(value):
                self.add(text, "setup.py", firm=True)

    def transformers_setup(self) -> None:
        """The ``_deps`` of transformers' setup.py, or the table that is made of it, and which of them it needs."""
        module, where = self._parsed("setup.py"), "setup.py"
        texts = _texts(_assigned(module, "_deps")) if module else []
        if not texts:
            where = _TRANSFORMERS_TABLE
            table = self._parsed(where)
            texts = _texts(_assigned(table, "deps")) if table else []
        needed = set(_needs(_assigned(module, "install_requires")) if module else ()) or set(_TRANSFORMERS_NEEDS)
        for text in texts:
            name = re.split(r"[^\w.\-]", text, maxsplit=1)[0]
            self.add(text, where, firm=canonicalize_name(name) in needed)

    def _toml(self, path: str) -> dict[str, Any]:
        source = self.text(path)
        try:
            return tomllib.loads(source) if source is not None else {}
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            self.problems.append(f"{path} cannot be read: {_one_line(error)}")
            return {}

    def _parsed(self, path: str) -> ast.Module | None:
        source = self.text(path)
        try:
            return parse(source.encode()) if source is not None else None
        except SourceError as error:
            self.problems.append(f"{path} cannot be read: {_one_line(error)}")
            return None


def poetry_specifier(text: str) -> SpecifierSet | None:
    """What poetry's ``^1.2``, ``~1.2``, ``1.2.*`` and the like mean, None for what is none of them."""
    parts = [part.strip() for part in text.split(",")]
    try:
        return SpecifierSet(",".join(written for part in parts if (written := _poetry_part(part))))
    except (InvalidSpecifier, InvalidVersion):
        return None


def _poetry_part(part: str) -> str:
    if part in ("*", ""):
        return ""
    if part[0] not in "^~" or part.startswith("~="):
        return part if part[0] in "<>=!~" else f"=={part}"
    version = Version(part[1:].strip())
    release = list(version.release)
    if part[0] == "^":  # the first part that is not zero may not change
        kept = next((index for index, value in enumerate(release) if value), len(release) - 1)
    else:
        kept = min(1, len(release) - 1)
    upper = [*release[:kept], release[kept] + 1]
    return f">={version},<{'.'.join(map(str, upper))}"


def _from_index(source: Any) -> bool:
    return not {"git", "url", "path", "file", "workspace"}.intersection(_table(source))


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _assigned(module: ast.Module, name: str) -> ast.expr | None:
    """The value a module gives a name, at its top level."""
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(node, "value", None)
            return value if isinstance(value, ast.expr) else None
    return None


def _texts(value: ast.expr | None) -> list[str]:
    """The strings of a list, or of a dict's values, that is written out."""
    entries = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", [])
    return [each.value for each in entries if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _needs(value: ast.expr | None) -> Iterator[str]:
    """The names in ``[deps["numpy"], ...]``, wherever they stand in an expression."""
    for node in ast.walk(value) if value is not None else ():
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield canonicalize_name(str(node.slice.value))
