"""Changes and repositories that are odd or broken, each through the command line: an answer or one clear error."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.cli import main

MODEL = "class {0}(PreTrainedModel):\n    def forward(self): return {1}\n"
GOOD = MODEL.format("GoodModel", 1)


class Found:
    """What ``detect --json`` printed."""

    def __init__(self, text: str) -> None:
        content: dict[str, list[dict[str, str]]] = json.loads(text)
        self.classes = [each["class"] for each in content["affected"]]
        self.not_run = {each["name"]: each["reason"] for each in content["not_run"]}
        self.notes = content["notes"]


@pytest.fixture
def detect(repository: Any, capsys: pytest.CaptureFixture[str]) -> Callable[..., Found]:
    """Commit two versions of a repository and detect what the second one affects."""

    def work(base: Mapping[str, Any], head: Mapping[str, Any]) -> Found:
        repository.commit(base)
        repository.commit(head)
        assert main(["detect", "--repo", str(repository.path), "--base", "HEAD~1"]) == 0  # the table
        capsys.readouterr()
        assert main(["detect", "--repo", str(repository.path), "--base", "HEAD~1", "--json"]) == 0
        return Found(capsys.readouterr().out)

    return work


def refused(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> str:
    """The one line that ``detect`` refuses with."""
    assert main(["detect", "--repo", str(path), "--base", "HEAD", *more]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


BROKEN = "class Broken(:\n"


@pytest.mark.parametrize(("old", "new"), [(GOOD, BROKEN), (BROKEN, GOOD)])
def test_no_python_on_one_side_runs_the_classes_of_the_other(detect: Callable[..., Found], old: str, new: str) -> None:
    assert detect({"modeling_a.py": old}, {"modeling_a.py": new}).classes == ["GoodModel"]


def test_no_python_on_both_sides_is_told_with_its_line(detect: Callable[..., Found]) -> None:
    found = detect({"modeling_a.py": BROKEN}, {"modeling_a.py": BROKEN + "#"})
    assert found.classes == []
    assert found.not_run["modeling_a.py"].startswith("syntax error on both sides, line 1")


def test_a_deleted_file_runs_on_base_alone(detect: Callable[..., Found]) -> None:
    assert detect({"modeling_a.py": GOOD}, {"modeling_a.py": None}).classes == ["GoodModel"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x00\xff\xfe\x00" * 99, "syntax error, line"),
        (b"x = [" + b"1," * (5 << 20 >> 1) + b"]", "larger than 4 MiB"),
        (b"(" * 5_000, "syntax error, line"),
    ],
)
def test_what_is_no_code_is_told(detect: Callable[..., Found], content: bytes, reason: str) -> None:
    found = detect({"a.txt": "x"}, {"modeling_a.py": content})
    assert found.classes == []
    assert reason in found.not_run["modeling_a.py"]


def test_a_cycle_of_imports_ends(detect: Callable[..., Found]) -> None:
    files = {
        "a.py": "from b import *\nfrom b import g\ndef f(): return g()\n",
        "b.py": "from a import *\nfrom a import f\ndef g(): return f()\n",
        "modeling_a.py": "from a import f\nclass GoodModel(PreTrainedModel):\n    def forward(self): return f()\n",
    }
    assert detect(files, {"b.py": files["b.py"].replace("f()", "f() + 1")}).classes == ["GoodModel"]


def test_a_repository_without_models_and_a_change_of_nothing(detect: Callable[..., Found]) -> None:
    found = detect({"a.py": "x = 1", "b.txt": "x"}, {"a.py": "x = 2", "b.txt": "y"})
    assert found.classes == []
    assert found.not_run == {"a.py:x": "not on an exported path", "b.txt": "no model reads it"}
    empty = detect({}, {})
    assert (empty.classes, empty.not_run) == ([], {})
    assert found.notes == empty.notes == ["no model class to try: no file is called modeling_*.py"]


def test_base_that_is_head_is_told(repository: Any, capsys: pytest.CaptureFixture[str]) -> None:
    repository.commit({"modeling_a.py": GOOD})
    assert main(["detect", "--repo", str(repository.path), "--base", "HEAD"]) == 0
    assert "note: HEAD has nothing that HEAD has not" in " ".join(capsys.readouterr().out.split())


def test_a_settings_file_with_an_unknown_key(repository: Any, capsys: pytest.CaptureFixture[str]) -> None:
    repository.commit({".github/hfexport.yml": "max-model: 3\n"})
    error = refused(capsys, repository.path)
    assert "unknown key 'max-model'; did you mean 'max-models'?" in error


def test_no_commit_no_repository_no_folder(repository: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no commit on its branch yet" in refused(capsys, repository.path)
    plain = tmp_path / "plain"
    plain.mkdir()
    error = " ".join(refused(capsys, plain).split())
    assert "is not in a git repository (fatal: not a git repository" in error
    assert "is not a folder" in refused(capsys, tmp_path / "none")


def test_a_file_list_that_is_none(repository: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository.commit({"modeling_a.py": GOOD})
    (tmp_path / "files.json").write_text('{"message": "Not Found"}')
    assert "is no list of files" in refused(capsys, repository.path, "--files", str(tmp_path / "files.json"))


def test_a_file_list_in_place_of_gits(repository: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository.commit({"modeling_a.py": GOOD, "modeling_b.py": MODEL.format("OtherModel", 1)})
    repository.commit({"modeling_a.py": MODEL.format("GoodModel", 2), "modeling_b.py": MODEL.format("OtherModel", 2)})
    (tmp_path / "files.json").write_text('[{"filename": "modeling_b.py", "status": "modified"}]')
    files = ["--files", str(tmp_path / "files.json")]
    assert main(["detect", "--repo", str(repository.path), "--base", "HEAD~1", "--json", *files]) == 0
    assert Found(capsys.readouterr().out).classes == ["OtherModel"]


def test_a_submodule_is_not_looked_into(
    make_repository: Callable[[str], Any], repository: Any, detect: Callable[..., Found]
) -> None:
    other = make_repository("other")
    other.commit({"modeling_x.py": GOOD})
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.path), "modeling_sub.py")
    found = detect({"a.txt": "x"}, {})
    assert found.classes == []
    repository.git("rm", "-q", "--cached", "modeling_sub.py")
    repository.git("commit", "-q", "-m", "out")
    assert detect({}, {"a.txt": "y"}).classes == []


def test_a_submodule_that_moved_on_is_told(
    make_repository: Callable[[str], Any], repository: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_repository("other")
    first, second = other.commit({"modeling_x.py": GOOD}), other.commit({"modeling_x.py": GOOD * 2})
    for sha in (first, second):
        repository.git("update-index", "--add", "--cacheinfo", f"160000,{sha},modeling_sub.py")
        repository.git("commit", "-q", "-m", "submodule")
    assert main(["detect", "--repo", str(repository.path), "--base", "HEAD~1", "--json"]) == 0
    found = Found(capsys.readouterr().out)
    assert found.not_run == {"modeling_sub.py": "a submodule, or a link that leads to no file of the repository"}


def test_a_linked_modeling_file_is_judged_by_the_file_it_leads_to(
    repository: Any, detect: Callable[..., Found]
) -> None:
    (repository.path / "modeling_a.py").symlink_to("shared.py")
    (repository.path / "modeling_gone.py").symlink_to("nowhere.py")
    found = detect({"shared.py": GOOD}, {"shared.py": MODEL.format("GoodModel", 2)})
    assert found.classes == ["GoodModel"]


def test_names_that_are_no_utf_8(repository: Any, detect: Callable[..., Found]) -> None:
    name = os.fsdecode(b"modeling_\xff.py")
    text = os.fsdecode(b"a\xfe.txt")
    found = detect({name: GOOD, text: "x"}, {name: MODEL.format("GoodModel", 2), text: "y"})
    assert found.classes == []
    assert "which a case id can't hold" in found.not_run["modeling_?.py"]
    assert found.not_run["a?.txt"] == "no model reads it"
