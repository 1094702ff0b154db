"""Ten faults planted in small copies of real models, through the whole of ``run``: each gets its verdict, its stage,
line and, where there is one, the upstream issue; changed lines that nothing runs are told."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from hfexport_bot.cli import main
from hfexport_bot.reporting.eager import eager_cell
from hfexport_bot.reporting.markdown import render
from hfexport_bot.schema import Backend, CaseReport, OutcomeKind, Report, Task, VerdictKind
from tests.hfexport_bot.conftest import Repository

pytestmark = [pytest.mark.export, pytest.mark.process]


@dataclass(frozen=True)
class Fault:
    """``edits``: a definition of the model's file, a line of it, and what replaces that. ``backend``: the quickest that
    shows it; ``task``: the one whose case is looked at."""

    model: str
    class_name: str
    edits: tuple[tuple[str, str, str], ...]
    backend: Backend = Backend.DYNAMO
    task: Task = Task.FORWARD


FAULTS = {
    "data_dependent_branch": Fault(
        "bert",
        "BertForSequenceClassification",
        (
            (
                "class BertForSequenceClassification(",
                "        pooled_output = self.dropout(pooled_output)\n",
                "        if pooled_output.abs().max() > 100:\n"
                "            pooled_output = pooled_output.clamp(-100, 100)\n"
                "        pooled_output = self.dropout(pooled_output)\n",
            ),
        ),
    ),
    "write_on_a_view": Fault(
        "bert",
        "BertForTokenClassification",
        (
            (
                "class BertForTokenClassification(",
                "        logits = self.classifier(sequence_output)\n",
                "        logits = self.classifier(sequence_output)\n        logits.diagonal(dim1=1, dim2=2).fill_(0)\n",
            ),
        ),
        backend=Backend.ONNX,
    ),
    "no_kernel": Fault(
        "vit",
        "ViTForImageClassification",
        (
            (
                "class ViTForImageClassification(",
                "        logits = self.classifier(pooled_output)\n",
                "        weight = self.classifier.weight.bfloat16()\n"
                "        logits = torch.matmul(pooled_output.bfloat16(), weight.t()).float()\n"
                "        if logits.shape[-1] > 10_000:\n"
                "            logits = logits / 2\n",
            ),
        ),
        backend=Backend.ONNX,
    ),
    "dtype_slip": Fault(
        "mistral",
        "MistralModel",
        (("class MistralRMSNorm(", "hidden_states.to(torch.float32)", "hidden_states.to(torch.float64)"),),
    ),
    "dropped_mask": Fault(
        "bert",
        "BertModel",
        (
            (
                "class BertSelfAttention(",
                "        attention_interface: Callable =",
                "        if torch.compiler.is_exporting():\n"
                "            attention_mask = None\n"
                "        attention_interface: Callable =",
            ),
        ),
    ),
    "growing_cache": Fault(
        "mistral",
        "MistralForCausalLM",
        (
            (
                "class MistralAttention(",
                "            key_states, value_states = cache.update(key_states, value_states, self.layer_idx, "
                "kwargs=kwargs)\n",
                "            layer = cache.layers[self.layer_idx]\n"
                "            before = (layer.keys, layer.values) if layer.is_initialized else None\n"
                "            cache.update(key_states, value_states, self.layer_idx, kwargs=kwargs)\n"
                "            if before is not None:\n"
                "                key_states = torch.cat([before[0], key_states], dim=-2)\n"
                "                value_states = torch.cat([before[1], value_states], dim=-2)\n"
                "            layer.keys, layer.values = key_states, value_states\n",
            ),
        ),
        task=Task.GENERATE,
    ),
    "renamed_output": Fault(
        "bert",
        "BertForPreTraining",
        (
            ("class BertForPreTrainingOutput(", "    seq_relationship_logits: torch", "    nsp_logits: torch"),
            ("class BertForPreTraining(", "seq_relationship_logits=seq", "nsp_logits=seq"),
        ),
    ),
    "baked_shape": Fault(
        "bert",
        "BertForMaskedLM",
        (
            (
                "class BertEmbeddings(",
                "        batch_size, seq_length = input_shape\n",
                "        batch_size, seq_length = input_shape[0], int(input_shape[1])\n",
            ),
        ),
    ),
    "changed_attention": Fault(
        "vit", "ViTModel", (("class ViTPreTrainedModel(", "_supports_sdpa = True", "_supports_sdpa = False"),)
    ),
    "extra_constant": Fault(
        "bert",
        "BertForQuestionAnswering",
        (
            (
                "class BertEmbeddings(",
                "        # position_ids (1, len position emb)",
                "        self.table = nn.Buffer(torch.linspace(0, 1, 2048 * config.hidden_size).view(2048, -1))\n"
                "        # position_ids (1, len position emb)",
            ),
            (
                "class BertEmbeddings(",
                "        embeddings = embeddings + position_embeddings\n",
                "        embeddings = embeddings + position_embeddings + self.table[position_ids]\n",
            ),
        ),
    ),
}


def path_of(name: str) -> str:
    return f"zoo/{name}/modeling_{FAULTS[name].model}.py"


def copy_for(name: str) -> dict[str, str]:
    """The installed model's files as those of a repository of its own, which offers one class of them."""
    model, class_name = FAULTS[name].model, FAULTS[name].class_name
    folder = importlib.resources.files("transformers") / "models" / model
    files = {}
    for file in (f"modeling_{model}.py", f"configuration_{model}.py"):
        text = (folder / file).read_text(encoding="utf-8")
        text = text.replace("from ... import", "from transformers import").replace("from ...", "from transformers.")
        files[f"zoo/{name}/{file}"] = text
    offered = re.compile(r"^__all__ = \[.*?\]", re.DOTALL | re.MULTILINE)
    files[path_of(name)] = offered.sub(f'__all__ = ["{class_name}"]', files[path_of(name)])
    return files


def planted(files: Mapping[str, str], name: str) -> dict[str, str]:
    changed = dict(files)
    for definition, line, fault in FAULTS[name].edits:
        before, found, after = changed[path_of(name)].partition(f"\n{definition}")
        assert line in after
        changed[path_of(name)] = before + found + after.replace(line, fault, 1)
    return changed


def run(backend: Backend, folders: pytest.TempPathFactory) -> tuple[Report, dict[str, str]]:
    """The faults of one backend in one repository, and head's files."""
    names = [name for name, fault in FAULTS.items() if fault.backend is backend]
    repository = Repository(folders.mktemp("planted") / "repository")
    files = {path: text for name in names for path, text in copy_for(name).items()}
    repository.commit(files)
    for name in names:
        files = planted(files, name)
    repository.commit(files)
    out = folders.mktemp("out")
    options = ["--backend", backend.value, "--source", "synthesised", "--reruns", "0", "--out", str(out), "--quiet"]
    options += [each for task in {FAULTS[name].task for name in names} for each in ("--task", task.value)]
    assert main(["run", "--repo", str(repository.path), "--base", "HEAD~1", *options]) == 1
    return Report.model_validate_json((out / "report.json").read_text()), files


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[Backend, tuple[Report, dict[str, str]]]:
    return {backend: run(backend, tmp_path_factory) for backend in (Backend.DYNAMO, Backend.ONNX)}


Reports = Mapping[Backend, tuple[Report, dict[str, str]]]


def case(reports: Reports, name: str) -> CaseReport:
    report, _ = reports[FAULTS[name].backend]
    found = [each for each in report.cases if each.id.model.startswith(f"zoo/{name}/")]
    (one,) = [each for each in found if each.id.task is FAULTS[name].task and each.id.variant is None]
    return one


def test_only_the_classes_with_faults_are_run(reports: Reports) -> None:
    ran = [each for report, _ in reports.values() for each in report.cases]
    assert {each.id.class_name for each in ran} == {fault.class_name for fault in FAULTS.values()}
    assert all(each.base is not None and each.base.kind is OutcomeKind.PASS for each in ran)


@pytest.mark.parametrize(
    ("name", "outcome", "stage", "line", "details"),
    [
        ("data_dependent_branch", "error", "trace", "if pooled_output.abs().max() > 100:", ()),
        ("write_on_a_view", "error", "decompose", "logits.diagonal(dim1=1, dim2=2).fill_(0)", ()),
        ("no_kernel", "unsupported", "load", "logits = torch.matmul(pooled_output.bfloat16()", ()),
        (
            "dropped_mask",
            "parity",
            "parity",
            "if torch.compiler.is_exporting():",
            ("inputs without use: now attention_mask",),
        ),
        ("growing_cache", "error", "eager", "attn_output, attn_weights = attention_interface(", ()),
        (
            "baked_shape",
            "error",
            "run",
            "batch_size, seq_length = input_shape[0], int(input_shape[1])",
            ("input input_ids, axis 1: dynamic → static",),
        ),
    ],
)
def test_a_fault_is_a_regression_at_its_line(
    reports: Reports, name: str, outcome: str, stage: str, line: str, details: tuple[str, ...]
) -> None:
    found = case(reports, name)
    assert (found.verdict, found.outcome, found.stage) == (VerdictKind.REGRESSION, outcome, stage)
    assert found.blame is not None
    assert found.blame.suspected is (outcome == "parity")
    assert found.blame.changed is (name != "growing_cache"), "the cache is too long where it is read"
    source = reports[FAULTS[name].backend][1][found.blame.location.file].splitlines()
    assert source[found.blame.location.line - 1].strip().startswith(line)
    assert set(details) <= {*found.details}


@pytest.mark.parametrize(
    ("name", "verdict", "detail", "eager"),
    [
        ("dtype_slip", "interface", "computes in: now float64", "unchanged"),
        ("renamed_output", "interface", "output gone: seq_relationship_logits", "moved"),
        ("renamed_output", "interface", "output new: nsp_logits", "moved"),
        (
            "changed_attention",
            "interface",
            "operators: no more aten.scaled_dot_product_attention.default; now ",
            "unchanged",
        ),
        ("extra_constant", "drift", r"\d+ → \d+ bytes", "not comparable"),
    ],
)
def test_what_moved_is_told_of_a_fault_that_passes(
    reports: Reports, name: str, verdict: str, detail: str, eager: str
) -> None:
    found = case(reports, name)
    assert (found.verdict, found.outcome) == (verdict, OutcomeKind.PASS)
    assert any(re.match(detail, each) for each in found.details), found.details
    assert eager_cell([found]) == eager


def test_the_report_links_the_issue_shows_the_lines_and_tells_what_did_not_run(reports: Reports) -> None:
    texts = {backend: render(report) for backend, (report, _) in reports.items()}
    assert "microsoft/onnxruntime#26311" in texts[Backend.ONNX]
    text = texts[Backend.DYNAMO]
    assert text.index("### Interface") < text.index("### Regressions") < text.index("### Drift")
    assert "if pooled_output.abs().max() > 100:\n" in text
    assert "where what this case ran of the change begins" in text
    assert re.search(r"axis 1 of input_ids is \d+ and was exported as \d+, fixed", text)
    for backend, name, function, line in (
        (Backend.DYNAMO, "data_dependent_branch", "BertForSequenceClassification.forward", "clamp(-100, 100)"),
        (Backend.ONNX, "no_kernel", "ViTForImageClassification.forward", "logits / 2"),
    ):
        report, files = reports[backend]
        (item,) = report.unreached
        assert (item.file, item.function) == (path_of(name), function)
        ((first, last),) = item.lines
        assert first == last
        assert line in files[item.file].splitlines()[first - 1]
        assert "1 changed line not run" in texts[backend].splitlines()[0]
        assert "### Changed lines that no case ran" in texts[backend]
