"""The verdict table against a matrix written out by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from hfexport_bot.schema import Outcome, OutcomeKind, VerdictKind
from hfexport_bot.verdicts.table import ABSENT, NOT_RUN, Facts, Side, judge

COLUMNS = [*(kind.value for kind in OutcomeKind), "absent"]

# Rows: base. Columns: head, in the order of the rows up to "absent". Both sides stable, nothing accepted,
# same stage and signature. R regression, F fixed, C changed, K known, O ok, N new, - removed, ? no baseline,
# x cannot be.
MATRIX = {
    "pass":             "O R R R R R R R R R -",
    "parity":           "F K C C C C C C C C -",
    "error":            "F C K C C C C C C C -",
    "unsupported":      "F C C K C C C C C C -",
    "timeout":          "F C C C K C C C C C -",
    "oom":              "F C C C C K C C C C -",
    "crash":            "F C C C C C K C C C -",
    "unavailable":      "F C C C C C C K C C -",
    "nondeterministic": "F C C C C C C C K C -",
    "skipped":          "F C C C C C C C C K -",
    "absent":           "N N N N N N N N N N x",
    "not run":          "? ? ? ? ? ? ? ? ? ? -",
}  # fmt: skip

LETTERS = {
    "O": "ok",
    "R": "regression",
    "F": "fixed",
    "C": "changed",
    "K": "known",
    "N": "new",
    "-": "removed",
    "?": "no-baseline",
}


def side(name: str, stage: str = "trace") -> Side:
    if name == "absent":
        return ABSENT
    if name == "not run":
        return NOT_RUN
    return Outcome(kind=OutcomeKind(name), stage="" if name == "pass" else stage)


def cells() -> list[tuple[str, str, str]]:
    return [
        (base, head, letter) for base, row in MATRIX.items() for head, letter in zip(COLUMNS, row.split(), strict=True)
    ]


def decided() -> list[tuple[str, str, str]]:
    return [cell for cell in cells() if cell[2] != "x"]


def test_the_matrix_names_every_outcome() -> None:
    kinds = {kind.value for kind in OutcomeKind}
    assert [*MATRIX] == [*COLUMNS, "not run"]
    assert set(MATRIX) == kinds | {"absent", "not run"}


@pytest.mark.parametrize(("base", "head", "letter"), cells())
def test_every_pair_of_sides(base: str, head: str, letter: str) -> None:
    facts = Facts(alike=True)
    if letter == "x":
        with pytest.raises(ValueError, match="no verdict"):
            judge(side(base), side(head), facts)
    else:
        assert judge(side(base), side(head), facts) == LETTERS[letter]


@pytest.mark.parametrize("base", [*MATRIX])
def test_a_head_that_was_not_run_has_no_verdict(base: str) -> None:
    with pytest.raises(ValueError, match="not run"):
        judge(side(base), NOT_RUN, Facts())


@pytest.mark.parametrize(("base", "head", "letter"), decided())
def test_a_failure_that_is_accepted_is_known(base: str, head: str, letter: str) -> None:
    verdict = judge(side(base), side(head), Facts(accepted=True, alike=True))
    assert verdict == ("known" if letter in "RC" else LETTERS[letter])


@pytest.mark.parametrize(("base", "head", "letter"), decided())
def test_what_must_pass_and_fails_is_a_regression_also_where_base_failed(base: str, head: str, letter: str) -> None:
    verdict = judge(side(base), side(head), Facts(must_pass=True, alike=True))
    assert verdict == ("regression" if letter in "RCK" else LETTERS[letter])


@pytest.mark.parametrize(("base", "head", "letter"), decided())
def test_unstable_is_flaky_where_both_sides_ran(base: str, head: str, letter: str) -> None:
    verdict = judge(side(base), side(head), Facts(accepted=True, stable=False, alike=True))
    assert verdict == (LETTERS[letter] if letter in "N-?" else "flaky")


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.PASS])
def test_failures_on_both_sides_are_known_only_when_alike_and_at_one_stage(kind: OutcomeKind) -> None:
    at_trace, at_run = side(kind, "trace"), side(kind, "run")
    assert judge(at_trace, at_trace, Facts(alike=True)) == "known"
    assert judge(at_trace, at_trace, Facts(alike=False)) == "changed"
    assert judge(at_trace, at_run, Facts(alike=True)) == "changed"
    assert judge(at_trace, at_run, Facts(alike=False)) == "changed"


# interface_moved, drifted, same_graph -> verdict of a case that passes on both sides
PASSES = {
    (False, False, False): "ok",
    (False, False, True): "unchanged",
    (False, True, False): "drift",
    (False, True, True): "drift",
    (True, False, False): "interface",
    (True, False, True): "interface",
    (True, True, False): "interface",
    (True, True, True): "interface",
}


@pytest.mark.parametrize(("flags", "verdict"), PASSES.items())
@pytest.mark.parametrize("accepted", [False, True])
def test_passes_on_both_sides(flags: tuple[bool, bool, bool], verdict: str, accepted: bool) -> None:
    interface_moved, drifted, same_graph = flags
    facts = Facts(accepted=accepted, interface_moved=interface_moved, drifted=drifted, same_graph=same_graph)
    assert judge(side("pass"), side("pass"), facts) == verdict
    assert judge(side("pass"), side("pass"), replace(facts, stable=False)) == "flaky"


def test_what_moved_never_hides_a_failure() -> None:
    for base, head in itertools.product(COLUMNS[:-1], repeat=2):
        if base == head == "pass":
            continue
        quiet, moved = Facts(), Facts(interface_moved=True, drifted=True, same_graph=True)
        assert judge(side(base), side(head), moved) is judge(side(base), side(head), quiet)


def test_every_verdict_can_be_reached() -> None:
    reached = {LETTERS[letter] for _, _, letter in decided()} | set(PASSES.values()) | {"flaky"}
    assert reached == {verdict.value for verdict in VerdictKind}
