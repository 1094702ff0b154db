"""From a change to a checkout's own exporters to the classes it affects."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.exporters import recorded_hits
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import CaseId, CaseReport, Layout, Outcome, OutcomeKind, Report, Revision, VerdictKind

FOLDER = "src/transformers/exporters"
MODEL = "class {}(PreTrainedModel):\n    def forward(self): return 1\n"
MODELS = {
    f"src/transformers/models/{model}/modeling_{model}.py": "".join(MODEL.format(name) for name in names)
    for model, names in {
        "bert": ("BertModel", "BertForMaskedLM"),
        "llama": ("LlamaModel", "LlamaForCausalLM"),
        "gpt2": ("GPT2LMHeadModel",),
        "nllb_moe": ("NllbMoeModel",),
    }.items()
}
UTILS = """
_PATCHES = {}
def register_patch(backend, *paths): ...
def apply_patches(backend): return _PATCHES
def mask_of(x): return x + 1
"""
ONNX = """
from .utils import apply_patches, mask_of, register_patch
from .exporter_dynamo import DynamoExporter

class OnnxExporter(DynamoExporter):
    def export(self): return apply_patches("onnx"), _ONNX_TRANSLATION_TABLE

@register_patch("onnx", "torch.where")
def _patch_where(original):
    '''Why.'''
    return mask_of(original)

@register_patch("dynamo", "transformers.models.nllb_moe.modeling_nllb_moe.NllbMoeModel.forward")
def _patch_router(original): return None

def _translate_add(x): return x

_ONNX_TRANSLATION_TABLE = {}
if True:
    _ONNX_TRANSLATION_TABLE.update({"add": _translate_add})
"""
DYNAMO = "class DynamoExporter:\n    pass\n"
OPENVINO = "from .exporter_dynamo import DynamoExporter\nclass OpenVINOExporter(DynamoExporter):\n    x = 1\n"
FILES = {"utils": UTILS, "exporter_onnx": ONNX, "exporter_dynamo": DYNAMO, "exporter_openvino": OPENVINO}
BERT = CaseId.parse("bert/BertForMaskedLM/onnx/dynamic/forward")
LLAMA = CaseId.parse("llama/LlamaForCausalLM/onnx/dynamic/forward")


def run(name: str, old: str, new: str, hits: dict[CaseId, tuple[str, ...]] | None = None, **also: str) -> Selection:
    """What a replacement in one exporter file affects; ``also``: models that changed too."""
    base = {**MODELS, **{f"{FOLDER}/{file}.py": text for file, text in FILES.items()}}
    assert old in FILES[name]
    path = f"{FOLDER}/{name}.py"
    head = base | {path: FILES[name].replace(old, new)}
    changes = [FileChange(path, path)]
    for model, text in also.items():
        changed = f"src/transformers/models/{model}/modeling_{model}.py"
        head[changed] += text
        changes.append(FileChange(changed, changed))
    return select(changes, MappingTree(base), MappingTree(head), Layout.TRANSFORMERS, hits)


def affected(selection: Selection) -> dict[str, str]:
    return {name: module.reason for module in selection.affected for name in module.head_classes}


SAMPLE = ["BertModel", "LlamaForCausalLM"]


def test_a_changed_patch_selects_the_cases_it_acted_on() -> None:
    hits = {BERT: ("repo:exporter_onnx._patch_where",), LLAMA: ("repo:exporter_onnx._patch_other",)}
    found = affected(run("exporter_onnx", "return mask_of(original)", "return original", hits))
    assert found == {
        "BertForMaskedLM": "exporters/exporter_onnx.py: _patch_where changed, hit by "
        "bert/BertForMaskedLM/onnx/dynamic/forward"
    }


def test_what_a_patch_uses_selects_its_cases_across_files() -> None:
    hits = {BERT: ("repo:exporter_onnx._patch_where",)}
    found = affected(run("utils", "return x + 1", "return x + 2", hits))
    assert list(found) == ["BertForMaskedLM"]
    assert found["BertForMaskedLM"].startswith("exporters/utils.py: mask_of changed, which _patch_where uses, hit by")


def test_a_translation_acts_on_its_own() -> None:
    hits = {LLAMA: ("repo:exporter_onnx._translate_add",)}
    assert list(affected(run("exporter_onnx", "(x): return x", "(x): return -x", hits))) == ["LlamaForCausalLM"]


def test_a_patch_of_models_selects_them_where_no_case_is_known() -> None:
    found = affected(run("exporter_onnx", "return None", "return original", {}))
    assert list(found) == ["NllbMoeModel"]
    assert found["NllbMoeModel"].endswith("which patches modeling_nllb_moe")


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        (
            "exporter_onnx",
            "mask_of(original)",
            "original",
            "_patch_where changed, and no case is known that it acts on",
        ),
        ("exporter_dynamo", "pass", "strict = True", "exporters/exporter_dynamo.py: DynamoExporter changed"),
        ("utils", "return _PATCHES", "return {}", "exporters/utils.py: apply_patches changed"),
        ("exporter_onnx", '{"add": _translate_add}', "{}", "_ONNX_TRANSLATION_TABLE changed"),
        ("exporter_onnx", "class", "clas s", "exporters/exporter_onnx.py changed"),
    ],
)
def test_a_sample_stands_for_all_where_nothing_tells(name: str, old: str, new: str, reason: str) -> None:
    found = affected(run(name, old, new, {LLAMA: ("repo:utils._other",)}))
    assert list(found) == SAMPLE
    assert all(reason in each for each in found.values())
    assert found["BertModel"].startswith("sample, an encoder: ")


def test_comments_and_other_formats_affect_nothing() -> None:
    assert run("exporter_onnx", "'''Why.'''", "'''Why it is.'''", {}) == Selection()
    selection = run("exporter_openvino", "x = 1", "x = 2", {})
    assert selection.affected == ()
    assert [entry.name for entry in selection.not_run] == [f"{FOLDER}/exporter_openvino.py"]


def test_without_engine_repo_exporters_affect_nothing_and_it_is_said_why() -> None:
    selection = run("exporter_dynamo", "pass", "strict = True", None)
    assert selection.affected == ()
    (entry,) = selection.not_run
    assert entry.reason == "the engine own does not use the checkout's exporters; --engine repo or both does"


def test_a_model_that_changed_too_keeps_its_classes_and_both_reasons() -> None:
    hits = {BERT: ("repo:exporter_onnx._patch_where",)}
    (module,) = run("exporter_onnx", "mask_of(original)", "original", hits, bert="\nBertModel.x = 1\n").affected
    assert set(module.head_classes) == {"BertModel", "BertForMaskedLM"}
    assert module.reason_of("BertModel") == "BertModel changed in modeling_bert.py"
    assert module.reason_of("BertForMaskedLM").startswith("exporters/exporter_onnx.py: _patch_where changed")


def test_hits_are_read_from_both_sides_of_reports() -> None:
    def outcome(*names: str) -> Outcome:
        return Outcome(kind=OutcomeKind.PASS, workarounds=dict.fromkeys(names, 2))

    case = CaseReport(
        id=BERT,
        verdict=VerdictKind.OK,
        outcome=OutcomeKind.PASS,
        base=outcome("repo:utils.a", "onnx/node_fixes/own"),
        head=outcome("repo:utils.b"),
    )
    report = Report(
        command="run", head=Revision(name="head"), cases=(case, case.model_copy(update={"id": LLAMA, "base": None}))
    )
    assert recorded_hits([report]) == {BERT: {"repo:utils.a", "repo:utils.b"}, LLAMA: {"repo:utils.b"}}
