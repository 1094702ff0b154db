"""A change to workarounds, or to the versions of what they are for, and the audit that comes with its run."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.changes.place import installed_root
from hfexport_bot.cli import main
from hfexport_bot.reporting.writing import write_reports
from hfexport_bot.schema import (
    Backend,
    CaseId,
    CaseReport,
    Need,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    VerdictKind,
    WorkaroundInfo,
)
from hfexport_bot.settings import SettingsFile
from hfexport_bot.verdicts.rejudging import rejudged
from tests.hfexport_bot.test_audit import KNOWN, OWN, OWN_WORKAROUNDS, Runner

MODEL = "class AModel(PreTrainedModel):\n    def forward(self): return {0}\n"
SETTINGS = {".github/hfexport.yml": "workarounds: w.py\nbackends: [onnx]\n"}
WORKAROUNDS = """
from exporters.utils import register_onnx_disable_optimize as register_it

@register_it()
def needed(): return {0}

@register_it()
def idle(): return {0}

@register_it()
def _stuck(): return {0}

@register_it()
def nobodys(): return {0}

@register_it()
def as_before(): return 0
"""
SAID = "idle, needed, nobodys, stuck changed in w.py"

Judge = Callable[..., tuple[int, Report, Runner, str]]


@pytest.fixture
def judge(repository: Any, tmp_path: Path) -> Judge:
    """Commits two versions of a repository and runs the second against the first."""

    def work(base: Mapping[str, Any], head: Mapping[str, Any], *options: str, known: Any = KNOWN) -> Any:
        repository.commit(base)
        repository.commit(head)
        runner, out = Runner(), tmp_path / "out"
        command = ["run", "--repo", str(repository.path), "--base", "HEAD~1", "--out", str(out), "-q", "--jobs", "1"]
        code = main([*command, *options], run_cases=runner, list_workarounds=lambda: known)
        report = Report.model_validate_json((out / "report.json").read_text())
        return code, report, runner, (out / "report.md").read_text()

    return work


def test_edited_workarounds_are_audited_on_the_cases_of_the_change_and_nothing_is_red(judge: Judge) -> None:
    files = {"modeling_a.py": MODEL.format(1), **SETTINGS}
    code, report, runner, markdown = judge(
        {**files, "w.py": WORKAROUNDS.format(1)}, {"w.py": WORKAROUNDS.format(2)}, "--budget-minutes", "0"
    )
    off = [disabled for batch in runner.batches for _, disabled in batch if disabled]
    assert sorted(off) == [("onnx/optimize/idle",), ("onnx/optimize/needed",), ("onnx/optimize/stuck",)]
    assert report.audit is not None
    assert {each.id: each.need for each in report.audit.workarounds} == {
        "nobodys": Need.UNKNOWN,
        "onnx/optimize/idle": Need.NOT_NEEDED,
        "onnx/optimize/needed": Need.NEEDED,
        "onnx/optimize/stuck": Need.UNKNOWN,
    }
    assert (report.audit.notes, report.audit.versions) == ((SAID,), {"onnx": "1.23"})
    assert code == 0
    section = markdown.partition("### Workarounds that this change is about\n\n")[2].partition("\n###")[0]
    assert f"- `{SAID}`\n- audited with `onnx 1.23` in" in section
    case = "modeling_a/AModel/onnx/dynamic/forward"
    assert f"- no longer needed: `onnx/optimize/idle`: `{case} passes without it`\n- still needed" in section


def test_a_removed_workaround_is_named_by_the_report_and_by_the_cases_that_fail_without_it(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change has no other part, and nothing to audit."""
    files = {"modeling_a.py": MODEL.format(1), **SETTINGS}
    gone = WORKAROUNDS.replace("@register_it()\ndef idle(): return {0}\n", "")
    assert gone != WORKAROUNDS
    fails = Outcome(kind=OutcomeKind.ERROR, stage="trace", message="guard", workarounds={"onnx/optimize/needed": 1})
    call = Runner.__call__

    def run(self: Runner, setup: Any, requests: Any, **more: Any) -> Any:
        found = call(self, setup, requests, **more)
        text = Path(setup.tree, "w.py").read_text()
        return found if "idle" in text else replace(found, outcomes=dict.fromkeys(found.outcomes, fails))

    monkeypatch.setattr(Runner, "__call__", run)
    code, report, _, markdown = judge({**files, "w.py": WORKAROUNDS.format(1)}, {"w.py": gone.format(1)}, "--reruns=0")
    said = "removed by this change, and base hit it in this case: onnx/optimize/idle"
    assert (code, [case.details[0] for case in report.cases]) == (1, [said])
    assert said in markdown
    assert report.audit is not None
    assert report.audit.notes == ("removed by this change: onnx/optimize/idle",)
    assert rejudged(report, SettingsFile(), date(2026, 11, 30)).cases == report.cases, "who publishes says the same"


def test_what_is_not_about_workarounds_audits_none(judge: Judge) -> None:
    files = {"modeling_a.py": MODEL.format(1), "w.py": WORKAROUNDS.format(1), **SETTINGS}
    _, report, runner, _ = judge(files, {"modeling_a.py": MODEL.format(2), "w.py": WORKAROUNDS.format(1) + "# said\n"})
    assert report.audit is None
    assert not any(disabled for batch in runner.batches for _, disabled in batch)


def test_without_time_it_is_said_so(judge: Judge) -> None:
    files = {"modeling_a.py": MODEL.format(1), "w.py": WORKAROUNDS.format(1), **SETTINGS}
    _, report, runner, _ = judge(files, {"w.py": WORKAROUNDS.format(2)}, "--budget-minutes", "0.001")
    assert report.audit is not None
    said = {each.id: each.said for each in report.audit.workarounds}
    assert said["onnx/optimize/needed"] == "there was no time left for it"
    assert not any(disabled for batch in runner.batches for _, disabled in batch)


def test_a_sample_leaves_time_for_them(judge: Judge) -> None:
    models = {f"modeling_a{n}.py": MODEL.format(1) for n in range(9)}
    files = {**models, "w.py": WORKAROUNDS.format(1), **SETTINGS}
    _, report, _, _ = judge(files, {"w.py": WORKAROUNDS.format(2)}, "--budget-minutes", "2")
    assert report.sample is not None
    assert report.sample.limits == ("budget-minutes: 2, 25% of them for workarounds",)
    assert report.sample.classes == 4, "of 20 s each in a minute and a half"


def test_moved_pins_audit_what_is_hit_or_say_that_they_were_not_in_force(judge: Judge) -> None:
    have = importlib.metadata.version("onnxscript")
    files = {"modeling_a.py": MODEL.format(1), ".github/hfexport.yml": "backends: [onnx]"}
    _, report, _, _ = judge(
        {**files, "requirements.txt": "onnxscript==0.0.1\n"},
        {"requirements.txt": f"onnxscript=={have}\n"},
        "--budget-minutes=0",
    )
    assert report.audit is not None
    needs = {each.id.rpartition("/")[2]: each.need.value for each in report.audit.workarounds}
    assert needs == {"idle": "no longer needed", "needed": "still needed", "stuck": "cannot tell"}
    assert report.audit.notes == (f"onnxscript==0.0.1 to onnxscript=={have}",)
    _, report, _, markdown = judge({}, {"requirements.txt": "onnxscript==0.0.2\n"}, "--budget-minutes=0")
    assert report.audit is not None
    moved = f"onnxscript=={have} to onnxscript==0.0.2"
    assert report.audit.notes == (
        f"{moved}: head did not run with that, so no workaround was audited for it; use --install",
    )
    assert report.audit.workarounds == ()
    assert moved in markdown


def test_this_projects_own_workarounds_are_tried_on_installed_models(judge: Judge, tmp_path: Path) -> None:
    root = installed_root("exporters")
    assert root is not None
    file = "exporters/executorch/node_fixes.py"
    own = {name: (root / name).read_bytes() for name in ("exporters/registry.py", file)}
    changed = own[file].replace(b"def _fix_gelu_tanh(", b"def _fix_gelu_tanh(*_, ", 1)
    assert changed != own[file]
    workaround = WorkaroundInfo(
        id="executorch/node_fixes/fix_gelu_tanh",
        kind="node_fix",
        backend=Backend.EXECUTORCH,
        stage="node_fixes",
        reason="x",
    )
    bert = CaseReport(
        id=CaseId.parse("bert/BertModel/executorch/dynamic/forward"),
        verdict=VerdictKind.NO_BASELINE,
        outcome=OutcomeKind.PASS,
        head=Outcome(kind=OutcomeKind.PASS, workarounds={workaround.id: 1}),
    )
    earlier = Report(command="check", head=Revision(name="x"), cases=(bert,))
    record = f"--record={write_reports(earlier, tmp_path / 'earlier')['report.json']}"
    code, report, runner, _ = judge({**own, file: changed}, {file: own[file]}, record, known=[workaround])
    assert report.audit is not None
    assert [(each.id, each.said) for each in report.audit.workarounds] == [(workaround.id, "no case hits it")]
    assert runner.batches == [[("BertModel", ())]]
    assert (code, report.cases) == (0, ())
    _, report, _, _ = judge({}, {file: changed}, known=[workaround])
    assert report.audit is not None
    assert report.audit.notes[-1] == "the exporters that are installed are not those of head: none of them was audited"


@pytest.mark.slow  # two sides, and each workaround off: a minute
@pytest.mark.process
@pytest.mark.export
def test_a_real_change_of_workarounds(repository: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = (
        "import torch\nfrom modeling_own import OwnConfig, OwnModel\n"
        "def build(class_name, seed):\n    torch.manual_seed(seed)\n"
        "    return {'model': OwnModel(OwnConfig()).eval(), 'inputs': {'inputs_embeds': torch.randn(2, 5, 8)}}\n"
    )
    settings = "workarounds: own_workarounds.py\ncases: own_cases.py:build\nbackends: [dynamo]\n"
    first = OWN_WORKAROUNDS.partition('@register_patch("dynamo", "modeling_own.OwnModel.same"')[0]
    repository.commit({"modeling_own.py": OWN, "own_cases.py": cases, "own_workarounds.py": first})
    repository.commit({".github/hfexport.yml": settings})
    repository.commit({"own_workarounds.py": OWN_WORKAROUNDS.replace("max=3.0", "max=3.00")})
    out = tmp_path / "out"
    command = ["run", "--repo", str(repository.path), "--base", "HEAD~1", "--out", str(out), "--jobs", "1"]
    assert main(command) == 0
    report = Report.model_validate_json((out / "report.json").read_text())
    assert report.audit is not None
    needs = {each.id.rpartition("/")[2]: each.need.value for each in report.audit.workarounds}
    assert needs == {"of_no_use": "no longer needed"}, "3.0 and 3.00 are one number"
    assert {"torch", "transformers"} <= report.audit.versions.keys()
    printed = capsys.readouterr()
    assert "workarounds: of_no_use changed in own_workarounds.py\n" in printed.out
    assert "no longer needed: dynamo/model_patches/of_no_use: modeling_own/OwnModel/dynamo" in printed.out
    assert printed.err.count("runner ready") == 2, "a runner a side, for the audit too"
