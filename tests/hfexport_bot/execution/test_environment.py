"""A runner sees a short list of variables, and its home is gone afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hfexport_bot.execution.environment import private_home, runner_environment


def test_only_listed_variables_pass() -> None:
    ours = {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "HOME": "/root",
        "GITHUB_TOKEN": "secret",
        "GITHUB_OUTPUT": "/out",
        "ACTIONS_RUNTIME_TOKEN": "secret",
        "HF_TOKEN": "secret",
        "INPUT_KEY": "secret",
        "PYTHONPATH": "/somewhere",
    }
    theirs = runner_environment(ours, Path("/private"))
    assert {name: theirs[name] for name in ("PATH", "LANG", "LC_ALL", "HOME", "TMPDIR", "HF_HOME")} == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "HOME": "/private",
        "TMPDIR": "/private/tmp",
        "HF_HOME": "/private/huggingface",
    }
    assert theirs["HF_HUB_OFFLINE"] == theirs["TRANSFORMERS_OFFLINE"] == theirs["OMP_NUM_THREADS"] == "1"
    assert theirs["CUDA_VISIBLE_DEVICES"] == ""
    assert "secret" not in theirs.values()
    assert not {"GITHUB_OUTPUT", "PYTHONPATH", "INPUT_KEY"} & set(theirs)


def test_the_home_goes_and_what_it_links_to_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (outside / "kept").touch() if os.access(outside, os.W_OK) else None
    with private_home() as home:
        assert home.parent == tmp_path
        (home / "tmp" / "link").symlink_to(outside)
        (home / "locked" / "inner").mkdir(parents=True)
        (home / "locked" / "inner" / "file").touch()
        (home / "locked" / "inner").chmod(0)
        (home / "locked").chmod(0)
    assert list(tmp_path.iterdir()) == [outside]
    assert outside.stat().st_mode & 0o777 == 0o500


def test_the_home_goes_when_the_work_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), private_home():
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
