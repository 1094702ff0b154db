"""The command line, with a runner of the test's own: exit codes, inputs and what is written."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.cli import main
from hfexport_bot.errors import RunError
from hfexport_bot.execution.client import RunResult
from hfexport_bot.reporting.reference import BEGIN, END
from hfexport_bot.schema import (
    Backend,
    CaseFinished,
    CaseId,
    CaseReport,
    CaseRequest,
    ExporterTarget,
    Layout,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    RunnerEvent,
    RunnerSetup,
    Source,
    VerdictKind,
    WorkaroundInfo,
)


def model(name: str, value: int = 1, text: str = "Text.") -> str:
    return f"class {name}(PreTrainedModel):\n    '''{text}'''\n    def forward(self): return {value}\n"


class FakeRunner:
    """Gives ``error`` at ``trace`` to the classes named per side, and ``pass`` to all others."""

    def __init__(self, base: Sequence[str] = (), head: Sequence[str] = (), fatal: str = "") -> None:
        self.failing = {"base": base, "head": head}
        self.fatal = fatal
        self.calls: dict[str, tuple[RunnerSetup, list[str], set[str]]] = {}

    def __call__(
        self,
        setup: RunnerSetup,
        requests: Sequence[CaseRequest],
        *,
        on_event: Callable[[RunnerEvent], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> RunResult:
        assert setup.log_dir is not None
        side = Path(setup.log_dir).name
        files = {p.name for p in Path(setup.tree).rglob("*")} if setup.tree else set()
        self.calls[side] = (setup, [str(request.id) for request in requests], files)
        outcomes = {}
        for request in requests:
            bad = request.id.class_name in self.failing[side] or bool(self.fatal)
            outcomes[request.id] = (
                Outcome(kind=OutcomeKind.ERROR, stage="trace", message="data-dependent")
                if bad
                else Outcome(kind=OutcomeKind.PASS)
            )
            if on_event:
                on_event(CaseFinished(id=request.id, outcome=outcomes[request.id]))
        return RunResult(outcomes, {"torch": "2.13.0"}, self.fatal)


@pytest.fixture
def changed(repository: Any) -> Any:
    """A repository whose HEAD changed one model after ``main``, and only the docstring of another."""
    repository.commit({"modeling_a.py": model("AModel"), "modeling_b.py": model("BModel")})
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({"modeling_a.py": model("AModel", 2), "modeling_b.py": model("BModel", text="More.")})
    return repository


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where reports go."""
    return tmp_path / "out"


def run(repository: Any, out: Path, *more: str, runner: Any = None, targets: Any = None) -> tuple[int, Any]:
    runner = runner or FakeRunner()
    arguments = ["run", "--repo", str(repository.path), "--base", "main", "--out", str(out), *more]
    return main(arguments, run_cases=runner, list_workarounds=registered, list_targets=targets), runner


def registered() -> tuple[WorkaroundInfo, ...]:
    """A list of one workaround."""
    name = "onnx/ir_fixes/share"
    return (WorkaroundInfo(id=name, kind="ir_fix", backend=Backend.ONNX, stage="ir_fixes", reason="r"),)


def report_in(out: Path) -> Report:
    return Report.model_validate_json((out / "report.json").read_text())


def verdicts(out: Path) -> dict[str, str]:
    return {str(case.id): case.verdict.value for case in report_in(out).cases}


def test_a_clean_change_is_zero_and_reported(changed: Any, out: Path, capsys: Any) -> None:
    code, runner = run(changed, out, "--backend", "dynamo")
    assert code == 0
    assert verdicts(out) == {"modeling_a/AModel/dynamo/dynamic/forward": "ok"}
    report = report_in(out)
    assert report.base is not None
    assert (report.base.name, report.base.sha) == ("main", changed.git("rev-parse", "main"))
    assert (report.head.name, report.head.sha) == ("HEAD", changed.git("rev-parse", "HEAD"))
    assert [(entry.name, entry.reason) for entry in report.not_run] == [
        ("modeling_b.py", "only comments or docstrings changed")
    ]
    assert report.versions == {"torch": "2.13.0"}
    assert (out / "report.md").is_file()
    assert "AModel" in capsys.readouterr().out
    assert runner.calls["head"][0].layout is Layout.MODELING
    assert runner.calls["head"][2] == {"modeling_a.py", "modeling_b.py"}
    assert not Path(runner.calls["head"][0].tree).exists()


def test_a_regression_is_one(changed: Any, out: Path) -> None:
    code, _ = run(changed, out, runner=FakeRunner(head=["AModel"]))
    assert code == 1
    assert set(verdicts(out).values()) == {"regression"}


def test_models_that_are_named_run_whatever_changed(changed: Any, out: Path) -> None:
    run(changed, out, "--backend", "dynamo", "--model", "modeling_b.py:BModel", "--model", "modeling_b")
    assert verdicts(out) == {"modeling_b/BModel/dynamo/dynamic/forward": "ok"}
    assert report_in(out).not_run == ()


@pytest.mark.parametrize(("reruns", "runs"), [((), 3), (("--reruns", "1"), 2), (("--reruns", "0"), 1)])
def test_what_comes_and_goes_is_flaky_and_not_red(changed: Any, out: Path, reruns: tuple[str, ...], runs: int) -> None:
    class Chance(FakeRunner):
        """Fails the first time on head."""

        def __call__(self, setup: RunnerSetup, *arguments: Any, **options: Any) -> RunResult:
            result = super().__call__(setup, *arguments, **options)
            self.failing = {"base": (), "head": ()} if (setup.log_dir or "").endswith("head") else self.failing
            return result

    code, _ = run(changed, out, "--backend", "dynamo", *reruns, runner=Chance(head=["AModel"]))
    (case,) = report_in(out).cases
    assert (code, case.verdict.value) == ((0, "flaky") if runs > 1 else (1, "regression"))
    assert case.details == ((f"head failed 1 of {runs} runs",) if runs > 1 else ())


@pytest.mark.parametrize(("fail_on", "code"), [((), 0), (("--fail-on", "fixed"), 1)])
def test_fail_on_decides_what_is_red(changed: Any, out: Path, fail_on: tuple[str, ...], code: int) -> None:
    assert run(changed, out, *fail_on, runner=FakeRunner(base=["AModel"]))[0] == code
    assert set(verdicts(out).values()) == {"fixed"}


def test_nothing_affected_is_green_and_starts_no_runner(changed: Any, out: Path) -> None:
    code, runner = run(changed, out, "--head", "main")
    assert code == 0
    assert runner.calls == {}
    assert report_in(out).cases == ()


def test_the_base_is_the_merge_base(changed: Any, out: Path) -> None:
    fork = changed.git("rev-parse", "main")
    changed.git("checkout", "-q", "main")
    changed.commit({"modeling_b.py": model("BModel", 5)})
    code, _ = run(changed, out, "--head", "topic")
    assert code == 0
    base = report_in(out).base
    assert base is not None
    assert base.sha == fork
    assert {case.id.class_name for case in report_in(out).cases} == {"AModel"}


def test_gates_of_the_change_wait_for_the_merge(changed: Any, out: Path) -> None:
    changed.commit({".github/hfexport.yml": "fail-on: []\ncases: c.py:f\n", "c.py": "def f(): ..."})
    code, runner = run(changed, out, runner=FakeRunner(head=["AModel"]))
    assert code == 1
    assert any("`fail-on`" in note and "after merge" in note for note in report_in(out).notes)
    assert runner.calls["head"][0].cases_hook == "c.py:f"
    assert runner.calls["base"][0].cases_hook is None


def test_accepted_findings_of_base_and_their_end(repository: Any, out: Path) -> None:
    accepted = "accepted: [{id: '*/AModel/*', reason: known, expires: %s}]"
    for day, code in (("2999-01-01", 0), ("2001-01-01", 1)):
        repository.git("checkout", "-q", "-B", "main")
        repository.commit({"modeling_a.py": model("AModel"), ".github/hfexport.yml": accepted % day})
        repository.git("checkout", "-q", "-B", "topic")
        repository.commit({"modeling_a.py": model("AModel", 2)})
        assert run(repository, out, runner=FakeRunner(head=["AModel"]))[0] == code
    assert any("expired on 2001-01-01" in note for note in report_in(out).notes)


def test_options_reach_the_runner(changed: Any, out: Path) -> None:
    options = ("--disable-workaround", "onnx/ir_fixes/share")
    options += ("--seconds", "9", "--memory-gb", "1", "--jobs", "4", "--shapes", "static")
    _, runner = run(changed, out, *options)
    setup, ids, _ = runner.calls["head"]
    assert (setup.limits.wall_seconds, setup.limits.memory_bytes, setup.jobs) == (9, 1 << 30, 4)
    assert setup.disabled_workarounds == ("onnx/ir_fixes/share",)
    assert "the workaround `onnx/ir_fixes/share` was disabled" in report_in(out).notes
    assert ids == [f"modeling_a/AModel/{backend}/static/forward" for backend in ("dynamo", "onnx", "executorch")]


def test_variants_and_sources_reach_the_runner(changed: Any, out: Path) -> None:
    _, runner = run(changed, out, "--variant", "eager_attention", "--source", "synthesised", "--backend", "dynamo")
    setup, ids, _ = runner.calls["head"]
    plain = "modeling_a/AModel/dynamo/dynamic/forward"
    assert ids == [plain, f"{plain}+eager_attention"]
    assert setup.sources == (Source.SYNTHESISED,)


CHECKOUT = {"src/transformers/models/a/modeling_a.py": model("AModel"), "src/transformers/models/a/__init__.py": ""}
EXPORTERS = "src/transformers/exporters/__init__.py"


@pytest.mark.parametrize(
    ("engine", "base", "head"),
    [
        ((), ["", "@repo"], ["", "@repo"]),
        (("--engine", "own"), [""], [""]),
        (("--engine", "repo"), ["@repo"], ["@repo"]),
    ],
)
def test_a_checkouts_own_exporters_run_beside_ours(
    repository: Any, out: Path, engine: tuple[str, ...], base: list[str], head: list[str]
) -> None:
    repository.commit(CHECKOUT | {EXPORTERS: ""})
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({"src/transformers/models/a/modeling_a.py": model("AModel", 2)})
    _, runner = run(repository, out, "--backend", "onnx", *engine)
    for side, suffixes in (("base", base), ("head", head)):
        assert runner.calls[side][1] == [f"a/AModel/onnx/dynamic/forward{suffix}" for suffix in suffixes]


@pytest.mark.parametrize(("engine", "suffixes"), [((), ["", "@repo"]), (("--engine", "repo"), ["@repo"])])
def test_exporters_that_head_has_lost_are_asked_there_all_the_same(
    repository: Any, out: Path, engine: tuple[str, ...], suffixes: list[str]
) -> None:
    repository.commit(CHECKOUT | {EXPORTERS: ""})
    repository.git("checkout", "-q", "-b", "topic")
    repository.git("rm", "-q", EXPORTERS)
    repository.commit({"src/transformers/models/a/modeling_a.py": model("AModel", 2)})

    def targets(setup: RunnerSetup, modules: Sequence[str]) -> list[ExporterTarget]:
        raise AssertionError("there is nothing to list")

    _, runner = run(repository, out, "--backend", "onnx", *engine, targets=targets)
    assert runner.calls["head"][1] == [f"a/AModel/onnx/dynamic/forward{suffix}" for suffix in suffixes]
    assert [note for note in report_in(out).notes if f"lost the checkout's own exporters, `{EXPORTERS}`" in note]


def test_an_earlier_report_tells_which_models_a_changed_patch_acts_on(repository: Any, out: Path) -> None:
    patch = "src/transformers/exporters/exporter_onnx.py"
    others = {name.replace("/a/", "/b/").replace("_a.", "_b."): text for name, text in CHECKOUT.items()}
    body = "@register_patch('onnx', 'torch.where')\ndef _patch_where(original):\n    return {}\n"
    repository.commit(CHECKOUT | {k: v.replace("AModel", "BModel") for k, v in others.items()})
    repository.commit({EXPORTERS: "", patch: body.format(1)})
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({patch: body.format(2)})
    hit = Outcome(kind=OutcomeKind.PASS, workarounds={"repo:exporter_onnx._patch_where": 1})
    case = CaseReport(
        id=CaseId.parse("b/BModel/onnx/dynamic/forward@repo"),
        verdict=VerdictKind.NO_BASELINE,
        outcome=OutcomeKind.PASS,
        head=hit,
    )
    record = out.parent / "record.json"
    record.write_text(Report(command="check", head=Revision(name="x"), cases=(case,)).model_dump_json())
    run(repository, out, "--backend", "onnx", "--record", str(record))
    assert {each.id.class_name for each in report_in(out).cases} == {"BModel"}
    assert "_patch_where changed, hit by b/BModel/onnx" in report_in(out).cases[0].reason


def test_what_the_checkouts_exporters_no_longer_find_is_noted(repository: Any, out: Path) -> None:
    module = "transformers.models.a.modeling_a"
    asked = []

    def targets(setup: RunnerSetup, modules: Sequence[str]) -> list[ExporterTarget]:
        source = Path(setup.tree or "", "src/transformers/models/a/modeling_a.py").read_text()
        asked.append(list(modules))
        path = f"{module}.helper"
        return [ExporterTarget(kind="patch", owner="repo:u._p", target=path, resolved="helper" in source)]

    modeling = "src/transformers/models/a/modeling_a.py"
    patch = f"@register_patch('onnx', '{module}.helper')\ndef _p(original): ...\n"
    repository.commit(CHECKOUT | {EXPORTERS: "", "src/transformers/exporters/u.py": patch})
    repository.commit({modeling: f"{model('AModel')}\ndef helper(): ...\n"})
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({modeling: f"{model('AModel', 2)}\ndef helper(): ...\n"})
    run(repository, out, "--backend", "onnx", "--engine", "repo", targets=targets)
    assert not asked, "nothing that they look for is gone"
    repository.commit({modeling: model("AModel", 2)})
    for engine, noted in (("repo", True), ("own", False)):
        run(repository, out, "--backend", "onnx", "--engine", engine, targets=targets)
        assert any(f"`{module}.helper` is gone" in note for note in report_in(out).notes) is noted
    assert asked == [[module], [module]]


def test_targets_that_cannot_be_listed_are_no_failure(repository: Any, out: Path) -> None:
    def targets(setup: RunnerSetup, modules: Sequence[str]) -> list[ExporterTarget]:
        raise RunError("no list today")

    repository.commit(CHECKOUT | {EXPORTERS: ""})
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({"src/transformers/models/a/modeling_a.py": model("AModel", 2), EXPORTERS: "# looked at anew"})
    assert run(repository, out, "--backend", "onnx", targets=targets)[0] == 0
    assert "what the checkout's own exporters look for is unknown: no list today" in report_in(out).notes


@pytest.mark.parametrize("exporters", [{EXPORTERS: ""}, {}])
@pytest.mark.parametrize(("text", "said"), [(None, "cannot be read"), ("{}", "is no report.json")])
def test_a_record_that_is_none_is_two(
    repository: Any, out: Path, text: str | None, said: str, exporters: dict[str, str], capsys: Any
) -> None:
    repository.commit(CHECKOUT | exporters)
    repository.git("branch", "topic")
    record = out.parent / "record.json"
    if text is not None:
        record.write_text(text)
    assert run(repository, out, "--record", str(record))[0] == 2
    assert said in capsys.readouterr().err


def test_exporters_that_head_adds_have_no_base(repository: Any, out: Path) -> None:
    repository.commit(CHECKOUT)
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({"src/transformers/models/a/modeling_a.py": model("AModel", 2), EXPORTERS: ""})
    run(repository, out, "--backend", "onnx")
    path = "a/AModel/onnx/dynamic/forward"
    assert verdicts(out) == {path: "ok", f"{path}@repo": "new"}


def test_exporters_that_are_nowhere_are_two(changed: Any, repository: Any, out: Path, capsys: Any) -> None:
    repository.commit(CHECKOUT)
    assert run(repository, out, "--engine", "repo")[0] == 2
    assert "use --engine own" in capsys.readouterr().err


def test_a_syntax_error_on_one_side_still_runs_its_classes(changed: Any, out: Path) -> None:
    changed.commit({"modeling_a.py": "def ("})
    code, _ = run(changed, out, "--backend", "dynamo", runner=FakeRunner(head=["AModel"]))
    assert code == 1
    assert verdicts(out) == {"modeling_a/AModel/dynamo/dynamic/forward": "regression"}


def test_json_is_all_that_is_printed(changed: Any, out: Path, capsys: Any) -> None:
    run(changed, out, "--json")
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["cases"]) == 3


def test_quiet_prints_nothing(changed: Any, out: Path, capfd: Any) -> None:
    assert run(changed, out, "--quiet")[0] == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--base", "nowhere"], "unknown revision 'nowhere'"),
        (["run"], "Missing option '--base'"),
        (["run", "--base", "main", "--backend", "tensorrt"], "'tensorrt' is not one of"),
        (["run", "--base", "main", "--repo", "/nowhere/at/all"], "is not a folder"),
        (["run", "--base", "main", "--seconds", "0"], "--seconds"),
        *(
            (["run", "--base", "main", option, value], f"Invalid value for '{option}': {said}")
            for option in ("--seconds", "--memory-gb")
            for value, said in (("nan", "nan is no number."), ("inf", "inf is not in the range"), ("1e308", "1e+308"))
        ),
        (["run", "--base", "main", "--engine", "theirs"], "'theirs' is not one of"),
        (["run", "--base", "main", "--source", "guess"], "'guess' is not one of"),
        (["run", "--base", "main", "--variant", "flash"], "'flash' is not one of 'cross_attention'"),
        (["cases", "bret"], "unknown model 'bret'; did you mean bert"),
        (["check", "bret"], "unknown model 'bret'; did you mean bert"),
        (["check", "bert/BertModle"], "did you mean BertModel"),
        (["check"], "Missing argument"),
        (["check", "missing/modeling_x.py"], "does not exist"),
        (["check", "bert", "--tree", "/nowhere/at/all"], "is not a folder"),
        (["frobnicate"], "No such command"),
        ([], "Usage:"),
    ],
)
def test_wrong_input_is_two_and_says_why(
    changed: Any, arguments: list[str], message: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(changed.path)
    assert main(arguments, run_cases=FakeRunner()) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_no_repository_is_two(tmp_path: Path, capsys: Any) -> None:
    assert main(["run", "--repo", str(tmp_path), "--base", "x", "--out", str(tmp_path / "out")]) == 2
    assert "not in a git repository" in capsys.readouterr().err


def test_an_unwritable_folder_is_found_out_before_the_work(changed: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    code, runner = run(changed, tmp_path / "file" / "out")
    assert code == 2
    assert runner.calls == {}
    assert "give another folder with --out" in capsys.readouterr().err


def test_a_bad_settings_file_is_two(changed: Any, out: Path, capsys: Any) -> None:
    changed.commit({".github/hfexport.yml": "fail_on: []"})
    assert run(changed, out)[0] == 2
    assert "did you mean 'fail-on'?" in capsys.readouterr().err


def test_a_run_without_a_working_runner_is_three_and_still_reported(changed: Any, out: Path, capsys: Any) -> None:
    code, _ = run(changed, out, runner=FakeRunner(fatal="torch does not import"))
    assert code == 3
    assert "torch does not import" in capsys.readouterr().err
    assert len(report_in(out).cases) == 3


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_case_function_that_stops_every_case_fails_the_run(
    changed: Any, out: Path, command: str, capsys: Any
) -> None:
    def runner(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        outcome = Outcome(
            kind=OutcomeKind.ERROR, stage="source", error_type="HookError", message="c.py has no function 'f'"
        )
        return RunResult({request.id: outcome for request in requests})

    if command == "run":
        code, _ = run(changed, out, runner=runner)
    else:
        code = main(["check", str(changed.path / "modeling_a.py"), "--out", str(out)], run_cases=runner)
    assert code == 3
    assert "the run failed: c.py has no function 'f'" in capsys.readouterr().err
    assert report_in(out).failure == "c.py has no function 'f'"
    assert "safe to merge: yes" not in (out / "report.md").read_text()


def test_a_case_function_that_stops_some_cases_does_not(changed: Any, out: Path) -> None:
    hook = Outcome(kind=OutcomeKind.ERROR, stage="source", error_type="HookError", message="no")

    def runner(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        broken = Path(setup.log_dir or "").name == "head"
        return RunResult({request.id: hook if broken else Outcome(kind=OutcomeKind.PASS) for request in requests})

    assert run(changed, out, runner=runner)[0] == 1
    assert set(verdicts(out).values()) == {"regression"}


def test_an_unknown_workaround_is_two_and_names_the_nearest(changed: Any, out: Path, capsys: Any) -> None:
    code, runner = run(changed, out, "--disable-workaround", "onnx/shared")
    assert code == 2
    assert runner.calls == {}
    assert "unknown workaround 'onnx/shared'; did you mean onnx/ir_fixes/share?" in capsys.readouterr().err


def test_an_unknown_workaround_is_refused_before_a_process_lists_those_there_are(
    changed: Any, out: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hfexport_bot.execution.listing.list_workarounds", lambda: pytest.fail("asked a process"))
    name, tree, runner = "onnx/ir_fixes/fix_shared_outputs", str(changed.path), FakeRunner()
    for command in (
        ["run", "--repo", tree, "--base", "main", "--out", str(out), "--disable-workaround", name],
        ["check", "a", "--tree", tree, "--out", str(out), "--disable-workaround", name],
        ["workarounds", "audit", name, "--tree", tree],
    ):
        assert main(command, run_cases=runner) == 2
        said = capsys.readouterr().err
        assert f"unknown workaround {name!r}; did you mean onnx/ir_fixes/fix_ir_shared_outputs?" in said
    assert runner.calls == {}


def test_patches_of_the_checkouts_own_exporters_are_disabled_by_their_ids(
    repository: Any, out: Path, capsys: Any
) -> None:
    patches = "@register_patch('onnx', 'torch.where')\ndef _patch_where(original): ...\n"
    repository.commit({**CHECKOUT, EXPORTERS: "", "src/transformers/exporters/exporter_onnx.py": patches})
    repository.commit({"src/transformers/models/a/modeling_a.py": model("AModel", 2)})
    asked = ("--base", "HEAD~1", "--disable-workaround", "repo:exporter_onnx._patch_where")
    code, runner = run(repository, out, *asked)
    assert code == 0
    assert runner.calls["head"][0].disabled_workarounds == ("repo:exporter_onnx._patch_where",)
    code, _ = run(repository, out, *asked, "--disable-workaround", "repo:exporter_onnx._patch_were")
    assert code == 2
    assert "'repo:exporter_onnx._patch_were'; did you mean repo:exporter_onnx._patch_where?" in capsys.readouterr().err
    assert run(repository, out, *asked, "--engine", "own")[0] == 2
    assert "acts in the engine repo; run it with --engine repo" in capsys.readouterr().err


def test_workarounds_of_the_repository_are_left_to_the_runner(changed: Any, out: Path) -> None:
    registered = "@register_patch('dynamo', 'm.f', model_change='x')"
    patch = f"from exporters.utils import register_patch\n{registered}\ndef own(f): ..."
    changed.commit({".github/hfexport.yml": "workarounds: w.py", "w.py": patch})
    code, runner = run(changed, out, "--disable-workaround", "dynamo/model_patches/own")
    assert code == 0
    assert runner.calls["head"][0].disabled_workarounds == ("dynamo/model_patches/own",)


def test_an_unexpected_error_is_three_with_its_traceback_in_a_file(
    changed: Any, out: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def broken(*_: Any, **__: Any) -> RunResult:
        raise ZeroDivisionError("unexpected\nsecond line")

    assert run(changed, out, runner=broken)[0] == 3
    (line,) = [text for text in capsys.readouterr().err.splitlines() if "failed" in text]
    assert "ZeroDivisionError: unexpected" in line
    (file,) = tmp_path.glob("hfexport-traceback-*.txt")
    assert str(file) in line
    assert "second line" in file.read_text()
    assert not list(tmp_path.glob("hfexport-tree-*"))

    arguments = ["--debug", "run", "--repo", str(changed.path), "--base", "main", "--out", str(out)]
    assert main(arguments, run_cases=broken) == 3
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_130_and_leaves_no_tree(
    changed: Any, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupted(*_: Any, **__: Any) -> RunResult:
        raise KeyboardInterrupt

    assert run(changed, out, runner=interrupted)[0] == 130
    assert not list(tmp_path.glob("hfexport-tree-*"))


def test_too_many_classes_are_sampled_and_the_command_that_is_told_runs_the_rest(
    repository: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("A", "B", "C")
    repository.commit({"modeling_a.py": "".join(map(model, names))})
    repository.git("checkout", "-q", "-b", "change")
    repository.commit({"modeling_a.py": "".join(model(name, 2) for name in names)})
    monkeypatch.chdir(repository.path)
    out = repository.path / "of the sample"
    code, _ = run(repository, Path("of the sample"), "--max-models", "1", "--backend", "onnx")
    assert code == 0
    first = report_in(out)
    assert [case.id.class_name for case in first.cases] == ["A"]
    assert [entry.name for entry in first.not_run] == ["modeling_a/B", "modeling_a/C"]
    text = (out / "report.md").read_text()
    assert "a sample of 1 of 3 classes · safe to merge: yes" in text
    assert "1 of 3 affected classes, by max-models: 1" in text
    assert "these changed symbols: modeling_a.py:B.forward, modeling_a.py:C.forward" in text
    command = next(line for line in text.splitlines() if "hfexport-bot run" in line).strip("- `")
    words = shlex.split(command.removeprefix("To run the rest: "))[1:]
    assert main([*words, "-q"], run_cases=FakeRunner()) == 0
    rest = report_in(repository.path / "of the sample-rest")
    assert [str(case.id) for case in rest.cases] == [f"modeling_a/{name}/onnx/dynamic/forward" for name in "BC"]
    assert rest.sample is None


def check(*arguments: str, out: Path, runner: FakeRunner | None = None) -> tuple[int, FakeRunner]:
    runner = runner or FakeRunner()
    return main(["check", *arguments, "--out", str(out)], run_cases=runner), runner


def detect(repository: Any, *more: str, base: str = "main") -> int:
    return main(["detect", "--repo", str(repository.path), "--base", base, *more])


def test_detect_tells_what_is_affected_and_why(changed: Any, capsys: Any) -> None:
    assert detect(changed, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "affected": [
            {
                "model": "modeling_a",
                "class": "AModel",
                "reason": "AModel.forward changed in modeling_a.py",
                "tasks": ["forward"],
            }
        ],
        "not_run": [{"kind": "file", "name": "modeling_b.py", "reason": "only comments or docstrings changed"}],
        "notes": [],
    }
    assert detect(changed) == 0
    shown = capsys.readouterr().out
    assert "AModel.forward changed" in shown
    assert "1 class of 1 model affected" in shown


def test_detect_of_nothing_and_of_no_revision(changed: Any, capsys: Any) -> None:
    assert detect(changed, "--json", base="HEAD") == 0
    note = "HEAD has nothing that HEAD has not: there is no change to judge"
    assert json.loads(capsys.readouterr().out) == {"affected": [], "not_run": [], "notes": [note]}
    assert detect(changed, base="nowhere") == 2
    assert "unknown revision 'nowhere'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("net.py", "no file is called modeling_*.py"),
        ("modeling_net.py", "a model class derives from transformers' PreTrainedModel and has a forward"),
    ],
)
def test_a_repository_without_models_is_told_so(repository: Any, out: Path, capsys: Any, file: str, why: str) -> None:
    repository.commit({file: "class Net: value = 1\n"})
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({file: "class Net: value = 2\n"})
    note = f"no model class to try: {why}"
    assert detect(repository, "--json") == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [note]
    assert detect(repository) == 0
    assert f"\nnote: {note}\n0 classes of 0 models affected\n" in capsys.readouterr().out
    assert run(repository, out)[0] == 0
    assert note in json.loads((out / "report.json").read_text())["notes"]


def test_check_of_the_installed_transformers(out: Path) -> None:
    code, runner = check("llama/LlamaForCausalLM", out=out)
    assert code == 0
    setup, ids, _ = runner.calls["head"]
    assert (setup.layout, setup.tree) == (Layout.INSTALLED, None)
    assert ids[0] == "llama/LlamaForCausalLM/dynamo/dynamic/forward"
    assert report_in(out).base is None
    assert report_in(out).head.name.startswith("transformers ")


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_check_fails_on_all_but_pass_and_skipped(out: Path, kind: OutcomeKind) -> None:
    def runner(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        return RunResult({request.id: Outcome(kind=kind) for request in requests})

    code = main(["check", "bert/BertModel", "--backend", "onnx", "--out", str(out)], run_cases=runner)
    assert code == (0 if kind in (OutcomeKind.PASS, OutcomeKind.SKIPPED) else 1)


def test_check_of_a_checkout_uses_a_copy_of_it_and_all_jobs(tmp_path: Path, out: Path) -> None:
    path = tmp_path / "checkout/src/transformers/models/toy/modeling_toy.py"
    path.parent.mkdir(parents=True)
    path.write_text(model("ToyModel"))
    code, runner = check("toy", "--tree", str(tmp_path / "checkout"), "--jobs", "3", out=out)
    assert code == 0
    setup, ids, files = runner.calls["head"]
    assert (setup.layout, setup.jobs) == (Layout.TRANSFORMERS, 3)
    assert ids[0] == "toy/ToyModel/dynamo/dynamic/forward"
    assert "modeling_toy.py" in files
    assert setup.tree is not None
    assert Path(setup.tree).is_relative_to(tempfile.gettempdir())
    assert not Path(setup.tree).exists()
    assert path.is_file()


@pytest.mark.parametrize("command", ["check", "cases"])
def test_a_checkouts_code_that_writes_to_its_files_is_told_and_harms_no_file_of_the_user(
    tmp_path: Path, out: Path, capsys: Any, command: str
) -> None:
    path = tmp_path / "checkout/src/transformers/models/toy/modeling_toy.py"
    path.parent.mkdir(parents=True)
    path.write_text(model("ToyModel"))

    def runner(setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        file = Path(setup.tree or "", path.relative_to(tmp_path / "checkout"))
        file.chmod(0o644)
        file.write_text("raise SystemExit")
        return RunResult({request.id: Outcome(kind=OutcomeKind.PASS) for request in requests})

    more = ["--out", str(out), "--backend", "dynamo"] if command == "check" else []
    arguments = [command, "toy", "--tree", str(tmp_path / "checkout"), *more]
    assert main(arguments, run_cases=runner, list_workarounds=registered) == 0
    assert path.read_text() == model("ToyModel")
    said = " ".join(capsys.readouterr().out.split())
    assert "own files were changed while it ran (src/transformers/models/toy/modeling_toy.py)" in said


@pytest.mark.parametrize("name", ["pkg/modeling_a.py", "pkg/modeling_a.py:AModel"])
def test_check_of_a_file_takes_the_folder_above_its_package(
    tmp_path: Path, out: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work/pkg").mkdir(parents=True)
    (tmp_path / "work/pkg/__init__.py").touch()
    (tmp_path / "work/pkg/modeling_a.py").write_text(model("AModel"))
    monkeypatch.chdir(tmp_path / "work")
    _, runner = check(name, "--backend", "dynamo", out=out)
    setup, ids, _ = runner.calls["head"]
    assert (setup.layout, setup.tree) == (Layout.MODELING, str(tmp_path / "work"))
    assert ids == ["pkg/modeling_a/AModel/dynamo/dynamic/forward"]


def test_check_of_a_file_finds_its_repository_and_settings(repository: Any, out: Path) -> None:
    repository.commit({"lib/modeling_a.py": model("AModel"), ".github/hfexport.yml": "backends: [onnx]"})
    _, runner = check(str(repository.path / "lib/modeling_a.py"), out=out)
    setup, ids, _ = runner.calls["head"]
    assert setup.tree == str(repository.path)
    assert ids == ["lib/modeling_a/AModel/onnx/dynamic/forward"]


def test_check_of_generate_takes_the_classes_that_generate(out: Path, capsys: Any) -> None:
    code, runner = check("bert", "--task", "generate", "--backend", "onnx", out=out)
    assert code == 0
    assert runner.calls["head"][1] == ["bert/BertLMHeadModel/onnx/dynamic/generate"]
    assert "bert/BertModel" in [item.name for item in report_in(out).not_run]
    code, _ = check("bert/BertModel", "--task", "generate", out=out)
    assert code == 2
    assert "none of the classes of bert/BertModel generates" in capsys.readouterr().err


def test_a_run_with_both_tasks_runs_both(repository: Any, out: Path) -> None:
    source = model("AModel").replace("PreTrainedModel)", "PreTrainedModel, GenerationMixin)")
    repository.commit({"modeling_a.py": source, ".github/hfexport.yml": "tasks: [forward, generate]"})
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({"modeling_a.py": source.replace("return", "x += 1; return")})
    _, runner = run(repository, out, "--backend", "onnx")
    expected = [f"modeling_a/AModel/onnx/dynamic/{task}" for task in ("forward", "generate")]
    assert runner.calls["base"][1] == runner.calls["head"][1] == expected


def test_schema_is_the_reports(capsys: Any) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Report"


def test_what_is_written_is_as_the_schema_says(changed: Any, out: Path, capsys: Any) -> None:
    run(changed, out, "--quiet", runner=FakeRunner(head=["AModel"]))
    main(["schema"])
    schema = json.loads(capsys.readouterr().out)
    written = json.loads((out / "report.json").read_text())
    assert len(written["cases"]) == 3
    assert complaints(written, schema, schema["$defs"]) == []
    written["cases"][0]["id"] = {"model": "m"}
    assert complaints(written, schema, schema["$defs"]) == ["{'model': 'm'} is no string"]


_JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def complaints(value: Any, schema: dict[str, Any], defs: dict[str, Any]) -> list[str]:
    """What a JSON value breaks of the part of JSON schema that pydantic writes here."""
    if "$ref" in schema:
        return complaints(value, defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema:
        found = [complaints(value, each, defs) for each in schema["anyOf"]]
        return [] if [] in found else found[0]
    if "type" in schema and not isinstance(value, _JSON_TYPES[schema["type"]]):
        return [f"{value} is no {schema['type']}"]
    said = [f"{value} is none of {schema['enum']}"] if value not in schema.get("enum", [value]) else []
    if isinstance(value, list):
        return said + [line for each in value for line in complaints(each, schema["items"], defs)]
    if isinstance(value, dict) and "properties" in schema:
        said += [f"{name} is missing" for name in schema.get("required", ()) if name not in value]
        said += [f"{name} is not in the schema" for name in value if name not in schema["properties"]]
        inside = [(each, schema["properties"].get(name, {})) for name, each in value.items()]
        said += [line for each, part in inside for line in complaints(each, part, defs)]
    return said


def test_version(capsys: Any) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hfexport-bot, version ")


SLOW_TO_STOP = """
import os, sys, time
from contextlib import nullcontext
import hfexport_bot.execution.client as client
from hfexport_bot.schema import Outcome, OutcomeKind
def run_cases(setup, requests, *, on_event=None, cancelled=None):
    print("running", flush=True)
    assert cancelled.wait(30)
    time.sleep(0.5)
    return client.RunResult({requests[0].id: Outcome(kind=OutcomeKind.PASS)})
client.Runners = lambda: nullcontext(run_cases)
from hfexport_bot.cli import entry_point
entry_point()
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["run", "check"])
def test_signals_end_in_130_once_all_is_cleaned_up_and_what_was_found_is_kept(
    changed: Any, out: Path, tmp_path: Path, number: signal.Signals, command: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    given = {
        "run": ["--repo", str(changed.path), "--base", "main"],
        "check": ["--tree", str(changed.path), "modeling_b"],
    }
    options = [command, *given[command], "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_TO_STOP, *options],
        env=os.environ | {"TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        # Two trees, and what eager leaves for the other side.
        assert len(list(place.glob("hfexport-tree-*"))) == (3 if command == "run" else 0)
        process.send_signal(number)
        time.sleep(0.1)
        process.send_signal(number)  # an impatient second one
        assert process.wait(30) == 130
    assert list(place.iterdir()) == []
    report = Report.model_validate_json((out / "report.json").read_text())
    (case,) = report.cases
    assert (case.outcome, case.verdict) == (OutcomeKind.PASS, VerdictKind.NO_BASELINE)
    missed = [item.name for item in report.not_run if item.reason == "the run was interrupted"]
    assert len(missed) == 2
    assert str(case.id) not in missed
    half = [item.name for item in report.not_run if item.reason == "the run was interrupted before it ran on base"]
    assert half == ([str(case.id)] if command == "run" else [])
    assert report.failure == "the run was interrupted"
    markdown = (out / "report.md").read_text()
    assert markdown.startswith("## Export check: the run was interrupted")
    assert f"- case `{missed[0]}`: `the run was interrupted`" in markdown


GUARD = """
import sys
from hfexport_bot.cli import main
import hfexport_bot.commands.census, hfexport_bot.commands.compare, hfexport_bot.commands.sharded
import hfexport_bot.reporting.terminal, hfexport_bot.reporting.progress, hfexport_bot.execution.client
assert main(["check", "--help"]) == 0
heavy = {"torch", "transformers", "numpy", "onnx", "onnxruntime", "executorch", "exporters"} & set(sys.modules)
assert not heavy, heavy
"""
LIGHT = """
import sys
from hfexport_bot.cli import main
assert main(["--help"]) == 0
heavy = {"torch", "transformers", "rich", "yaml", "psutil", "github", "hfexport_bot.commands"} & set(sys.modules)
assert not heavy, heavy
"""


DETECTING = """
import sys
import hfexport_bot.cli, hfexport_bot.commands.detect, hfexport_bot.reporting.selection
heavy = {"rich", "psutil", "github", "hfexport_bot.execution", "hfexport_bot.verdicts"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.process
@pytest.mark.parametrize("script", [GUARD, LIGHT, DETECTING])
def test_nothing_heavy_is_loaded_without_need(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_workarounds_are_listed_by_backend(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (ours,) = registered()
    other = ours.model_copy(update={"id": "executorch/node_fixes/gelu", "backend": Backend.EXECUTORCH})
    monkeypatch.setattr("hfexport_bot.execution.listing.list_workarounds", lambda: (ours, other))
    assert main(["workarounds", "list", "--backend", "executorch", "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)] == [other.id]


def test_a_workaround_that_no_longer_finds_its_target_fails_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = WorkaroundInfo(
        id="dynamo/model_patches/x",
        kind="patch",
        backend=Backend.DYNAMO,
        stage="model_patches",
        reason="r",
        targets=("a.b",),
        unresolved=("a.b",),
    )
    monkeypatch.setattr("hfexport_bot.execution.listing.list_workarounds", lambda: (lost,))
    assert main(["workarounds", "list"]) == 1
    assert "dynamo/model_patches/x: a.b does not resolve" in capsys.readouterr().out


def test_the_list_is_written_into_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("no markers")
    monkeypatch.setattr("hfexport_bot.execution.listing.list_workarounds", lambda: ())
    assert main(["workarounds", "list", "--update", str(page)]) == 2
    assert f"{page}: it has no place for the stage reference" in capsys.readouterr().err
    page.write_text(f"{BEGIN}\n{END}")
    assert main(["workarounds", "list", "--update", str(page), "--backend", "onnx"]) == 2
    assert main(["workarounds", "list", "--update", str(page)]) == 0
    assert capsys.readouterr().out == f"0 workarounds written to {page}\n"
    assert "**`ir_fixes`**" in page.read_text()
