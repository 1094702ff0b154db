from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.execution.session import SessionResult
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import Backend, CaseId, Layout, Outcome, OutcomeKind, Variant
from hfexport_bot.verdicts.reaching import of_models, reach_more, share_of, without_untold
from hfexport_bot.verdicts.unreached import changed_code

PATH = "zoo/modeling_tagger.py"
CODE = changed_code(
    MappingTree({PATH: "def f(x):\n    x = 1\n    x = 2\n    x = 3\n"}), {PATH: {2, 3, 4}}, (), Layout.MODELING
)
#: Lines that eager executes with a switch turned.
REACHED = {Variant.EAGER_ATTENTION: (2, 3), Variant.SDPA: (2, 3), Variant.CACHE: (2,)}


def plan(class_name: str, backend: Backend, module: str = PATH) -> PlannedCase:
    case_id = CaseId(model="zoo/modeling_tagger", class_name=class_name, backend=backend)
    return PlannedCase(case_id, module, module, "changed")


def passing(*lines: int) -> Outcome:
    return Outcome(kind=OutcomeKind.PASS, executed={PATH: lines} if lines else {})


class Runs:
    """Stands in for the runners, and keeps what was run. ``kind``: what the variants come to."""

    def __init__(self, kind: OutcomeKind = OutcomeKind.PASS) -> None:
        self.kind = kind
        self.surveyed: list[str] = []
        self.run: list[str] = []

    def __call__(self, cases: Sequence[PlannedCase], survey: bool) -> SessionResult:
        (self.surveyed if survey else self.run).extend(str(case.id) for case in cases)
        ran = {case.id: passing(*REACHED.get(case.id.variant or Variant.TWO_IMAGES, ())) for case in cases}
        outcomes = {case_id: outcome.model_copy(update={"kind": self.kind}) for case_id, outcome in ran.items()}
        return SessionResult(base={} if survey else outcomes, head=outcomes)


def test_the_switches_that_reach_more_are_run_on_every_backend_and_no_other() -> None:
    planned = (plan("Tagger", Backend.DYNAMO), plan("Tagger", Backend.ONNX))
    runs = Runs()
    cases, result = reach_more(
        CODE, planned, SessionResult(head={case.id: passing(2) for case in planned}), runs, Layout.MODELING
    )
    assert len(runs.surveyed) == len(Variant)
    assert all("/dynamo/dynamic/forward+" in each for each in runs.surveyed)
    assert runs.run == [
        "zoo/modeling_tagger/Tagger/dynamo/dynamic/forward+eager_attention",
        "zoo/modeling_tagger/Tagger/onnx/dynamic/forward+eager_attention",
    ]
    assert [case.id for case in cases] == [*(case.id for case in planned), *map(CaseId.parse, runs.run)]
    assert {*result.base} == {*map(CaseId.parse, runs.run)}
    assert [item.lines for item in CODE.unreached(result.head.values())] == [((4, 4),)]


@pytest.mark.parametrize(
    ("kind", "runs_on"), [(OutcomeKind.UNAVAILABLE, 0), (OutcomeKind.SKIPPED, 0), (OutcomeKind.ERROR, 1)]
)
def test_a_switch_with_which_a_model_cannot_be_made_is_not_run_whatever_it_reached(
    kind: OutcomeKind, runs_on: int
) -> None:
    planned = (plan("Tagger", Backend.DYNAMO),)
    runs = Runs(kind)
    reach_more(CODE, planned, SessionResult(head={planned[0].id: passing(2)}), runs, Layout.MODELING)
    assert len(runs.surveyed) == len(Variant)
    assert len(runs.run) == runs_on


def test_nothing_is_tried_where_every_line_ran() -> None:
    planned = (plan("Tagger", Backend.ONNX),)
    result = SessionResult(head={planned[0].id: passing(2, 3, 4)})
    assert reach_more(CODE, planned, result, Runs(), Layout.MODELING) == (planned, result)


def test_only_some_classes_of_the_file_are_tried_and_of_other_files_none() -> None:
    names = ["A", "B", "C", "D"]
    planned = (plan("Other", Backend.ONNX, "other.py"), *(plan(name, Backend.ONNX) for name in names))
    runs = Runs()
    reach_more(CODE, planned, SessionResult(head={case.id: passing(2, 3) for case in planned}), runs, Layout.MODELING)
    assert {each.split("/")[2] for each in runs.surveyed} == {"A", "B", "C"}
    assert runs.run == []


def test_several_jobs_share_the_files_that_they_try_to_reach() -> None:
    source = "def f(x):\n    x = 1\n"
    files = ("a.py", "b.py", "shared.py")
    code = changed_code(MappingTree(dict.fromkeys(files, source)), dict.fromkeys(files, (2,)), (), Layout.MODELING)
    every = [plan("A", Backend.ONNX, "a.py"), plan("B", Backend.ONNX, "b.py")]
    first = share_of(code, every, every[:1], True, Layout.MODELING)
    second = share_of(code, every, every[1:], False, Layout.MODELING)
    assert ([*first.statements], [*second.statements]) == (["a.py", "shared.py"], ["b.py"])
    assert first.lines == code.lines


@pytest.mark.parametrize(
    ("end", "said"), [(OutcomeKind.CRASH, "died"), (OutcomeKind.ERROR, "gave no result"), (None, "never began")]
)
def test_lines_of_a_class_whose_cases_told_nothing_are_not_known(end: OutcomeKind | None, said: str) -> None:
    other = plan("Other", Backend.DYNAMO, "zoo/modeling_other.py")
    planned = (plan("Tagger", Backend.DYNAMO), other)
    outcomes = {other.id: Outcome(kind=OutcomeKind.PASS, executed={})}
    assert CODE.unreached(outcomes.values()) != (), "as it was told before"
    if end:
        outcomes[planned[0].id] = Outcome(kind=end, stage="trace")
    code, entries = without_untold(CODE, planned, outcomes, Layout.MODELING)
    assert code.unreached(outcomes.values()) == ()
    assert [(each.name, each.reason) for each in entries] == [
        (f"{PATH}:f", f"not known whether a case ran lines 2-4: the cases of this file's classes {said}")
    ]
    if said == "died":  # the line where it died did run
        died = {"location": {"file": PATH, "line": 3}, "frames": ({"file": PATH, "line": 3},)}
        outcomes[planned[0].id] = Outcome.model_validate({"kind": "crash", "stage": "trace", **died})
        _, (entry,) = without_untold(CODE, planned, outcomes, Layout.MODELING)
        assert entry.reason.startswith("not known whether a case ran lines 2, 4: ")
    outcomes[plan("Tagger", Backend.ONNX).id] = passing(2)
    planned = (*planned, plan("Tagger", Backend.ONNX))
    code, entries = without_untold(CODE, planned, outcomes, Layout.MODELING)
    assert (entries, [each.lines for each in code.unreached(outcomes.values())]) == ((), [((3, 4),)])


def test_lines_of_a_file_none_of_whose_classes_could_be_built_are_not_known() -> None:
    planned = (plan("Tagger", Backend.DYNAMO), plan("Parser", Backend.DYNAMO))
    lost = Outcome(kind=OutcomeKind.UNAVAILABLE, stage="source", executed={PATH: (2,)})
    outcomes = {case.id: lost for case in planned}
    code, (entry,) = without_untold(CODE, planned, outcomes, Layout.MODELING)
    assert code.unreached(outcomes.values()) == ()
    assert entry.reason == (
        "not known whether a case ran lines 3-4: the cases of this file's classes are unavailable: no model, or no "
        "inputs for it, could be made"
    )
    outcomes[planned[1].id] = passing(3)
    code, entries = without_untold(CODE, planned, outcomes, Layout.MODELING)
    assert (entries, [each.lines for each in code.unreached(outcomes.values())]) == ((), [((4, 4),)])


def test_lines_of_models_that_nobody_asked_for_are_not_looked_at() -> None:
    sources = dict.fromkeys((PATH, "zoo/modeling_other.py", "zoo/layers.py"), "def f(x):\n    return x\n")
    code = changed_code(MappingTree(sources), {path: {2} for path in sources}, (), Layout.MODELING)
    changed = plan("Tagger", Backend.EXECUTORCH)
    assert of_models(code, (changed,), Layout.MODELING) is code
    kept = of_models(code, (replace(changed, reason="asked for"),), Layout.MODELING)
    assert [*kept.statements] == [PATH, "zoo/layers.py"]
