"""An overlay has what differs and nothing else, from wheels that the user's own settings name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hfexport_bot.changes.requirements import Difference
from hfexport_bot.execution import overlay
from hfexport_bot.execution.overlay import Overlay, OverlayError, installed_versions, make_overlay
from tests.hfexport_bot.execution.wheels import write_wheel

INSTALLED = installed_versions()


def wants(requirement: str) -> Difference:
    name, _, version = requirement.partition("==")
    return Difference(name, f"=={version}" if version else "", INSTALLED.get(name), "requirements.lock")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user whose pip looks only into one folder of wheels, and who has a token."""
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "hfx_ant", "1.0", requires=("hfx_bee>=2", "click"))
    write_wheel(wheels, "hfx_bee", "2.0")
    write_wheel(wheels, "hfx_bee", "3.0")
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HF_TOKEN": "secret",
    }


def make(environment: Mapping[str, str], *requirements: str) -> Overlay:
    return make_overlay([wants(each) for each in requirements], INSTALLED, environment=environment)


@pytest.mark.process
def test_an_overlay_has_the_package_and_what_it_lacks(environment: dict[str, str]) -> None:
    made = make(environment, "hfx-ant==1.0")
    assert made.packages == {"hfx-ant": "1.0", "hfx-bee": "3.0"}  # click is installed
    modules = sorted(each.name for each in made.folder.iterdir() if each.suffix == ".py")
    assert modules == ["hfx_ant.py", "hfx_bee.py"]
    assert made.folder.parent == Path(environment["XDG_CACHE_HOME"]) / "hfexport-bot" / "overlays"
    found = subprocess.run(
        [sys.executable, "-c", "import hfx_bee; print(hfx_bee.__version__)"],
        env={"PYTHONPATH": str(made.folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "3.0\n"


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """No pip: what it would have been asked to install, each time it would have been."""
    asked: list[list[str]] = []

    def fill(_: object, folder: Path, requirements: list[str]) -> None:
        asked.append(requirements)
        (folder / "hfexport-overlay.json").write_text('{"packages": {"a": "1"}}')

    monkeypatch.setattr(overlay._Pip, "fill", fill)
    monkeypatch.setattr(overlay, "_pip_settings", lambda python, environment: {"index-url": environment["INDEX"]})
    return asked


def test_it_is_found_again_by_all_that_it_depends_on(tmp_path: Path, filled: list[list[str]]) -> None:
    user = {"XDG_CACHE_HOME": str(tmp_path), "INDEX": "x"}
    both = (wants("b==1"), wants("a==1"))
    first = make_overlay(both, {"c": "1"}, environment=user)
    assert make_overlay(both[::-1], {"c": "1"}, environment=user) == first == Overlay(first.folder, {"a": "1"})
    assert filled == [["a==1", "b==1"]]
    others = (
        make_overlay(both[:1], {"c": "1"}, environment=user),
        make_overlay(both, {"c": "2"}, environment=user),
        make_overlay(both, {"c": "1"}, environment=user | {"INDEX": "y"}),
    )
    assert len({first.folder, *(each.folder for each in others)}) == 4


def test_a_damaged_overlay_and_a_cache_that_is_none_are_named(tmp_path: Path, filled: list[list[str]]) -> None:
    user = {"XDG_CACHE_HOME": str(tmp_path), "INDEX": "x"}
    made = make_overlay([wants("a==1")], {}, environment=user)
    (made.folder / "hfexport-overlay.json").write_text("{")
    with pytest.raises(OverlayError, match=r"is damaged; delete that folder$"):
        make_overlay([wants("a==1")], {}, environment=user)
    (tmp_path / "file").touch()
    with pytest.raises(OverlayError, match=r"^the cache of environments cannot be used: "):
        make_overlay([wants("a==1")], {}, environment=user | {"XDG_CACHE_HOME": str(tmp_path / "file")})


@pytest.mark.process
def test_a_package_without_a_wheel_is_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "wheels" / "hfx_cow-1.0.tar.gz").write_bytes(b"runs code to build")
    with pytest.raises(OverlayError) as caught:
        make(environment, "hfx-cow==1.0")
    assert str(caught.value) == "Could not find a version that satisfies the requirement hfx-cow==1.0 (newest: none)"
    left = [each.name for each in (tmp_path / "cache" / "hfexport-bot" / "overlays").iterdir()]
    assert all(name.endswith(".lock") for name in left)


@pytest.mark.process
def test_everything_that_is_not_to_be_had_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(OverlayError) as caught:
        make(environment, "hfx-dog==9.0", "hfx-cow==8.0")
    assert [each.split()[9] for each in str(caught.value).split("; ")] == ["hfx-cow==8.0", "hfx-dog==9.0"]


@pytest.mark.process
def test_an_index_that_does_not_answer_is_said_so(environment: dict[str, str]) -> None:
    del environment["PIP_NO_INDEX"]
    silent = {"PIP_INDEX_URL": "http://me:secret@127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_TIMEOUT": "1"}
    with pytest.raises(OverlayError) as caught:
        make(environment | silent, "hfx-dog==1.0")
    assert str(caught.value).startswith("the package index did not answer (")
    assert "secret" not in str(caught.value)


@pytest.mark.process
def test_pip_that_is_missing_or_late_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    with pytest.raises(OverlayError, match=r"has no pip; install it: .*python -m ensurepip$"):
        make_overlay([wants("hfx-bee==2.0")], INSTALLED, environment=environment, python=str(python))
    python.write_text('#!/bin/sh\ncase "$*" in *config*) exit 0;; esac\nsleep 60\n')
    with pytest.raises(OverlayError, match=r"^pip was not done after 0\.2 s$"):
        make_overlay([wants("hfx-bee==2.0")], INSTALLED, environment=environment, python=str(python), seconds=0.2)


@pytest.mark.process
def test_pip_sees_no_token_and_no_password(environment: dict[str, str], tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\ncase "$*" in *config*) echo "global.index-url=\'https://me:secret@host/simple\'"; exit 0;; esac\n'
        f"env > {seen}\nexit 1\n"
    )
    python.chmod(0o755)
    proxies = {"HTTPS_PROXY": "http://me:secret@proxy:1", "NETRC": "/secret", "PIP_CLIENT_CERT": "/secret"}
    with pytest.raises(OverlayError, match="it gave no reason"):
        make_overlay([wants("hfx-bee==2.0")], INSTALLED, environment=environment | proxies, python=str(python))
    text = seen.read_text()
    assert "secret" not in text
    assert "PIP_INDEX_URL=https://host/simple\n" in text
    assert "HTTPS_PROXY=http://proxy:1\n" in text
    assert f"PIP_CONFIG_FILE={os.devnull}\n" in text
    assert f"HOME={environment['HOME']}\n" not in text


def test_variables_go_before_files_and_only_what_finds_packages_is_handed_on() -> None:
    lines = [
        "global.index-url='https://file/simple'",
        "global.find-links='\\n/a\\n/b'",
        "install.index-url='https://install/simple'",
        ":env:.no-index='1'",
        "global.client-cert='/key'",
        "download.index-url='https://other/simple'",
        "global.cert=oops",
        "global.target='/somewhere'",
    ]
    assert overlay._handed_on(lines) == {
        "index-url": "https://install/simple",
        "find-links": "/a /b",
        "no-index": "1",
    }
    assert overlay._handed_on([*lines, ":env:.index-url='x'"])["index-url"] == "x"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("WARNING: x\nERROR: one\nERROR: two", "one"),
        ("", "it gave no reason"),
        ("Traceback\nOSError: full", "OSError: full"),
        (
            "WARNING: 401 Client Error: Unauthorized for url: https://host/simple/a/\nERROR: No matching",
            "the package index refused, and passwords in its address are not handed on (No matching)",
        ),
        ("ERROR: No a==9 (from versions: 1.0, 2.0, 3.0)", "No a==9 (newest: 2.0, 3.0)"),
        ("ERROR: No a==9 (from versions: 1.0, 2.0, 3.0rc1, 3.0.dev2, 4.0a1)", "No a==9 (newest: 1.0, 2.0)"),
        ("ERROR: No a==9 (from versions: 1.0, 3.0rc1)", "No a==9 (newest: 1.0)"),
        ("ERROR: No a==9 (from versions: 3.0a1, 3.0rc1)", "No a==9 (newest: 3.0a1, 3.0rc1)"),
        ("ERROR: No a==9 (from versions: none)", "No a==9 (newest: none)"),
        ("ERROR: " + "x" * 400, "x" * 300 + "..."),
    ],
)
def test_the_reason_is_pips_first_error(log: str, reason: str) -> None:
    assert overlay._reason(log, "python") == reason
