"""Composite models whose parts only an earlier run knows."""

from __future__ import annotations

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.recorded import recorded_builds
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import CaseId, CaseReport, Layout, Outcome, OutcomeKind, Report, Revision, VerdictKind

PART, WHOLE = "zoo/modeling_part.py", "zoo/modeling_whole.py"
FILES = {
    PART: "class PartLayer:\n    x = 1\nclass PartModel(PreTrainedModel):\n    def forward(self): return PartLayer()\n"
    "class Unused(PreTrainedModel):\n    def forward(self): return 1\ndef helper(): return 1\n",
    WHOLE: "class WholeModel(PreTrainedModel):\n    def forward(self): return AutoModel.from_config(self.config)\n",
}


def report(base: tuple[str, ...], head: tuple[str, ...]) -> Report:
    outcomes = [Outcome(kind=OutcomeKind.PASS, built_from=files) for files in (base, head)]
    case = CaseReport(
        id=CaseId.parse("zoo/modeling_whole/WholeModel/onnx/dynamic/forward"),
        verdict=VerdictKind.OK,
        outcome=OutcomeKind.PASS,
        base=outcomes[0],
        head=outcomes[1],
    )
    return Report(command="run", head=Revision(name="x"), cases=(case,))


def selected(old: str, new: str, *reports: Report) -> dict[str, str]:
    head = FILES | {PART: FILES[PART].replace(old, new)}
    found = select(
        [FileChange(PART, PART)],
        MappingTree(FILES),
        MappingTree(head),
        Layout.MODELING,
        built=recorded_builds(reports),
    )
    return {name: module.reason_of(name) for module in found.affected for name in module.classes}


def test_builds_are_read_from_both_sides() -> None:
    key = ("zoo/modeling_whole", "WholeModel")
    assert recorded_builds([report((PART,), (WHOLE,))]) == {PART: {key}, WHOLE: {key}}


def test_a_composite_model_is_affected_by_what_a_recorded_run_built_it_from() -> None:
    assert selected("x = 1", "x = 2") == {"PartModel": "PartLayer.x changed in modeling_part.py → PartModel"}
    assert selected("x = 1", "x = 2", report((), (PART, WHOLE))) == {
        "PartModel": "PartLayer.x changed in modeling_part.py → PartModel",
        "WholeModel": "PartLayer.x changed in modeling_part.py → PartModel → WholeModel",
    }


def test_what_is_no_part_of_a_model_does_not_reach_it() -> None:
    assert selected("def helper(): return 1", "def helper(): return 2", report((), (PART, WHOLE))) == {}
    assert selected("x = 1", "x = 2", report((), ("gone.py", WHOLE))).keys() == {"PartModel"}
