from __future__ import annotations

import pytest

from hfexport_bot.reporting.eager import eager_cell, eager_changes
from hfexport_bot.schema import CaseId, CaseReport, EagerChange, OutcomeKind, OutputChange, VerdictKind

MOVED = OutputChange(name="logits", note="moved", max_abs=0.03125, share=0.5)
GONE = OutputChange(name="cache.0", note="gone")


def refused(*probes: str) -> tuple[OutputChange, ...]:
    return tuple(OutputChange(name=f"probe {name}", note="no longer taken, ValueError: 8") for name in probes)


def report(eager: EagerChange | None, backend: str = "onnx") -> CaseReport:
    case_id = CaseId.parse(f"bert/BertModel/{backend}/dynamic/forward")
    return CaseReport(id=case_id, verdict=VerdictKind.OK, outcome=OutcomeKind.PASS, eager=eager)


@pytest.mark.parametrize(
    ("change", "cell", "said"),
    [
        (None, "", []),
        (EagerChange(), "unchanged", []),
        (EagerChange(max_abs=1e-7), "unchanged", []),
        (EagerChange(moved=(MOVED, GONE)), "moved 0.031", ["logits moved by up to 0.031, 50% of it; cache.0: gone"]),
        (EagerChange(moved=(GONE,)), "moved", ["cache.0: gone"]),
        (EagerChange(moved=(GONE,) * 6), "moved", ["; ".join(["cache.0: gone"] * 4) + "; and 2 more"]),
        (EagerChange(moved=(MOVED, *refused("batch_3", "length_11"))), "refuses 2 sizes, moved 0.031", None),
        (
            EagerChange(moved=refused("length_11")),
            "refuses 1 size",
            ["probe length_11: no longer taken, ValueError: 8"],
        ),
        (EagerChange(moved=(*refused("length_11", "pad_left"), GONE)), "refuses 2 probes, moved", None),
        (EagerChange(moved=(MOVED,), weights="3 new (a)"), "not comparable", ["weights not comparable: 3 new (a)"]),
        (EagerChange(weights="1 gone (a)"), "unchanged", ["weights differ, outputs do not: 1 gone (a)"]),
        (
            EagerChange(configuration="layers 2 → 3"),
            "unchanged",
            ["its configuration is another than on base (layers 2 → 3); with base's, outputs are unchanged"],
        ),
        (
            EagerChange(configuration="layers 2 → 3", moved=(GONE,)),
            "moved",
            ["its configuration is another than on base (layers 2 → 3); with base's, cache.0: gone"],
        ),
        (EagerChange(problem="timeout: late"), "not comparable", ["not compared, timeout: late"]),
    ],
)
def test_eager_in_a_cell_and_in_a_line(change: EagerChange | None, cell: str, said: list[str] | None) -> None:
    cases = [report(change), report(change, "dynamo")]
    assert eager_cell(cases) == cell
    lines = [line for _, line in eager_changes(cases)]
    assert len(lines) == 1 if said is None else lines == said, "once for both backends"
