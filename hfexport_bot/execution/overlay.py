"""An overlay environment: a folder with the packages that a revision wants in other versions than are installed.

pip makes it, on the untrusted side of the trust line: in a runner's scrubbed environment with a home of its own, so
with no token, no keyring and no ``.netrc``. It takes wheels only, so that nothing of a package runs. Two steps: pip
resolves what differs against what is installed, then installs exactly that, without dependencies, into the folder. The
folder goes before the installed packages on a runner's ``sys.path``.

Where pip looks is the user's decision, from ``PIP_*`` variables and pip's configuration files: index, links, proxy,
certificates and constraints are handed on. User names and passwords in their addresses are not, so an index must answer
without them; nor are the index options of a revision's own files.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from hfexport_bot.cache import cache_folder, made_once
from hfexport_bot.changes.requirements import Difference
from hfexport_bot.execution.client import stop_session
from hfexport_bot.execution.environment import private_home, runner_environment

#: Seconds that pip may take for one overlay: a torch is large.
INSTALL_SECONDS = 1_800.0

_MANIFEST = "hfexport-overlay.json"
#: pip's settings of where packages come from, and how they are fetched.
_PIP_SETTINGS = frozenset(
    {
        *("index-url", "extra-index-url", "no-index", "find-links", "trusted-host", "constraint"),
        *("cert", "proxy", "retries", "timeout", "default-timeout"),
    }
)
_NETWORK_VARIABLES = frozenset(
    {
        *("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
        *("REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    }
)
_NOT_TO_BE_HAD = re.compile(r"Could not find a version that satisfies the requirement (\S+)")
_FROM_VERSIONS = re.compile(r"\(from versions: (.*?)\)")
#: Requirements that are named when they are not to be had: pip is asked once for each.
_MOST_REASONS = 5
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")


class OverlayError(Exception):
    """The overlay could not be made; the message is one line that says why."""


@dataclass(frozen=True)
class Overlay:
    """A folder for ``sys.path``, and the packages in it: canonical name to version."""

    folder: Path
    packages: dict[str, str] = field(default_factory=dict)


def installed_versions() -> dict[str, str]:
    """What is installed beside this process, which its runners share: canonical name to version."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a broken installation may have none
            found.setdefault(canonicalize_name(name), distribution.version)
    return found


def make_overlay(
    differences: Sequence[Difference],
    installed: Mapping[str, str],
    *,
    environment: Mapping[str, str] = os.environ,
    python: str = sys.executable,
    seconds: float = INSTALL_SECONDS,
) -> Overlay:
    """The overlay that adds ``differences`` to what is ``installed``, made or found again in the user's cache.

    It is found by a hash of Python, platform, requirements, installed versions and pip's settings.

    Raises `OverlayError` when a package is not to be had as a wheel, the index does not answer, or there is no pip.
    """
    settings = _pip_settings(python, environment)
    requirements = sorted(each.requirement for each in differences)
    identity = [python_identity(), requirements, sorted(installed.items()), sorted(settings.items())]
    name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    pip = _Pip(python, environment, settings, seconds)
    try:
        folder = made_once(cache_folder(environment) / "overlays" / name, lambda new: pip.fill(new, requirements))
        content = json.loads((folder / _MANIFEST).read_text())
        return Overlay(folder, {str(package): str(version) for package, version in content["packages"].items()})
    except OSError as error:
        raise OverlayError(f"the cache of environments cannot be used: {error}") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise OverlayError(f"the environment in {folder} is damaged; delete that folder") from None


def python_identity() -> list[str]:
    """What a wheel's files may depend on: the interpreter, its version and the platform."""
    return [sys.implementation.cache_tag or "", platform.python_version(), sysconfig.get_platform()]


@dataclass(frozen=True)
class _Pip:
    python: str
    environment: Mapping[str, str]
    settings: Mapping[str, str]
    seconds: float

    def fill(self, folder: Path, requirements: Sequence[str]) -> None:
        """Install what ``requirements`` change into an empty folder."""
        with private_home() as home:
            report, wanted = home / "report.json", home / "wanted.txt"
            install = ("install", "--only-binary", ":all:", "--requirement", str(wanted))
            self._resolve(home, wanted, requirements, *install, "--dry-run", "--report", str(report))
            packages = _resolved(report)
            if packages:
                wanted.write_text("\n".join(f"{name}=={version}" for name, version in packages.items()))
                self._run(home, *install, "--no-deps", "--no-compile", "--target", str(folder))
        manifest = {"requirements": requirements, "packages": packages}
        (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2))

    def _resolve(self, home: Path, wanted: Path, requirements: Sequence[str], *arguments: str) -> None:
        """Have pip resolve the ``requirements``, written to ``wanted``. It stops at the first that is not to be had: it
        is asked again without that one, so that all of them are told."""
        left, reasons = list(requirements), list[str]()
        while left or not reasons:
            wanted.write_text("\n".join(left))
            try:
                self._run(home, *arguments)
                break
            except OverlayError as error:
                reasons.append(str(error))
                found = _NOT_TO_BE_HAD.match(reasons[-1])
                if not found or found[1] not in left or len(reasons) == _MOST_REASONS:
                    break
                left.remove(found[1])
        if reasons:
            raise OverlayError("; ".join(reasons))

    def _run(self, home: Path, *arguments: str) -> None:
        network = {name: value for name, value in self.environment.items() if name.upper() in _NETWORK_VARIABLES}
        settings = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in self.settings.items()}
        ours = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        environment = runner_environment(self.environment, home) | _without_passwords(network) | settings | ours
        with tempfile.TemporaryFile() as log:  # a file rather than a pipe: nothing it writes makes it wait
            process = subprocess.Popen(
                [self.python, "-P", "-m", "pip", *arguments, "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                env=environment,
                start_new_session=True,
            )
            try:
                code = process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                raise OverlayError(f"pip was not done after {self.seconds:g} s") from None
            finally:
                stop_session(process)
            if code:
                log.seek(0)
                raise OverlayError(_reason(log.read().decode(errors="replace"), self.python))


def _resolved(report: Path) -> dict[str, str]:
    """What pip would install, name to version."""
    try:
        content: Any = json.loads(report.read_text())
        found = [each["metadata"] for each in content["install"]]
        return {canonicalize_name(each["name"]): each["version"] for each in found}
    except (OSError, ValueError, KeyError, TypeError):
        raise OverlayError("pip did not say what it would install; version 23 or newer is needed") from None


def _reason(log: str, python: str) -> str:
    """Why pip failed, in one line."""
    if "No module named pip" in log:
        return f"{python} has no pip; install it: {python} -m ensurepip"
    errors = [line.removeprefix("ERROR:").strip() for line in log.splitlines() if line.startswith("ERROR:")]
    text = " ".join((errors or log.strip().splitlines()[-1:] or ["it gave no reason"])[0].split())
    silent = any(word in log for word in ("Retrying (", "ConnectionError", "timed out", "Max retries exceeded"))
    refused = re.search(r"\b(401|403)\b.*(Client Error|Unauthorized|Forbidden)", log)
    if silent:
        text = f"the package index did not answer ({text})"
    elif refused:
        text = f"the package index refused, and passwords in its address are not handed on ({text})"
    text = _FROM_VERSIONS.sub(lambda found: f"(newest: {_newest(found[1])})", _CREDENTIALS.sub("", text))
    return text if len(text) <= 300 else f"{text[:300]}..."


def _newest(listed: str) -> str:
    """The two newest of the versions that pip lists, previews only where there is nothing else."""
    versions = []
    for text in listed.split(", "):
        try:
            versions.append(Version(text))
        except InvalidVersion:  # among them "none"
            continue
    finals = [version for version in versions if not version.is_prerelease]
    return ", ".join(map(str, sorted(finals or versions)[-2:])) or "none"


def _pip_settings(python: str, environment: Mapping[str, str]) -> dict[str, str]:
    """pip's own view of the user's settings, from variables and files, as far as they are handed on."""
    command = [python, "-P", "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=60, check=True)
    except subprocess.CalledProcessError as error:
        raise OverlayError(_reason(error.stderr, python)) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OverlayError(f"pip's settings cannot be read: {error}") from None
    return _without_passwords(_handed_on(done.stdout.splitlines()))


def _handed_on(lines: Iterable[str]) -> dict[str, str]:
    """Settings out of lines such as ``global.index-url='https://host/simple'``; variables go before files."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in lines:
        key, _, value = line.partition("=")
        section, _, name = key.strip().rpartition(".")
        if section in found and name in _PIP_SETTINGS:
            try:
                found[section][name] = " ".join(str(ast.literal_eval(value)).split())
            except (ValueError, SyntaxError):
                continue
    return found["global"] | found["install"] | found[":env:"]


def _without_passwords(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: _CREDENTIALS.sub("", value) for name, value in settings.items()}
