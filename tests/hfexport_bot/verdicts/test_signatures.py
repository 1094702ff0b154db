from __future__ import annotations

import time

import pytest

from hfexport_bot.schema import Location, Outcome, OutcomeKind, UnavailableCause
from hfexport_bot.verdicts.signatures import normalise, signature


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Could not guard on Eq(u3, 1), s77*s0, zuf2", "Could not guard on Eq(u#, #), s#*s#, zuf#"),
        ('File "/tmp/hfx-ab12/tree/modeling_x.py", line 231, in f', 'File "modeling_x.py", line #, in f'),
        (r"C:\tree\modeling_x.py:12", "modeling_x.py:#"),
        ("logits: max abs 3.2e-07 > 1e-4", "logits: max abs # > #"),
        ("needs torch 2.13.0+cpu, found 2.1.0rc1 and 5.24.0.dev0", "needs torch #, found # and #"),
        ("<Foo object at 0x7f12ab>", "<Foo object at address>"),
        ("wrote /tmp/tmpab12cd_e to disk", "wrote tmp to disk"),
        ("commit deadbeef0123456789", "commit hash"),
        ("node view_3 of add_12", "node view_# of add_#"),
        ("float16 and float32 in Qwen2Model", "float16 and float32 in Qwen2Model"),
        ("aten::add.Tensor\n\t is missing", "aten::add.Tensor is missing"),
        ("\x1b[31mred\x1b[0m", "red"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


def failing(message: str = "Eq(u0, 1)", **changes: object) -> Outcome:
    fields = {"kind": "error", "stage": "trace", "error_type": "GuardError", "message": message} | changes
    return Outcome.model_validate(fields)


def test_a_rerun_elsewhere_has_the_same_signature() -> None:
    first = failing(
        "Eq(u0, 1) in /tmp/a/base/modeling_x.py:12",
        location=Location(file="src/modeling_x.py", line=12, function="forward"),
        seconds=1.5,
    )
    second = failing(
        "Eq(u7, 1) in /srv/other/modeling_x.py:19",
        location=Location(file="modeling_x.py", line=19, function="forward"),
        seconds=9.0,
    )
    assert signature(first) == signature(second)
    assert signature(first) == "error | trace | GuardError | Eq(u#, #) in modeling_x.py:# | modeling_x.py:forward"


@pytest.mark.parametrize(
    "other",
    [
        failing(kind="crash"),
        failing(stage="run"),
        failing(error_type="ValueError"),
        failing("Ne(u0, 1)"),
        failing(location=Location(file="modeling_x.py", line=3, function="forward")),
    ],
)
def test_another_failure_has_another_signature(other: Outcome) -> None:
    assert signature(other) != signature(failing())


def test_only_the_first_lines_of_a_message_count() -> None:
    listing = "\n\ngraph():\n    %a = view(%x)"
    assert signature(failing("one\ntwo\nthree" + listing)) == signature(failing("one\n\ntwo\nthree\nfour"))


def test_a_pass_has_none_and_an_unavailable_case_names_its_cause() -> None:
    assert signature(Outcome(kind=OutcomeKind.PASS)) == ""
    missing = Outcome(kind=OutcomeKind.UNAVAILABLE, cause=UnavailableCause.MISSING_LIBRARY)
    assert "missing library" in signature(missing)


@pytest.mark.parametrize("unit", ["a", "a/", "0", "_", " ", "1.", "tmp-", "a.-+", "\x1b[", "\u2028", "é/"])
def test_hostile_messages_take_no_time(unit: str) -> None:
    start = time.perf_counter()
    assert len(signature(failing((unit * 8000)[:8000]))) < 600
    assert time.perf_counter() - start < 0.5
