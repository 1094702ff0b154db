from __future__ import annotations

from pathlib import Path
from typing import Any

from hfexport_bot.cli import main
from hfexport_bot.reporting.writing import write_reports
from hfexport_bot.schema import Backend, CaseId, CaseReport, Outcome, OutcomeKind, Report, Revision, VerdictKind


def sweep(out: Path, name: str, outcome: Outcome) -> str:
    """The path of a report with one case."""
    case = CaseReport(
        id=CaseId(model="tiny", class_name=name, backend=Backend.ONNX),
        verdict=VerdictKind.NO_BASELINE,
        outcome=outcome.kind,
        head=outcome,
    )
    report = Report(command="check", head=Revision(name="5.24.0"), cases=(case,))
    return str(write_reports(report, out / name)["report.json"])


def test_issues_that_no_report_met_are_listed(tmp_path: Path, capsys: Any) -> None:
    message = "argument 'is_causal' must be bool, not SymBool"
    causal = sweep(tmp_path, "A", Outcome(kind=OutcomeKind.ERROR, stage="trace", message=message))
    passing = Outcome(kind=OutcomeKind.PASS, workarounds={"dynamo/model_patches/patch_eager_experts": 4})
    experts = sweep(tmp_path, "B", passing)

    assert main(["upstream", "stale", causal]) == 0
    said = capsys.readouterr().out
    assert "sdpa-is-causal-symbool" not in said
    assert "experts-hit" in said
    assert main(["upstream", "stale", causal, experts]) == 0
    said = capsys.readouterr().out
    assert "experts-hit" not in said
    assert "sdpa-unbacked-batch" in said


def test_what_is_no_report_is_two(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert main(["upstream", "stale", str(tmp_path / "x.json")]) == 2
    assert "is no report.json" in capsys.readouterr().err
    assert main(["upstream", "stale", str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main(["upstream", "stale"]) == 2
