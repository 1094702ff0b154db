"""Outputs and the job's page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hfexport_bot.errors import RunError
from hfexport_bot.github.outputs import append_outputs, append_summary, full_summary, values_of
from hfexport_bot.schema import VerdictKind
from tests.hfexport_bot.github.reports import broken, case, clean, red, report


def read_outputs(text: str) -> dict[str, str]:
    """What GitHub makes of the file."""
    found, lines = {}, text.splitlines()
    while lines:
        name, _, end = lines.pop(0).partition("<<")
        assert end
        value = []
        while (line := lines.pop(0)) != end:
            value.append(line)
        found[name] = "\n".join(value)
    return found


def test_outputs_are_appended_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "out"
    append_outputs(str(file), {"a": "1", "b": "two\nlines"})
    append_outputs(str(file), {"c": ""})
    assert read_outputs(file.read_text()) == {"a": "1", "b": "two\nlines", "c": ""}


def test_no_text_sets_another_output(tmp_path: Path) -> None:
    file = tmp_path / "out"
    for _ in range(2):
        append_outputs(str(file), {"a": "x\nend-\nconclusion<<EOF\nsuccess\nEOF"})
    assert set(read_outputs(file.read_text())) == {"a"}
    ends = re.findall("<<(end-[0-9a-f]{32})", file.read_text())
    assert len(set(ends)) == 2


def test_without_the_files_nothing_is_written() -> None:
    append_outputs("", {"a": "1"})
    append_summary("", "text")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"GITHUB_STEP_SUMMARY: .* cannot be written: Is a directory"):
        append_summary(str(tmp_path), "text")


def test_the_values_of_a_report() -> None:
    values = values_of(report(*red(2).cases, case("Known", VerdictKind.KNOWN, broken(), broken())))
    counts = json.loads(values["counts"])
    assert set(counts) == {each.value for each in VerdictKind}
    assert {key: count for key, count in counts.items() if count} == {"regression": 2, "known": 1}
    assert json.loads(values["regressions"])[0] == {
        "id": "tiny/Broken0/onnx/dynamic/forward",
        "outcome": "error",
        "stage": "trace",
        "message": "Broken0: could not guard on Eq(u0, 1)",
    }
    assert json.loads(values_of(clean())["regressions"]) == []


def test_many_regressions_are_listed_to_a_limit() -> None:
    values = values_of(red(1_000))
    assert json.loads(values["counts"])["regression"] == 1_000
    assert len(json.loads(values["regressions"])) == 300
    assert len(values["regressions"]) < 100_000


def test_the_summary_is_as_long_as_github_takes() -> None:
    long = report(
        *(case(f"Broken{n}", VerdictKind.REGRESSION, broken(message=f"{n} " + "🙂" * 1400)) for n in range(400))
    )
    size = len(full_summary(long, 200_000).encode())
    assert 150_000 < size <= 200_000
    assert full_summary(clean()).startswith("## Export check: 0 regressions")
