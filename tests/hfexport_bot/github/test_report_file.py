"""What is taken for a report from the untrusted stage, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hfexport_bot.errors import UsageError
from hfexport_bot.github import report_file
from hfexport_bot.github.report_file import read_report
from tests.hfexport_bot.github.reports import red


def write(folder: Path, text: str) -> Path:
    (folder / "report.json").write_text(text)
    return folder


def test_a_report_is_read_from_its_file_or_folder(tmp_path: Path) -> None:
    write(tmp_path, red(3).model_dump_json())
    assert read_report(tmp_path) == read_report(tmp_path / "report.json") == red(3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Invalid JSON"),
        ("{" * 100_000, "Invalid JSON"),
        (red().model_dump_json()[:-9], "Invalid JSON"),
        ("[]", "Input should be an object"),
        ('{"command": "run", "head": {"name": "x"}, "schema_version": 99}', "schema_version: Input should be 2"),
        ('{"command": "run", "head": {"name": "x"}, "extra": 1}', "extra: Extra inputs are not permitted"),
        ('{"command": "run", "head": {"name": "x"}, "seconds": Infinity}', "seconds: Input should be a finite number"),
        ('{"command": "publish", "head": {"name": "x"}}', "command: Input should be 'run', 'check' or 'sweep'"),
    ],
)
def test_what_is_no_report(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read_report(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_report_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_file, "MAX_REPORT_BYTES", 1 << 20)
    write(tmp_path, red().model_dump_json() + " " * (1 << 20))
    with pytest.raises(UsageError, match=r"report.json is longer than 1 MiB and was not read"):
        read_report(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "report.json", tmp_path / "no" / "such"):
        with pytest.raises(UsageError, match=r"there is no .*: the run ended before it could write one"):
            read_report(path)


def test_no_link_is_followed_and_no_pipe_waited_for(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(red().model_dump_json())
    link, pipe = tmp_path / "a", tmp_path / "b"
    link.mkdir()
    pipe.mkdir()
    (link / "report.json").symlink_to(secret)
    os.mkfifo(pipe / "report.json")
    with pytest.raises(UsageError, match=r"report.json cannot be read: Too many levels of symbolic links"):
        read_report(link)
    with pytest.raises(UsageError, match=r"report.json is no file"):
        read_report(pipe)
