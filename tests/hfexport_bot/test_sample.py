"""The representative sample of a change that affects too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hfexport_bot.changes.layout import model_file
from hfexport_bot.changes.selection import AffectedModule, Selection
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.errors import UsageError
from hfexport_bot.plan import plan_cases
from hfexport_bot.sample import (
    Candidate,
    Chosen,
    candidates,
    choose,
    fits,
    left_out,
    never_built,
    recorded_seconds,
    take_sample,
    without_done,
)
from hfexport_bot.schema import (
    Backend,
    CaseId,
    CaseReport,
    Layout,
    NotRun,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    Shapes,
    Task,
    VerdictKind,
)
from hfexport_bot.settings import Overrides, Settings, SettingsFile, combine


def candidate(name: str, causes: str = "", kinds: str = "", distance: int = 0, seconds: float = 10) -> Candidate:
    return Candidate((name.lower(), name), seconds, frozenset(causes.split()), frozenset(kinds.split()), distance)


def names(chosen: Chosen) -> list[str]:
    return [name for _, name in chosen.keys]


def test_all_run_where_they_keep_within_the_limits() -> None:
    every = [candidate("A"), candidate("B")]
    assert fits(every, 2, 20)
    assert fits(every, 0, 0)
    assert not fits(every, 1, 0)
    assert not fits(every, 0, 19)


def test_every_cause_is_covered_before_kinds_and_both_before_more_of_the_same() -> None:
    every = [
        candidate("A", "x", "causal"),
        candidate("B", "x", "causal"),
        candidate("C", "x", "vision", distance=3),
        candidate("D", "y", "causal", distance=5, seconds=90),
    ]
    chosen = choose(every, 3, 0)
    assert names(chosen) == ["A", "D", "C"]
    assert (chosen.missed_causes, chosen.missed_kinds) == ((), ())


def test_what_changed_itself_comes_first_and_then_what_is_cheap() -> None:
    every = [candidate("Far", "x", "a b c", 2), candidate("Dear", "x", "a", 0, 30), candidate("Cheap", "x", "a", 0, 20)]
    assert names(choose(every, 2, 0)) == ["Cheap", "Far"]
    assert names(choose(every, 1, 0)) == ["Cheap"]


def test_what_a_limit_leaves_no_room_for_is_told() -> None:
    every = [candidate("A", "x", "a"), candidate("B", "y", "b")]
    assert choose(every, 1, 0) == Chosen((("a", "A"),), 10, ("y",), ("b",))


def test_a_class_that_is_too_dear_gives_way_to_one_that_fits_but_one_always_runs() -> None:
    every = [candidate("A", "x y"), candidate("B", "z", seconds=100), candidate("C", "z", distance=4)]
    assert names(choose(every, 0, 25)) == ["A", "C"]
    assert names(choose(every[1:2], 0, 25)) == ["B"]


def test_more_of_the_same_is_shared_out_among_models() -> None:
    every = [Candidate((model, name), 10, frozenset("x")) for model in "mn" for name in "ABC"]
    assert choose(every, 3, 0).keys == (("m", "A"), ("n", "A"), ("m", "B"))


def test_thousands_of_classes_are_chosen_from_in_no_time() -> None:
    every = [candidate(f"M{number}", f"x y{number % 50}", f"k{number % 20}", number % 7) for number in range(2_000)]
    chosen = choose(every, 60, 0)
    assert len(chosen.keys) == 60
    assert (chosen.missed_causes, chosen.missed_kinds) == ((), ())


SOURCE = "".join(f"class M{number}(PreTrainedModel):\n    def forward(self): pass\n" for number in range(5))
FILE = model_file("modeling_a.py", Layout.MODELING)
MODULE = AffectedModule(
    FILE,
    FILE,
    tuple(f"M{number}" for number in range(4)),
    tuple(f"M{number}" for number in range(5)),
    reason="Part changed",
    distances={"M0": 3},
)
SELECTION = Selection((MODULE,))
TREES = (MappingTree({"modeling_a.py": SOURCE}), MappingTree({"modeling_a.py": SOURCE}))
PLANNED = plan_cases(SELECTION, (Backend.DYNAMO, Backend.ONNX), (Shapes.DYNAMIC,), (Task.FORWARD,))


def settings(max_models: int | None = None, budget_minutes: float | None = None) -> Settings:
    file = SettingsFile()
    return combine(file, file, Overrides(max_models=max_models, budget_minutes=budget_minutes))


def report(name: str, seconds: float = 1.0, base: str = "b" * 40) -> Report:
    outcome = Outcome(kind=OutcomeKind.PASS, seconds=seconds)
    case = CaseReport(
        id=CaseId.parse(f"modeling_a/{name}/onnx/dynamic/forward"),
        verdict=VerdictKind.OK,
        outcome=OutcomeKind.PASS,
        base=outcome,
        head=outcome.model_copy(update={"seconds": seconds / 2}),
    )
    return Report(
        command="run", base=Revision(name="main", sha=base), head=Revision(name="x", sha="a" * 40), cases=(case,)
    )


def test_costs_count_both_sides_and_earlier_runs() -> None:
    found = {each.key[1]: each.seconds for each in candidates(PLANNED, SELECTION, {}, {})}
    assert found["M0"] == 2 * found["M4"]  # base has no M4
    recorded = recorded_seconds([report("M0", 1_000)])
    assert candidates(PLANNED, SELECTION, {}, recorded)[0].seconds > 2_000


def test_a_plan_is_cut_down_and_says_what_it_left_out_and_why() -> None:
    taken = take_sample(PLANNED, SELECTION, TREES, settings(max_models=2), (), jobs=2)
    assert {case.id.class_name for case in taken.planned} == {"M4", "M1"}  # the cheapest, M0 is far
    assert [(each.name, each.reason) for each in taken.not_run] == [
        (f"modeling_a/{name}", "not in the sample; Part changed") for name in ("M0", "M2", "M3")
    ]
    assert taken.sample is not None
    assert (taken.sample.classes, taken.sample.affected, taken.sample.limits) == (2, 5, ("max-models: 2",))


def test_a_budget_counts_minutes_of_all_jobs() -> None:
    one = take_sample(PLANNED, SELECTION, TREES, settings(budget_minutes=1), (), jobs=1).sample
    assert one is not None
    assert one.limits == ("budget-minutes: 1",)
    assert one.estimated_seconds <= 60
    assert take_sample(PLANNED, SELECTION, TREES, settings(budget_minutes=1), (), jobs=8).sample is None
    assert take_sample(PLANNED, SELECTION, TREES, settings(0, 0), (), jobs=1).planned == PLANNED


def test_the_rest_is_what_a_report_of_the_same_change_has_no_case_of() -> None:
    rest = without_done(PLANNED, report("M1"), "b" * 40, "a" * 40)
    assert {case.id.class_name for case in rest} == {"M0", "M2", "M3", "M4"}
    (case,) = report("M1").cases
    half = report("M1").model_copy(update={"not_run": (NotRun(kind="case", name=str(case.id), reason="interrupted"),)})
    assert without_done(PLANNED, half, "b" * 40, "a" * 40) == PLANNED, "base did not run it"
    with pytest.raises(UsageError, match="--rest: that report is of aaaaaaaaaaaa on bbbbbbbbbbbb"):
        without_done(PLANNED, report("M1"), "c" * 40, "a" * 40)


def test_what_can_probably_not_be_built_comes_last_and_is_told() -> None:
    every = [
        replace(candidate("Changed", "x", "a"), unlikely="it wants timm, which is not installed"),
        candidate("Far", "x", distance=4, seconds=90),
    ]
    assert names(choose(every, 1, 0)) == ["Far"]
    assert names(choose(every, 2, 0)) == ["Far", "Changed"]
    (entry,) = left_out(every, choose(every, 1, 0), {("changed", "Changed"): "Part changed"})
    assert entry.reason == "not in the sample, as it wants timm, which is not installed; Part changed"


def test_a_class_that_never_was_built_gives_way() -> None:
    earlier = report("M4")
    (case,) = earlier.cases
    earlier = earlier.model_copy(update={"cases": (case.model_copy(update={"outcome": OutcomeKind.UNAVAILABLE}),)})
    assert never_built([earlier]) == {("modeling_a", "M4"): "it was unavailable in an earlier report"}
    assert never_built([earlier, report("M4")]) == {}
    taken = take_sample(PLANNED, SELECTION, TREES, settings(max_models=2), [earlier], jobs=2)
    assert {case.id.class_name for case in taken.planned} == {"M1", "M2"}
    assert taken.sample is not None
    assert (taken.sample.passed_over, taken.sample.unlikely) == (1, 0)
