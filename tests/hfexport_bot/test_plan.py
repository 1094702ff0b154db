"""From affected classes to cases."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.layout import model_file
from hfexport_bot.changes.selection import AffectedModule, Selection
from hfexport_bot.errors import UsageError
from hfexport_bot.plan import Engines, PlannedCase, choose_engines, not_planned, plan_cases
from hfexport_bot.schema import Backend, CaseId, Engine, EngineChoice, Layout, NotRun, Shapes, Task, Variant

BOTH = model_file("modeling_a.py", Layout.MODELING)
MOVED = model_file("pkg/modeling_a.py", Layout.MODELING)
FORWARD = (Task.FORWARD,)


def ids(cases: tuple[PlannedCase, ...]) -> list[str]:
    return [str(case.id) for case in cases]


def test_cheap_backends_come_first_whatever_order_was_asked() -> None:
    selection = Selection((AffectedModule(BOTH, BOTH, ("A", "B"), ("A", "B"), "changed"),))
    cases = plan_cases(
        selection, (Backend.EXECUTORCH, Backend.DYNAMO, Backend.ONNX), (Shapes.STATIC, Shapes.DYNAMIC), FORWARD
    )
    assert ids(cases)[:5] == [
        "modeling_a/A/dynamo/dynamic/forward",
        "modeling_a/A/dynamo/static/forward",
        "modeling_a/B/dynamo/dynamic/forward",
        "modeling_a/B/dynamo/static/forward",
        "modeling_a/A/onnx/dynamic/forward",
    ]
    assert [case.id.backend for case in cases[-4:]] == [Backend.EXECUTORCH] * 4


def test_removed_and_new_classes_have_one_side() -> None:
    selection = Selection((AffectedModule(BOTH, BOTH, ("Both", "Old"), ("Both", "New"), "changed"),))
    cases = plan_cases(selection, (Backend.DYNAMO,), (Shapes.DYNAMIC,), FORWARD)
    assert [(case.id.class_name, case.base_module, case.head_module) for case in cases] == [
        ("Both", "modeling_a.py", "modeling_a.py"),
        ("New", None, "modeling_a.py"),
        ("Old", "modeling_a.py", None),
    ]


def test_a_moved_class_is_one_case_under_heads_name() -> None:
    selection = Selection((AffectedModule(BOTH, MOVED, ("A", "Old"), ("A",), "moved"),))
    cases = plan_cases(selection, (Backend.DYNAMO,), (Shapes.DYNAMIC,), FORWARD)
    assert cases[0] == PlannedCase(
        CaseId(model="pkg/modeling_a", class_name="A", backend=Backend.DYNAMO),
        "modeling_a.py",
        "pkg/modeling_a.py",
        "moved",
    )
    assert cases[1].id.model == "modeling_a"


def test_nothing_affected_is_nothing_planned() -> None:
    assert plan_cases(Selection(), tuple(Backend), tuple(Shapes), tuple(Task)) == ()


GENERATING = Selection(
    (
        AffectedModule(BOTH, BOTH, ("A", "Lost", "Won"), ("A", "Lost", "Won"), "changed", ("Lost", "A"), ("A", "Won")),
        AffectedModule(None, MOVED, (), ("B",), "added"),
    )
)


def test_generate_runs_on_each_side_what_generates_there() -> None:
    cases = plan_cases(GENERATING, (Backend.DYNAMO,), (Shapes.DYNAMIC,), (Task.GENERATE,))
    assert [(str(case.id), case.base_module, case.head_module) for case in cases] == [
        ("modeling_a/A/dynamo/dynamic/generate", "modeling_a.py", "modeling_a.py"),
        ("modeling_a/Lost/dynamo/dynamic/generate", "modeling_a.py", None),
        ("modeling_a/Won/dynamo/dynamic/generate", None, "modeling_a.py"),
    ]
    assert list(not_planned(GENERATING, (Task.GENERATE,))) == [
        NotRun(kind="class", name="pkg/modeling_a/B", reason="it does not generate")
    ]


def test_a_class_that_is_affected_only_when_it_generates_is_told_where_that_is_not_asked_for() -> None:
    module = AffectedModule(BOTH, BOTH, (), (), "changed", base_generating=("A",), head_generating=("A",))
    selection = Selection((module,))
    assert not plan_cases(selection, (Backend.DYNAMO,), (Shapes.DYNAMIC,), FORWARD)
    (told,) = not_planned(selection, FORWARD)
    assert (told.name, told.reason) == ("modeling_a/A", "affected only when it generates: add --task generate")
    assert len(plan_cases(selection, (Backend.DYNAMO,), (Shapes.DYNAMIC,), (Task.GENERATE,))) == 1
    assert not list(not_planned(selection, (Task.GENERATE,)))


def test_both_tasks_run_side_by_side_and_leave_nothing_out() -> None:
    cases = plan_cases(GENERATING, (Backend.DYNAMO,), tuple(Shapes), (Task.GENERATE, Task.FORWARD))
    assert ids(cases)[:3] == [
        "modeling_a/A/dynamo/dynamic/forward",
        "modeling_a/A/dynamo/dynamic/generate",
        "modeling_a/A/dynamo/static/forward",
    ]
    assert "modeling_a/A/dynamo/static/generate" in ids(cases)
    assert "pkg/modeling_a/B/dynamo/dynamic/generate" not in ids(cases)
    assert not list(not_planned(GENERATING, tuple(Task)))


def test_variants_and_engines_come_beside_the_plain_case() -> None:
    selection = Selection((AffectedModule(BOTH, BOTH, ("A",), ("A",), "changed"),))
    engines = Engines(base=(Engine.OWN,), head=(Engine.OWN, Engine.REPO))
    cases = plan_cases(selection, (Backend.ONNX,), (Shapes.DYNAMIC,), FORWARD, (Variant.CACHE,), engines)
    path = "modeling_a/A/onnx/dynamic/forward"
    assert ids(cases) == [path, f"{path}@repo", f"{path}+cache", f"{path}+cache@repo"]
    assert [case.base_module is None for case in cases] == [False, True, False, True]  # base has no such engine


@pytest.mark.parametrize(
    ("choice", "layout", "base", "head", "expected"),
    [
        ("auto", "transformers", True, True, (["own", "repo"], ["own", "repo"])),
        ("auto", "transformers", False, True, (["own"], ["own", "repo"])),
        ("auto", "transformers", False, False, (["own"], ["own"])),
        ("auto", "installed", True, True, (["own"], ["own"])),
        ("auto", "modeling", True, True, (["own"], ["own"])),
        ("both", "installed", True, True, (["own", "repo"], ["own", "repo"])),
        ("repo", "transformers", True, False, (["repo"], ["repo"])),
        ("auto", "transformers", True, False, (["own", "repo"], ["own", "repo"])),
        ("own", "transformers", True, True, (["own"], ["own"])),
    ],
)
def test_engines_are_those_that_are_there_and_those_that_head_has_lost(
    choice: str, layout: str, base: bool, head: bool, expected: tuple[list[str], list[str]]
) -> None:
    found = choose_engines(EngineChoice(choice), Layout(layout), base, head)
    assert ([each.value for each in found.base], [each.value for each in found.head]) == expected


@pytest.mark.parametrize("choice", ["repo", "both"])
def test_an_engine_that_is_not_there_is_an_error(choice: str) -> None:
    with pytest.raises(UsageError, match=r"no src/transformers/exporters/__init__\.py; use --engine own"):
        choose_engines(EngineChoice(choice), Layout.TRANSFORMERS, False, False)
