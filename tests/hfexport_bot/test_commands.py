"""Environments and checkpoints on their way from requirements and settings to the runners and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.changes.requirements import Difference
from hfexport_bot.cli import main
from hfexport_bot.commands.census import survey_models
from hfexport_bot.commands.check import check_models
from hfexport_bot.commands.compare import compare_revisions
from hfexport_bot.execution.client import RunResult, _key
from hfexport_bot.execution.hub import Checkpoint
from hfexport_bot.execution.overlay import Overlay, OverlayError
from hfexport_bot.preparation import Surroundings
from hfexport_bot.reporting.summary import headline
from hfexport_bot.schema import CaseRequest, Outcome, OutcomeKind, Report, RunnerSetup, Source, Variant
from hfexport_bot.settings import Overrides

MODEL = "class AModel(PreTrainedModel):\n    def forward(self): return {0}\n"
SETTINGS = ".github/hfexport.yml"


class Outside:
    """Stands in for the runner, pip and the hub, and keeps what they were asked for."""

    def __init__(self) -> None:
        self.setups: dict[str, RunnerSetup] = {}
        self.overlays: list[list[str]] = []
        self.fetched: list[str] = []
        self.around = Surroundings(
            open_runners=lambda: nullcontext(self.run_cases),
            list_workarounds=tuple,
            watch=lambda total, what: nullcontext(None),
            today=date(2026, 11, 30),
            logs=Path("/logs"),
            make_overlay=self.make_overlay,
            fetch_checkpoint=self.fetch,
        )

    def run_cases(self, setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        self.setups[Path(setup.log_dir or "").name] = setup
        return RunResult({request.id: Outcome(kind=OutcomeKind.PASS) for request in requests})

    def make_overlay(self, differences: Sequence[Difference], installed: Mapping[str, str]) -> Overlay:
        self.overlays.append([each.requirement for each in differences])
        return Overlay(Path(f"/overlays/{len(self.overlays)}"), {each.name: "1.0" for each in differences})

    def fetch(self, name: str) -> Checkpoint:
        self.fetched.append(name)
        return Checkpoint(name, "0123456789ab" * 3, Path("/checkpoints") / name)


@pytest.fixture
def change(repository: Any) -> Callable[..., Path]:
    """Commits a change of a model, with other files on base and on head, and returns the repository."""

    def commit(base: Mapping[str, str], head: Mapping[str, str]) -> Path:
        repository.commit({"modeling_a.py": MODEL.format(1), **base})
        repository.git("checkout", "-q", "-b", "topic")
        repository.commit({"modeling_a.py": MODEL.format(2), **head})
        path: Path = repository.path
        return path

    return commit


def test_only_the_side_that_asks_gets_an_overlay(change: Callable[..., Path]) -> None:
    repo, outside = change({}, {"requirements.txt": "hfx-ant==1.0"}), Outside()
    report = compare_revisions(repo, "main", "HEAD", Overrides(install=True), outside.around).report
    assert outside.overlays == [["hfx-ant==1.0"]]
    assert outside.setups["base"].search_path == ()
    assert outside.setups["head"].search_path == ("/overlays/1",)
    assert report.notes == ("head ran with hfx-ant 1.0",)


def test_installing_is_bases_decision_or_the_command_lines(change: Callable[..., Path]) -> None:
    wanted = {"requirements.txt": "hfx-ant==1.0"}
    repo, outside = change({SETTINGS: "install: true"}, {**wanted, SETTINGS: "install: false"}), Outside()
    compare_revisions(repo, "main", "HEAD", Overrides(), outside.around)
    assert outside.overlays == [["hfx-ant==1.0"]]
    outside = Outside()
    report = compare_revisions(repo, "HEAD~1", "HEAD", Overrides(), outside.around).report
    assert len(outside.overlays) == 1
    report = check_models(("modeling_a.py:AModel",), repo, Overrides(), outside.around).report
    assert len(outside.overlays) == 1
    assert report.notes[0].startswith("installed packages differ from the requirements of the revision (to run with")
    census = survey_models((), repo, Overrides(), outside.around)
    assert census.notes == report.notes
    assert survey_models((), repo, Overrides(install=True), outside.around).notes == (
        "the revision ran with hfx-ant 1.0",
    )


def test_checkpoints_of_planned_classes_are_fetched_where_base_lets_them(change: Callable[..., Path]) -> None:
    named = "checkpoints: {AModel: a/x, ZModel: z/z}\n"
    repo, outside = (
        change({SETTINGS: named + "allow-hub: true"}, {SETTINGS: "checkpoints: {AModel: evil/x}"}),
        Outside(),
    )
    report = compare_revisions(repo, "main", "HEAD", Overrides(), outside.around).report
    assert outside.fetched == ["a/x"]
    assert outside.setups["base"].checkpoints == outside.setups["head"].checkpoints == {"AModel": "/checkpoints/a/x"}
    assert "checkpoint a/x at 0123456789ab" in report.notes
    assert (
        report.notes[-1]
        == "`checkpoints:` names what is no model class here: ZModel; did you mean AModel or modeling_a?"
    )


@pytest.mark.parametrize("overrides", [Overrides(), Overrides(sources=(Source.SYNTHESISED,))])
def test_nothing_is_fetched_without_leave_or_need(change: Callable[..., Path], overrides: Overrides) -> None:
    leave = "allow-hub: true\n" if overrides.sources else ""
    repo, outside = change({SETTINGS: leave + "checkpoints: {AModel: a/x}"}, {}), Outside()
    compare_revisions(repo, "main", "HEAD", overrides, outside.around)
    assert outside.fetched == []
    problem = "the settings name a/x for it, and fetch it with `allow-hub: true`"
    assert outside.setups["head"].no_checkpoints == ({} if overrides.sources else {"AModel": problem})


@pytest.mark.parametrize("command", ["run", "check", "cases"])
def test_what_was_to_be_installed_and_cannot_be_fails_the_run(
    command: str,
    change: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(python: str, environment: Mapping[str, str]) -> dict[str, str]:
        raise OverlayError("there is no pip")

    monkeypatch.setattr("hfexport_bot.execution.overlay._pip_settings", fail)
    repo, outside = change({}, {"requirements.txt": "hfx-ant==1.0"}), Outside()
    arguments = {
        "run": ["--repo", str(repo), "--base", "main", "--out", str(tmp_path / "out")],
        "check": ["--tree", str(repo), "a", "--out", str(tmp_path / "out")],
        "cases": ["--tree", str(repo)],
    }
    assert main([command, "--install", *arguments[command]], run_cases=outside.run_cases) == 3
    assert outside.setups == {}
    printed = capsys.readouterr()
    whose = "head" if command == "run" else "the revision"
    assert "environment: hfx-ant==1.0\n" in printed.err
    assert f"the environment of {whose} could not be made, so nothing was run: there is no pip; ask for" in printed.err
    if command == "run":
        report = Report.model_validate_json((tmp_path / "out" / "report.json").read_text())
        assert (report.cases, headline(report)) == ((), "the run failed · safe to merge: unknown")
        assert report.failure in (tmp_path / "out" / "report.md").read_text()


def test_variants_run_on_the_runners_of_the_first_run(change: Callable[..., Path]) -> None:
    """To get warm takes longer than most cases."""
    outside, asked, opened = Outside(), [], []

    def run_cases(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        side = Path(setup.log_dir or "").name
        asked.append((side, _key(setup), [request.survey for request in requests]))
        found = {}
        for request in requests:
            lines = (3,) if request.id.variant is Variant.CACHE else ()
            found[request.id] = Outcome(kind=OutcomeKind.PASS, executed={"modeling_a.py": lines})
        return RunResult(found)

    def open_runners() -> nullcontext[Any]:
        opened.append(run_cases)
        return nullcontext(run_cases)

    repo = change({}, {"modeling_a.py": MODEL.replace("return", "\n        return")})
    around = replace(outside.around, open_runners=open_runners)
    report = compare_revisions(repo, "main", "HEAD", Overrides(), around).report
    assert any(case.id.variant is Variant.CACHE for case in report.cases)
    assert [side for side, _, _ in asked] == ["head", "base", "head", "head", "base"]
    assert [any(surveyed) for _, _, surveyed in asked] == [False, False, True, False, False]
    assert (len(opened), len({key for _, key, _ in asked})) == (1, 2), "a runner a side, for everything"


def test_an_entry_for_failures_that_comes_or_goes_without_a_case_is_told(repository: Any, tmp_path: Path) -> None:
    tables = "tests/exporters/test_exporters.py"
    repository.commit(
        {
            "src/transformers/models/a/modeling_a.py": MODEL.format(1),
            "src/transformers/exporters/__init__.py": "",
            tables: 'EXPORT_SKIPS = {"all": {"AModel": "no", "GoneModel": "x"}}',
            SETTINGS: "backends: [onnx]\naccepted: [{id: 'zoo/*', reason: later}, {id: 'a/*', reason: kept}]",
        }
    )
    settings = "backends: [onnx]\naccepted: [{id: 'b/*', reason: new}, {id: 'a/*', reason: kept}]"
    repository.commit({tables: 'EXPORT_SKIPS = {"all": {}}', SETTINGS: settings})
    report = compare_revisions(repository.path, "HEAD~1", "HEAD", Overrides(), Outside().around).report
    assert {each.entry: each.change for each in report.untried} == {
        "accepted (zoo/*)": "removed",
        "accepted (b/*)": "added",
        'EXPORT_SKIPS["all"]["GoneModel"]': "removed",
    }
    assert [note for note in report.notes if "no class" in note] == [
        "the accepted finding `b/*` is for no class of either side: ids are like `a/AModel/onnx/dynamic/forward`"
    ]
    (case,) = (case for case in report.cases if case.id.engine.value == "repo")
    assert case.expected is not None
    assert (case.expected.entry, case.expected.change) == ("accepted (a/*)", "in force")


@pytest.mark.parametrize("head_fails_at", ["trace", "source", None])
def test_what_base_comes_to_once_its_files_were_changed_hides_no_regression(
    change: Callable[..., Path], head_fails_at: str | None
) -> None:
    repo, outside = change({}, {}), Outside()

    def run_cases(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        outcome = Outcome(kind=OutcomeKind.PASS)
        if Path(setup.log_dir or "").name == "base":
            (Path(setup.tree or "") / "modeling_a.py").chmod(0)  # as code of the other side may, of one user
            outcome = Outcome(kind=OutcomeKind.ERROR, stage="source", message="[Errno 13] Permission denied")
        elif head_fails_at:
            outcome = Outcome(kind=OutcomeKind.ERROR, stage=head_fails_at, message="no")
        return RunResult({request.id: outcome for request in requests})

    around = replace(outside.around, open_runners=lambda: nullcontext(run_cases))
    report = compare_revisions(repo, "main", "HEAD", Overrides(), around).report
    assert any("base's own files were changed while it ran (modeling_a.py)" in note for note in report.notes)
    assert report.failure.startswith("base's own files were changed") is (head_fails_at == "trace")
