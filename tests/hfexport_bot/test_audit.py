"""Audits of workarounds: which cases are run, how often, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.cli import main
from hfexport_bot.execution.client import RunResult
from hfexport_bot.reporting.audits import render_audit
from hfexport_bot.reporting.writing import write_reports
from hfexport_bot.schema import (
    Audit,
    Backend,
    CaseId,
    CaseReport,
    CaseRequest,
    Need,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    RunnerSetup,
    VerdictKind,
    WorkaroundInfo,
)

MODEL = "class {0}(PreTrainedModel):\n    def forward(self): return 1\n"
KNOWN = [
    WorkaroundInfo(id=f"onnx/optimize/{name}", kind="no_optimize", backend=Backend.ONNX, stage="optimize", reason=name)
    for name in ("needed", "idle", "stuck", "unhit")
]
SKIP = "onnx/source/old_skip"
FAILS = Outcome(kind=OutcomeKind.ERROR, stage="translate", message="no translation\nof x")
#: What each class comes to as it is.
AS_IT_IS = {
    "AModel": Outcome(kind=OutcomeKind.PASS, seconds=2, workarounds={each.id: 1 for each in KNOWN[:3]}),
    "BModel": Outcome(kind=OutcomeKind.SKIPPED, seconds=1, workarounds={SKIP: 1}),
}
WITHOUT = {
    "onnx/optimize/needed": FAILS,
    "onnx/optimize/stuck": Outcome(kind=OutcomeKind.TIMEOUT, stage="optimize", message="over 5 s"),
}


class Runner:
    """Stands in for the runner, and keeps each batch: class and what is off."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, tuple[str, ...]]]] = []

    def __call__(self, setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        self.batches.append([(each.id.class_name, each.disabled) for each in requests])
        outcomes = {
            each.id: WITHOUT.get(each.disabled[0], Outcome(kind=OutcomeKind.PASS))
            if each.disabled
            else AS_IT_IS.get(each.id.class_name, Outcome(kind=OutcomeKind.PASS))
            for each in requests
        }
        return RunResult(outcomes, {"onnx": "1.23"})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    for name in ("a", "b"):
        (tmp_path / "tree" / f"modeling_{name}.py").write_text(MODEL.format(f"{name.upper()}Model"))
    return tmp_path / "tree"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    cases = tuple(
        CaseReport(
            id=CaseId(model=f"modeling_{name[0].lower()}", class_name=name, backend=Backend.ONNX),
            verdict=VerdictKind.NO_BASELINE,
            outcome=outcome.kind,
            head=outcome,
        )
        for name, outcome in {**AS_IT_IS, "GoneModel": AS_IT_IS["AModel"]}.items()
    )
    report = Report(command="check", head=Revision(name="x"), cases=cases)
    return write_reports(report, tmp_path / "out")["report.json"]


@pytest.fixture
def audit(tree: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Audit, Runner]]:
    def work(*arguments: str, known: Sequence[WorkaroundInfo] = KNOWN) -> tuple[int, Audit, Runner]:
        runner = Runner()
        command = ["workarounds", "audit", *arguments, "--tree", str(tree), "--json", "-q", "--jobs", "1"]
        code = main(command, run_cases=runner, list_workarounds=lambda: known)
        return code, Audit.model_validate_json(capsys.readouterr().out), runner

    return work


def test_what_a_record_hit_is_run_as_it_is_and_then_with_one_thing_off(
    audit: Callable[..., tuple[int, Audit, Runner]], record: Path
) -> None:
    code, found, runner = audit("--record", str(record))
    assert runner.batches[0] == [("AModel", ()), ("BModel", ())], "a class that is gone is passed over"
    off = [sorted(batch) for batch in runner.batches[1:]]
    assert off == [
        [("AModel", ("onnx/optimize/idle",)), ("BModel", (SKIP,))],
        [("AModel", ("onnx/optimize/needed",))],
        [("AModel", ("onnx/optimize/stuck",))],
    ]
    needs = {each.id: each.need for each in found.workarounds}
    assert needs == {
        "onnx/optimize/idle": Need.NOT_NEEDED,
        "onnx/optimize/needed": Need.NEEDED,
        "onnx/optimize/stuck": Need.UNKNOWN,
        SKIP: Need.NOT_NEEDED,
    }
    said = {each.id: each.said for each in found.workarounds}
    assert said["onnx/optimize/needed"] == "modeling_a/AModel/onnx/dynamic/forward: error at translate: no translation"
    assert found.versions == {"onnx": "1.23"}
    assert code == 1


def test_nothing_to_remove_is_zero(audit: Callable[..., tuple[int, Audit, Runner]], record: Path) -> None:
    code, found, runner = audit("onnx/optimize/needed", "onnx/optimize/unhit", "--record", str(record))
    assert [len(batch) for batch in runner.batches] == [1, 1]
    assert [(each.need, each.said) for each in found.workarounds][1] == (Need.UNKNOWN, "no case hits it")
    assert code == 0


def test_named_cases_and_those_of_a_skips_own_models(audit: Callable[..., tuple[int, Audit, Runner]]) -> None:
    _, found, runner = audit("--case", "modeling_b/BModel/onnx/dynamic/forward")
    assert runner.batches == [[("BModel", ())], [("BModel", (SKIP,))]]
    assert [each.id for each in found.workarounds] == [SKIP]
    aimed = KNOWN[3].model_copy(update={"targets": ("AModel", "static")})
    _, found, runner = audit(aimed.id, known=[aimed])
    assert runner.batches == [[("AModel", ())]]
    assert found.workarounds[0].said == "no case hits it"


REGISTERED = """
from exporters.utils import register_patch

@register_patch("onnx", "modeling_b.BModel.forward", model_change="x")
def _of_b(original):
    'Why.'
"""


@pytest.fixture
def own(tree: Path) -> str:
    """The id of a workaround of the repository's own, which BModel hits."""
    (tree / "export_workarounds.py").write_text(REGISTERED)
    (tree / ".github").mkdir()
    (tree / ".github" / "hfexport.yml").write_text("workarounds: export_workarounds.py\n")
    return "onnx/torch_patches/of_b"


def test_a_repositorys_own_workaround_is_tried_on_the_model_that_it_patches(
    audit: Callable[..., tuple[int, Audit, Runner]], own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(AS_IT_IS, "BModel", Outcome(kind=OutcomeKind.PASS, workarounds={own: 1}))
    code, found, runner = audit(own)
    assert runner.batches == [[("BModel", ())], [("BModel", (own,))]]
    assert (code, found.workarounds[0].need) == (1, Need.NOT_NEEDED)


def test_where_no_case_is_known_it_says_what_to_do(audit: Callable[..., tuple[int, Audit, Runner]], own: str) -> None:
    """Its target is of no model here, and what it may be is not on any list."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hfexport_bot.audit.acting_ids", lambda *_: ("repo:exporter_onnx.patch_x",))
        _, found, runner = audit("repo:exporter_onnx.patch_x")
    assert runner.batches == []
    said = "no case is known that may hit it; name one with --case (its engine is repo: the id ends with @repo)"
    assert found.workarounds[0].said == said


def test_the_summary_names_the_versions_only_where_something_ran() -> None:
    report = Audit(revision=Revision(name="zoo"), seconds=2, versions={"onnx": "1.23"})
    assert render_audit(report) == "nothing audited: zoo, onnx 1.23 in 2.0s"
    assert render_audit(report.model_copy(update={"versions": {}})) == "nothing audited: zoo in 2.0s"


@pytest.mark.parametrize("name", ["nonsense/id", "patch_halve", "onnx/torch_patches/of_a"])
def test_an_unknown_one_is_refused_also_where_the_repository_has_its_own(
    own: str, tree: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["workarounds", "audit", name], ["check", "b", "--disable-workaround", name]):
        runner = Runner()
        assert main([*command, "--tree", str(tree)], run_cases=runner, list_workarounds=lambda: KNOWN) == 2
        said = capsys.readouterr().err
        assert f"unknown workaround {name!r}; did you mean " in said
        assert runner.batches == []
    assert f"did you mean {own}?" in said or name != "onnx/torch_patches/of_a"


def test_wrong_names_are_one_error(tree: Path, record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {
        ("onnx/optimize/nedeed",): "unknown workaround 'onnx/optimize/nedeed'; did you mean onnx/optimize/needed?",
        ("--case", "x"): "--case: 'x' is no case id",
        ("--case", "x/XModel/onnx/dynamic/forward"): "unknown model 'x'",
        ("--record", str(record), "--case", "x"): "give one of them",
    }
    for arguments, said in wrong.items():
        command = ["workarounds", "audit", *arguments, "--tree", str(tree)]
        assert main(command, run_cases=Runner(), list_workarounds=lambda: KNOWN) == 2
        assert said in capsys.readouterr().err


OWN = """
import torch
from transformers import PreTrainedConfig, PreTrainedModel


class OwnConfig(PreTrainedConfig):
    model_type = "own"

    def __init__(self, hidden_size=8, **kwargs):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size


class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.linear = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.post_init()

    def limit(self, x):
        return x.clamp(max=3.0) if x.max() > 3.0 else x

    def same(self, x):
        return x * 1.0

    def forward(self, inputs_embeds):
        return (self.same(self.limit(self.linear(inputs_embeds))),)
"""
OWN_WORKAROUNDS = """
from exporters.utils import register_patch


@register_patch("dynamo", "modeling_own.OwnModel.limit", model_change="clamp always")
def _clamp_always(original):
    "A limit that is only applied where it is needed."
    return lambda self, x: x.clamp(max=3.0)


@register_patch("dynamo", "modeling_own.OwnModel.same", model_change="nothing")
def _of_no_use(original):
    "Nothing."
    return lambda self, x: original(self, x)
"""


@pytest.mark.process
@pytest.mark.export
def test_a_real_audit_keeps_what_is_needed_and_gives_up_what_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "modeling_own.py": OWN,
        "own_workarounds.py": OWN_WORKAROUNDS,
        "own_cases.py": "import torch\nfrom modeling_own import OwnConfig, OwnModel\n"
        "def build(class_name, seed):\n    torch.manual_seed(seed)\n"
        "    return {'model': OwnModel(OwnConfig()).eval(), 'inputs': {'inputs_embeds': torch.randn(2, 5, 8)}}\n",
        ".github/hfexport.yml": "workarounds: own_workarounds.py\ncases: own_cases.py:build\n",
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    case = "modeling_own/OwnModel/dynamo/dynamic/forward"
    ids = [f"dynamo/model_patches/{name}" for name in ("clamp_always", "of_no_use")]
    code = main(["workarounds", "audit", *ids, "--tree", str(tmp_path), "--json", "--jobs", "1"])
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    audited = {each["id"].rpartition("/")[2]: each for each in found["workarounds"]}
    assert audited["clamp_always"]["need"] == "still needed", audited
    assert "at trace" in audited["clamp_always"]["said"]
    assert audited["of_no_use"]["need"] == "no longer needed"
    assert audited["of_no_use"]["said"] == f"{case} passes without it"
    assert {"torch", "transformers"} <= found["versions"].keys()
    assert code == 1
    assert printed.err.count("runner ready") == 1, "one runner for all"
