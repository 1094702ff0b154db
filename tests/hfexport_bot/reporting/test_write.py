from __future__ import annotations

from pathlib import Path

import pytest

from hfexport_bot.reporting import writing
from hfexport_bot.reporting.writing import write_reports
from hfexport_bot.schema import NotRun, Report, Revision

NAMES = ["junit.xml", "report.json", "report.md"]


def test_all_files_are_written_and_the_json_reads_back(run_report: Report, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    written = write_reports(run_report, out)
    assert written == {name: out / name for name in NAMES}
    assert sorted(path.name for path in out.iterdir()) == NAMES
    assert Report.model_validate_json(written["report.json"].read_text(encoding="utf-8")) == run_report
    assert written["report.md"].read_text(encoding="utf-8").startswith("## Export check: 4 regressions")
    assert written["report.md"].stat().st_mode & 0o777 == 0o644


def test_a_file_is_replaced_whole_or_left_alone(
    run_report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reports(run_report, tmp_path)
    before = (tmp_path / "report.json").read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(writing.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_reports(run_report.model_copy(update={"notes": ("other",)}), tmp_path)
    assert (tmp_path / "report.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES


def test_a_path_that_is_no_utf_8_does_not_break_the_report(tmp_path: Path) -> None:
    item = NotRun(kind="file", name="modeling_\udce9.py", reason="odd name")
    report = Report(command="run", head=Revision(name="h\udce9"), not_run=(item,))
    written = write_reports(report, tmp_path)
    assert "modeling_?.py" in written["report.md"].read_text(encoding="utf-8")
    assert '"h?"' in written["report.json"].read_text(encoding="utf-8")
