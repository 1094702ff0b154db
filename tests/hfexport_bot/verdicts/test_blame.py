from __future__ import annotations

import pytest

from hfexport_bot.changes.statements import statements
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import (
    Blame,
    CaseId,
    CaseReport,
    Location,
    Outcome,
    OutcomeKind,
    UnavailableCause,
    VerdictKind,
)
from hfexport_bot.verdicts.blame import blame, blamed

MODELING = "zoo/modeling_tagger.py"
HELPERS = "zoo/masks.py"
TREE = MappingTree(
    {
        MODELING: "import torch\n\ndef forward(x):\n    y = mask(\n        x\n    )\n    return y\n",
        HELPERS: "def mask(x):\n    return x\n",
    }
)


def failure(*frames: tuple[str, int]) -> Outcome:
    places = tuple(Location(file=file, line=line, function="f") for file, line in frames)
    modeling = next((place for place in places if "modeling" in place.file), None)
    return Outcome(kind=OutcomeKind.ERROR, stage="trace", location=modeling, frames=places)


def test_the_innermost_frame_that_the_change_wrote() -> None:
    outcome = failure(("torch/functional.py", 9), (HELPERS, 2), (MODELING, 4))
    found = blame(outcome, TREE, {MODELING: {4}})
    assert found == Blame(
        location=Location(file=MODELING, line=4, function="f"),
        changed=True,
        first=2,
        source=("", "def forward(x):", "    y = mask(", "        x", "    )"),
    )
    found = blame(outcome, TREE, {MODELING: {4}, HELPERS: {2}})
    assert found is not None
    assert found.location.file == HELPERS
    assert found.changed


def test_another_line_of_the_same_statement_counts_as_changed() -> None:
    found = blame(failure((MODELING, 4)), TREE, {MODELING: {5}})
    assert found is not None
    assert found.changed
    found = blame(failure((MODELING, 4)), TREE, {MODELING: {7}})
    assert found is not None
    assert not found.changed


def test_without_a_changed_frame_the_innermost_modeling_line() -> None:
    found = blame(failure((HELPERS, 2), (MODELING, 7)), TREE, {"other.py": {1}})
    assert found is not None
    assert (found.location.line, found.changed, found.first) == (7, False, 5)
    assert found.source == ("        x", "    )", "    return y")


def test_a_file_that_is_not_in_the_tree_has_no_lines_to_show() -> None:
    found = blame(failure(("transformers/models/x/modeling_x.py", 900)), TREE, {})
    assert found is not None
    assert found.source == ()


def test_an_outcome_without_a_place_blames_nothing() -> None:
    assert blame(Outcome(kind=OutcomeKind.PARITY, stage="parity"), TREE, {MODELING: {4}}) is None


COPY = "# Copied from transformers.models.old.modeling_old.f\ndef f(x):\n    return {}\n"
OLD = "src/transformers/models/old/modeling_old.py"


def test_a_copy_is_edited_where_it_was_copied_from_unless_it_was_changed_by_hand() -> None:
    path = "src/transformers/models/new/modeling_new.py"
    kept = MappingTree({path: COPY.format("x"), OLD: "def f(x):\n    return x\n"})
    found = blame(failure((path, 3)), kept, {OLD: {2}})
    assert found is not None
    assert found.ran is not None
    assert (str(found.location), str(found.ran), found.changed) == (f"{OLD}:2", f"{path}:3", True)
    by_hand = MappingTree({path: COPY.format("x + 1"), OLD: "def f(x):\n    return x\n"})
    found = blame(failure((path, 3)), by_hand, {path: {3}})
    assert found is not None
    assert (str(found.location), found.ran) == (f"{path}:3", None)


def test_a_new_model_generated_from_code_that_the_change_left_alone_is_not_blamed_on_a_line_of_the_change() -> None:
    generated, modular = (f"src/transformers/models/new/{kind}_new.py" for kind in ("modeling", "modular"))
    header = "# This file was automatically generated from src/transformers/models/new/modular_new.py.\n"
    body = "    def forward(self, x):\n        return x\n"
    files = {
        generated: f"{header}class New:\n{body}",
        modular: "from ..old.modeling_old import Old\n\n\nclass New(Old):\n    pass\n",
        OLD: f"class Old:\n{body}",
    }
    added = {generated: {1, 2, 3, 4}, modular: {1, 2, 3, 4, 5}}
    found = blame(failure((generated, 4)), MappingTree(files), added)
    assert found is not None
    assert (str(found.location), str(found.ran), found.changed) == (f"{OLD}:3", f"{generated}:4", False)
    found = blame(failure((generated, 4)), MappingTree(files), added | {OLD: {3}})
    assert found is not None
    assert found.changed


def case(outcome: Outcome | None) -> CaseReport:
    case_id = CaseId.parse("zoo/modeling_tagger/Tagger/onnx/dynamic/forward")
    kind = outcome.kind if outcome else OutcomeKind.PASS
    return CaseReport(id=case_id, verdict=VerdictKind.REGRESSION, outcome=kind, head=outcome)


@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        (OutcomeKind.PARITY, "parity"),
        (OutcomeKind.ERROR, "run"),  # "axis 1 of input_ids is 11, at most 8 was exported"
        (OutcomeKind.UNSUPPORTED, "load"),
        (OutcomeKind.NONDETERMINISTIC, "eager"),
    ],
)
def test_a_regression_without_a_line_is_blamed_on_what_ran_of_the_change(kind: OutcomeKind, stage: str) -> None:
    source = "def f(x):\n    x = 1\n    return x\n"
    tree, touched = MappingTree({MODELING: source}), {MODELING: statements(source.encode())}
    failed = case(Outcome(kind=kind, stage=stage, executed={MODELING: (2, 3)}))
    (found,) = blamed([failed], tree, {}, touched)
    assert found.blame is not None
    assert (str(found.blame.location), found.blame.suspected) == (f"{MODELING}:2", True)
    (known,) = blamed([failed.model_copy(update={"verdict": VerdictKind.KNOWN})], tree, {}, touched)
    assert known.blame is None


def test_a_class_whose_inputs_are_unknown_is_blamed_on_its_forward() -> None:
    source = "class Tagger:\n    def forward(self, tokens):\n        x = tokens\n        return x\n"
    tree, touched = MappingTree({MODELING: source}), {MODELING: statements(source.encode())}

    def outcome(cause: UnavailableCause) -> CaseReport:
        return case(Outcome(kind=OutcomeKind.UNAVAILABLE, stage="source", cause=cause, executed={}))

    (found,) = blamed([outcome(UnavailableCause.UNKNOWN_INPUTS)], tree, {}, touched)
    assert found.blame is not None
    assert (str(found.blame.location), found.blame.changed, found.blame.suspected) == (f"{MODELING}:3", True, False)
    (other,) = blamed([outcome(UnavailableCause.MISSING_LIBRARY)], tree, {}, touched)
    assert other.blame is None


def test_wrong_numbers_are_blamed_on_what_ran_of_the_change_where_that_is_one_function() -> None:
    source = "def f(x):\n    x = 1\n    x = 2\n    return x\n\ndef g(x):\n    return f(x)\n"
    tree = MappingTree({MODELING: source})
    all_of_it = {MODELING: statements(source.encode())}

    def blamed_line(*ran: int, kind: OutcomeKind = OutcomeKind.PARITY) -> Blame | None:
        (found,) = blamed([case(Outcome(kind=kind, executed={MODELING: ran}))], tree, {}, all_of_it)
        return found.blame

    found = blamed_line(3, 4)
    assert found is not None
    assert (str(found.location), found.location.function) == (f"{MODELING}:3", "f")
    assert (found.changed, found.suspected) == (True, True)
    assert blamed_line(3, 7) is None, "in two functions"
    assert blamed_line() is None
    assert blamed_line(3, kind=OutcomeKind.CRASH) is None


def test_only_failures_of_head_are_blamed() -> None:
    passed = Outcome(kind=OutcomeKind.PASS)
    first, second, third = blamed([case(None), case(passed), case(failure((MODELING, 7)))], TREE, {})
    assert first.blame is second.blame is None
    assert third.blame is not None
    assert third.blame.location.line == 7


def test_a_line_of_the_repositorys_own_workarounds_is_told_as_one() -> None:
    by_line = case(failure((MODELING, 7)))
    (found,) = blamed([by_line], TREE, {}, workarounds=MODELING)
    (other,) = blamed([by_line], TREE, {}, workarounds="export_workarounds.py")
    assert found.blame is not None
    assert other.blame is not None
    assert (found.blame.workaround, other.blame.workaround) == (True, False)
    source = "def f(x):\n    x = 1\n    return x\n"
    wrong = case(Outcome(kind=OutcomeKind.PARITY, stage="parity", executed={MODELING: (2,)}))
    touched = {MODELING: statements(source.encode())}
    (found,) = blamed([wrong], MappingTree({MODELING: source}), {}, touched, MODELING)
    assert found.blame is not None
    assert found.blame.workaround
