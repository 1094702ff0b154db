"""Plans on disk, and how cases are shared out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hfexport_bot.errors import UsageError
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import Backend, CaseId, Layout, NotRun, Revision
from hfexport_bot.settings import AcceptedEntry, Overrides, SettingsFile, combine
from hfexport_bot.shards import MAX_SHARDS, Plan, own_version, pack, read_plan


def case(name: str, backend: Backend = Backend.ONNX) -> PlannedCase:
    return PlannedCase(CaseId(model="a", class_name=name, backend=backend), "b.py", "h.py", "why")


def ids(shards: tuple[tuple[CaseId, ...], ...]) -> list[list[str]]:
    return [[f"{each.class_name} {each.backend.value}" for each in shard] for shard in shards]


def seconds(costs: Mapping[str, float]) -> dict[CaseId, float]:
    return {case(name).id: cost for name, cost in costs.items()}


def test_the_longest_goes_first_to_the_job_that_has_least() -> None:
    costs = {"A": 1.0, "B": 6.0, "C": 3.0, "D": 4.0, "E": 5.0}
    found = pack([case(name) for name in costs], seconds(costs), 2)
    assert ids(found) == [["A onnx", "B onnx", "C onnx"], ["D onnx", "E onnx"]]


def test_cases_of_a_class_stay_together_unless_they_take_too_long() -> None:
    backends = (Backend.DYNAMO, Backend.ONNX)
    planned = [case(name, backend) for backend in backends for name in "ABC"]
    assert ids(pack(planned, {}, 3)) == [[f"{name} dynamo", f"{name} onnx"] for name in "ABC"]
    long = {case("A", backend).id: 100.0 for backend in backends}
    found = ids(pack(planned, long, 3))
    assert [shard for shard in found if any(each.startswith("A") for each in shard)] == [["A dynamo"], ["A onnx"]]


def test_no_shard_is_empty() -> None:
    assert ids(pack([case("A"), case("B")], {}, 8)) == [["A onnx"], ["B onnx"]]
    assert pack([], {}, 8) == ()


@pytest.mark.parametrize("shards", [0, MAX_SHARDS + 1])
def test_githubs_matrix_has_an_end(shards: int) -> None:
    with pytest.raises(UsageError, match="not between 1 and 256"):
        pack([case("A")], {}, shards)


@given(st.lists(st.floats(0.1, 1000), max_size=40), st.integers(1, 12))
def test_every_case_is_in_one_shard_and_no_shard_is_too_long(costs: list[float], shards: int) -> None:
    known = {f"C{number}": cost for number, cost in enumerate(costs)}
    planned = [case(name) for name in known]
    found = pack(planned, seconds(known), shards)
    assert sorted(each for shard in found for each in map(str, shard)) == sorted(str(each.id) for each in planned)
    loads = [sum(2 * known[each.class_name] for each in shard) for shard in found]
    if loads:  # whoever is given one more has the least so far, so at most an equal share
        assert max(loads) <= sum(loads) / len(loads) + 2 * max(costs) + 1e-6
    assert found == pack(planned, seconds(known), shards)


def a_plan() -> Plan:
    file = SettingsFile(accepted=(AcceptedEntry(id="a/*", reason="r", expires=date(2027, 1, 31)),))
    planned = (case("A"), case("B"), case("C"))
    return Plan(
        version=own_version(),
        command="run",
        base=Revision(name="main", sha="b" * 40),
        head=Revision(name="HEAD", sha="a" * 40),
        layout=Layout.MODELING,
        settings=combine(file, file, Overrides(seconds=7)),
        cases=planned,
        shards=pack(planned, {}, 2),
        not_run=(NotRun(kind="file", name="x.py", reason="why"),),
        notes=("a note",),
        modules=("h.py",),
    )


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    file, plan = tmp_path / "plan.json", a_plan()
    file.write_text(plan.dump())
    assert read_plan(file) == plan
    assert read_plan(file).digest == plan.digest
    assert plan.settings.limits.wall_seconds == 7
    assert ids((tuple(each.id for each in plan.cases_of(plan.shard(1, 2))),)) == [["A onnx", "C onnx"]]


@pytest.mark.parametrize(("number", "of"), [(0, 2), (3, 2), (1, 3)])
def test_a_shard_that_there_is_not(number: int, of: int) -> None:
    with pytest.raises(UsageError, match="this plan's shards are 1/2 to 2/2"):
        a_plan().shard(number, of)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "9.9"}, "was made by hfexport-bot '9.9' and this is"),
        ({"version": "9.9", "unheard-of": 1}, "was made by hfexport-bot '9.9' and this is"),
        ({"head": 5}, "is no plan: head: "),
        ({"shards": []}, "is damaged"),
        ({"shards": [["a/A/onnx/dynamic/forward"] * 3]}, "is damaged"),
        ({"form": 2}, "is no plan: form: "),
    ],
)
def test_what_is_no_plan_is_told_as_that(change: dict[str, object], message: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(json.loads(a_plan().dump()) | change))
    with pytest.raises(UsageError, match=message):
        read_plan(file)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"3"])
def test_neither_is_what_is_no_json(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"is no (JSON|plan)"):
        read_plan(file)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_plan(tmp_path / "none.json")
