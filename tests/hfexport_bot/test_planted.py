"""Faults planted in small copies of real models, through the whole of ``run``: each gets its verdict, its stage, line
and, where there is one, the upstream issue; changed lines that nothing runs are told."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping

import pytest

from hfexport_bot.cli import main
from hfexport_bot.reporting.markdown import render
from hfexport_bot.schema import CaseReport, OutcomeKind, Report, VerdictKind
from tests.hfexport_bot.conftest import Repository

pytestmark = [pytest.mark.export, pytest.mark.process]

BERT, VIT = "zoo/modeling_bert.py", "zoo/modeling_vit.py"

#: By class, the file, an own line of its forward, and what replaces it.
FAULTS = {
    "BertForSequenceClassification": (  # a data-dependent branch
        BERT,
        "        pooled_output = self.dropout(pooled_output)\n",
        "        if pooled_output.abs().max() > 100:\n"
        "            pooled_output = pooled_output.clamp(-100, 100)\n"
        "        pooled_output = self.dropout(pooled_output)\n",
    ),
    "BertForTokenClassification": (  # an in-place write on a view
        BERT,
        "        logits = self.classifier(sequence_output)\n",
        "        logits = self.classifier(sequence_output)\n        logits.diagonal(dim1=1, dim2=2).fill_(0)\n",
    ),
    "ViTForImageClassification": (  # an operator without a kernel
        VIT,
        "        logits = self.classifier(pooled_output)\n",
        "        weight = self.classifier.weight.bfloat16()\n"
        "        logits = torch.matmul(pooled_output.bfloat16(), weight.t()).float()\n"
        "        if logits.shape[-1] > 10_000:\n"
        "            logits = logits / 2\n",
    ),
}


def copy_of(model: str) -> dict[str, str]:
    """The installed model's files as those of a repository of its own."""
    folder = importlib.resources.files("transformers") / "models" / model
    names = [f"modeling_{model}.py", f"configuration_{model}.py"]
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    return {
        f"zoo/{name}": text.replace("from ... import", "from transformers import").replace(
            "from ...", "from transformers."
        )
        for name, text in texts.items()
    }


def planted(files: Mapping[str, str]) -> dict[str, str]:
    changed = dict(files)
    for class_name, (path, line, fault) in FAULTS.items():
        before, found, after = changed[path].partition(f"class {class_name}(")
        assert line in after
        changed[path] = before + found + after.replace(line, fault, 1)
    return changed


@pytest.fixture(scope="module")
def change(tmp_path_factory: pytest.TempPathFactory) -> tuple[Repository, dict[str, str]]:
    repository = Repository(tmp_path_factory.mktemp("planted") / "repository")
    files = {**copy_of("bert"), **copy_of("vit")}
    repository.commit(files)
    head = planted(files)
    repository.commit(head)
    return repository, head


@pytest.fixture(scope="module")
def report(change: tuple[Repository, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Report:
    out = tmp_path_factory.mktemp("out")
    options = ["--backend", "onnx", "--source", "synthesised", "--reruns", "0", "--out", str(out), "--quiet"]
    assert main(["run", "--repo", str(change[0].path), "--base", "HEAD~1", *options]) == 1
    return Report.model_validate_json((out / "report.json").read_text())


def case(report: Report, class_name: str) -> CaseReport:
    (found,) = [each for each in report.cases if each.id.class_name == class_name]
    return found


def test_only_the_classes_with_faults_are_run(report: Report) -> None:
    assert {each.id.class_name for each in report.cases} == {*FAULTS}
    assert all(each.base is not None and each.base.kind is OutcomeKind.PASS for each in report.cases)


@pytest.mark.parametrize(
    ("class_name", "outcome", "stage", "line"),
    [
        ("BertForSequenceClassification", "error", "trace", "if pooled_output.abs().max() > 100:"),
        ("BertForTokenClassification", "error", "decompose", "logits.diagonal(dim1=1, dim2=2).fill_(0)"),
        ("ViTForImageClassification", "unsupported", "load", "logits = torch.matmul(pooled_output.bfloat16()"),
    ],
)
def test_a_fault_is_a_regression_at_its_line(
    report: Report,
    change: tuple[Repository, dict[str, str]],
    class_name: str,
    outcome: str,
    stage: str,
    line: str,
) -> None:
    found = case(report, class_name)
    assert (found.verdict, found.outcome, found.stage) == (VerdictKind.REGRESSION, outcome, stage)
    assert found.blame is not None
    assert found.blame.changed
    source = change[1][found.blame.location.file].splitlines()
    assert source[found.blame.location.line - 1].strip().startswith(line)


def test_the_report_links_the_issue_shows_the_lines_and_tells_what_did_not_run(
    report: Report, change: tuple[Repository, dict[str, str]]
) -> None:
    text = render(report)
    assert "microsoft/onnxruntime#26311" in text
    assert "if pooled_output.abs().max() > 100:\n" in text
    assert [(item.file, item.function) for item in report.unreached] == [
        (BERT, "BertForSequenceClassification.forward"),
        (VIT, "ViTForImageClassification.forward"),
    ]
    for item, line in zip(report.unreached, ("clamp(-100, 100)", "logits / 2"), strict=True):
        ((first, last),) = item.lines
        assert first == last
        assert line in change[1][item.file].splitlines()[first - 1]
    assert "2 changed lines not run" in text.splitlines()[0]
    assert "### Changed lines that no case ran" in text
