"""The promise itself: what it names exists, and it is as wide as it says."""

from __future__ import annotations

from hfexport_bot.schema import Backend, CaseId, Shapes, Task
from tests.reach.classes import PROMISED, QUICK, QUICK_GENERATE, is_quick, promised_cases
from tests.reach.sweep import plan_of, summary


def test_every_promised_case_can_be_planned() -> None:
    wanted = set(promised_cases())
    _, planned = plan_of(wanted)
    assert {case.id for case in planned} == wanted


def test_the_promise_covers_each_backend_both_shapes_and_generation() -> None:
    cases = set(promised_cases())
    assert len(PROMISED) == 55
    assert CaseId.parse("bert/BertModel/executorch/static/forward") in cases
    assert {case.backend for case in cases if case.task is Task.GENERATE} == set(Backend)
    generating = {case.model for case in cases if case.task is Task.GENERATE}
    silent = {"distilbert", "deberta_v2", "albert", "modernbert"}
    silent |= {"wav2vec2", "hubert", "musicgen"}
    silent |= {"detr", "yolos", "sam", "clip", "siglip", "layoutlmv3", "patchtst"}
    silent |= {"vit", "deit", "swin", "swinv2", "convnext", "resnet", "dinov2", "segformer", "videomae"}
    assert set(PROMISED) - generating == silent
    assert {case.shapes for case in cases if case.task is Task.GENERATE} == {Shapes.DYNAMIC}


def test_the_quick_part_is_base_classes_dynamic_and_some_generation() -> None:
    quick = {str(case) for case in promised_cases() if is_quick(case)}
    assert {f"bert/BertModel/{backend}/dynamic/forward" for backend in Backend} <= quick
    assert {f"llama/LlamaForCausalLM/{backend}/dynamic/generate" for backend in ("dynamo", "onnx")} <= quick
    assert "mamba/MambaModel/executorch/dynamic/forward" in quick
    assert not {"mamba/MambaModel/onnx/dynamic/forward", "bert/BertModel/onnx/static/forward"} & quick
    assert len(quick) == sum(map(len, [*QUICK.values(), *QUICK_GENERATE.values()])) == 27


def test_the_table_has_a_line_for_each_class_shapes_and_task() -> None:
    assert summary([]) == ["type  class  shapes  task  torch.export  ONNX  ExecuTorch", ""]
