from __future__ import annotations

import pytest

from hfexport_bot.changes.expectations import (
    expectation_files,
    is_told_by_expectations,
    read_expectations,
    with_expectations,
)
from hfexport_bot.changes.layout import ModelFile
from hfexport_bot.changes.named import Asked
from hfexport_bot.changes.selection import ONLY_CHECKS, AffectedModule, Selection
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.plan import Engines, plan_cases, plan_entries
from hfexport_bot.schema import Backend, CaseId, Engine, NotRun, Shapes, Task

TABLES = "tests/exporters/test_export.py"
LED = "tests/models/led/test_modeling_led.py"
SKIPS = """
from typing import Any

EXPORT_SKIPS: dict[str, dict[str, str]] = {
    "all": {"AModel": "it is " "slow"},
    "onnx.generate": {"BModel": f"{1}", **more},
    "executorch.static": {"CModel": "memory"},
}
ONNX_DISABLE_OPTIMIZE = {"dynamic": {"DModel": "optimizer"}}
OTHER = {"all": {"EModel": "not ours"}}
"""
TEST = """
class LEDModelTest(ModelTesterMixin, TestCase):
    all_model_classes = (LEDModel, LEDForConditionalGeneration) if is_torch_available() else ()
    test_torch_exportable = False  # windows depend on data


class OtherTest(LEDModelTest):
    test_torch_exportable = True
"""


def covered(tree: MappingTree, *cases: str) -> list[str]:
    entries = read_expectations(tree, tree.files())
    return [case for case in cases if any(entry.covers(CaseId.parse(case)) for entry in entries)]


def test_scopes_say_which_cases_of_the_repositorys_own_engine_an_entry_is_for() -> None:
    tree = MappingTree({TABLES: SKIPS})
    theirs = (
        "x/AModel/dynamo/static/forward@repo",
        "x/y/AModel/onnx/dynamic/generate+sdpa@repo",
        "x/BModel/onnx/static/generate@repo",
        "x/CModel/executorch/static/forward@repo",
        "x/DModel/onnx/dynamic/forward@repo",
    )
    others = (
        "x/AModel/dynamo/static/forward",
        "x/BModel/onnx/dynamic/forward@repo",
        "x/CModel/executorch/dynamic/forward@repo",
        "x/CModel/onnx/static/forward@repo",
        "x/DModel/executorch/dynamic/forward@repo",
        "x/EModel/onnx/dynamic/forward@repo",
    )
    assert covered(tree, *theirs, *others) == [*theirs]
    assert [(str(each), each.reason) for each in read_expectations(tree, [TABLES])] == [
        ('EXPORT_SKIPS["all"]["AModel"]', "it is slow"),
        ('EXPORT_SKIPS["onnx.generate"]["BModel"]', ""),
        ('EXPORT_SKIPS["executorch.static"]["CModel"]', "memory"),
        ('ONNX_DISABLE_OPTIMIZE["dynamic"]["DModel"]', "optimizer"),
    ]


def test_a_test_class_that_is_not_exportable_stands_for_the_classes_that_it_tests() -> None:
    tree = MappingTree({LED: TEST})
    case = "led/LEDModel/onnx/dynamic/forward@repo"
    assert covered(tree, case, "bart/LEDModel/onnx/dynamic/forward@repo", "led/LEDOther/onnx/dynamic/forward@repo") == [
        case
    ]
    assert {each.reason for each in read_expectations(tree, [LED])} == {"windows depend on data"}
    unlisted = MappingTree({LED: "class LEDModelTest:\n    test_torch_exportable = False\n"})
    assert covered(unlisted, "led/LEDOther/onnx/dynamic/forward@repo")


@pytest.mark.parametrize(
    "source", ["EXPORT_SKIPS = (", "EXPORT_SKIPS = make()", "EXPORT_SKIPS: dict", "EXPORT_SKIPS = {1: 2}"]
)
def test_what_cannot_be_read_expects_nothing(source: str) -> None:
    assert read_expectations(MappingTree({TABLES: source}), [TABLES, LED]) == ()


def test_only_the_files_of_the_models_at_hand_are_read() -> None:
    paths = [TABLES, LED, "tests/models/bert/test_modeling_bert.py", "tests/test_modeling_common.py"]
    assert expectation_files(paths, {"led"}) == (TABLES, LED)
    assert len(expectation_files(paths)) == 3


def test_entries_that_come_or_go_select_their_classes() -> None:
    base = MappingTree({TABLES: SKIPS, LED: TEST})
    head = MappingTree({TABLES: SKIPS.replace("AModel", "ZModel"), LED: TEST.replace("False", "True")})
    asked = with_expectations(Asked(globs=(("x", "y"),)), base, head)
    assert asked.sources == {TABLES, LED}
    assert [glob for glob, _ in asked.globs] == [
        *("x", "*/AModel/*", "*/ZModel/*", "led/LEDForConditionalGeneration/*", "led/LEDModel/*")
    ]
    assert asked.globs[1][1] == f'EXPORT_SKIPS["all"]["AModel"] was removed in {TABLES}'
    assert with_expectations(Asked(), base, base) == Asked()


def test_an_entry_of_another_task_or_kind_of_shapes_gets_cases_of_its_own() -> None:
    file = ModelFile("m.py", "m", "x")
    names = ("BModel", "CModel", "DModel")
    module = AffectedModule(file, file, names, names, "r", base_generating=names, head_generating=names)
    selection, engines = Selection((module,)), Engines(tuple(Engine), tuple(Engine))
    backends, shapes = (Backend.ONNX, Backend.EXECUTORCH), (Shapes.DYNAMIC,)
    planned = plan_cases(selection, backends, shapes, (Task.FORWARD,), (), engines)
    entries = read_expectations(MappingTree({TABLES: SKIPS}), [TABLES])
    more = plan_entries(planned, entries, selection, backends, shapes, engines)
    assert [str(case.id) for case in more] == [
        "x/BModel/onnx/dynamic/generate@repo",
        "x/CModel/executorch/static/forward@repo",
        "x/CModel/executorch/static/generate@repo",
    ]


def test_a_switch_that_turned_is_no_check_that_was_passed_over() -> None:
    for name, told in {LED: True, f"{LED}:LEDModelTest.test_torch_exportable": True, f"{LED}:X.test_y": False}.items():
        assert is_told_by_expectations(NotRun(kind="symbol", name=name, reason=ONLY_CHECKS), {LED}) is told
    assert not is_told_by_expectations(NotRun(kind="file", name=LED, reason="other"), {LED})
