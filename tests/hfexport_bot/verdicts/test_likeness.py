from __future__ import annotations

from math import inf, nan

import pytest

from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import CaseId, CaseReport, Component, Outcome, ProbeResult, TensorParity, Tried, Try
from hfexport_bot.settings import AcceptedEntry, DriftSettings
from hfexport_bot.verdicts.compare import is_accepted_change, make_cases
from hfexport_bot.verdicts.likeness import alike, told_of, worse
from hfexport_bot.verdicts.stability import may_be_chance

CASE = PlannedCase(CaseId.parse("m/M/dynamo/dynamic/forward"), "m.py", "m.py", "changed")


def parity(error: float | None, component: str = "model", logits: float = 1e-7, **probes: float) -> Outcome:
    """An outcome whose hidden state is off by ``error``; probes off by more than 1e-4 are so too."""
    outputs = [
        TensorParity(
            name=name, shape=(2, 8), dtype="float32", max_abs=size, mismatched=float(size is None or not size <= 1e-4)
        )
        for name, size in (("hidden", error), ("logits", logits))
    ]
    probed = [
        ProbeResult(name=name, status="parity" if size > 1e-4 else "pass", max_abs=size)
        for name, size in probes.items()
    ]
    found = Component(name=component, max_abs=error, outputs=tuple(outputs), probes=tuple(probed))
    message = "hidden: 900 of 1024 elements differ, by up to 0.25"
    return Outcome(kind="parity", stage="parity", message=message, components=(found,))


def case_of(base: Outcome, head: Outcome, tries: int = 0, *accepted: AcceptedEntry) -> CaseReport:
    told = Tried(base=(told_of(base),) * tries, head=(told_of(head),) * tries) if tries else None
    tried = {CASE.id: told} if told else {}
    (case,) = make_cases([CASE], {CASE.id: base}, {CASE.id: head}, accepted, tried=tried)
    return case


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        (parity(0.0025), parity(1.2), "hidden: max abs error 0.0025 → 1.2"),
        (parity(0.0025), parity(0.024), ""),
        (parity(1.2), parity(0.0025), ""),
        (parity(0.0025), parity(nan), "hidden: max abs error 0.0025 → nan"),
        (parity(nan), parity(nan), ""),
        (parity(inf), parity(inf), ""),
        (parity(0.5, "decode"), parity(9.0, "decode"), "decode: hidden: max abs error 0.5 → 9"),
        (parity(None), parity(None), ""),
        (parity(None), parity(0.5), ""),
        (parity(0.5), parity(None), "hidden: max abs error 0.5 → none, nothing to compare"),
        (parity(0.0025), parity(0.0025, logits=0.3), "logits: max abs error 1e-07 → 0.3"),
        (parity(0.0025, pad_left=2e-7), parity(0.0025, pad_left=0.01), "probe pad_left: max abs error 2e-07 → 0.01"),
        (parity(0.0025, pad_left=9e-5), parity(0.0025, pad_left=1.1e-4), ""),  # on either side of the tolerance
        (parity(0.0025, pad_left=1e-9), parity(0.0025, pad_left=9e-5), ""),  # within it
        (parity(0.0025, pad_left=0.01), parity(0.0025), ""),
        (parity(0.0025), parity(0.0025, pad_left=0.01), "probe pad_left: off, and was not"),
    ],
)
def test_a_failure_that_got_worse_is_another_one(base: Outcome, head: Outcome, said: str) -> None:
    assert "; ".join(worse(told_of(base), told_of(head))) == said
    assert alike(told_of(base), told_of(head)) is (not said)
    assert may_be_chance(base, head) is bool(said)
    for tries in (0, 2):
        case = case_of(base, head, tries)
        assert case.verdict == ("changed" if said else "known" if not tries else "flaky")
        assert (said in case.details) is bool(said)


def test_a_probe_that_no_longer_runs_is_another_failure_though_the_first_is_the_same() -> None:
    base = Outcome(kind="error", stage="run", message="probe length_11: eager takes it, but: none")
    probes = [ProbeResult(name=name, status="error") for name in ("length_11", "pad_left")]
    one, both = (
        base.model_copy(update={"components": (Component(name="model", probes=found),)})
        for found in ((probes[0], ProbeResult(name="pad_left", status="pass", max_abs=0.0)), tuple(probes))
    )
    assert case_of(one, one).verdict == case_of(both, one).verdict == case_of(base, both).verdict == "known"
    assert case_of(one, both).verdict == "changed"
    assert case_of(one, both).details[-1] == "probe pad_left: off, and was not"


def test_what_counts_as_worse_is_a_setting() -> None:
    base, head = parity(0.0025), parity(1.2)
    wide = DriftSettings.model_validate({"error-factor": 1_000})
    (case,) = make_cases([CASE], {CASE.id: base}, {CASE.id: head}, drift=wide)
    assert case.verdict == "known"
    assert not may_be_chance(base, head, wide)


def test_an_accepted_failure_that_got_worse_is_told_to_be_accepted() -> None:
    entry = AcceptedEntry(id="m/*", reason="we live with it")
    same, worse_now = (case_of(parity(0.0025), head, 0, entry) for head in (parity(0.0025), parity(1.2)))
    assert same.verdict == worse_now.verdict == "known"
    assert (is_accepted_change(same), is_accepted_change(worse_now)) == (False, True)
    assert "accepted: we live with it" in worse_now.details
    assert not same.details


def test_what_is_told_of_a_run_survives_json_and_stays_small() -> None:
    told = told_of(parity(nan, pad_left=inf))
    assert Try.model_validate_json(told.model_dump_json()).model_dump_json() == told.model_dump_json()
    many = parity(0.1, **{f"length_{number}": 1.0 for number in range(300)})
    assert len(told_of(many).errors) == 100
    assert not told_of(Outcome(kind="pass", components=many.components)).errors
