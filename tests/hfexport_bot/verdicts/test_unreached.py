from __future__ import annotations

from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout, NotRun, Outcome, OutcomeKind, Unreached
from hfexport_bot.verdicts.unreached import ChangedCode, changed_code

PATH = "zoo/modeling_tagger.py"
SOURCE = """LIMIT = 3

class Tagger:
    def forward(self, x):
        # a comment
        if x is None:
            x = 1
            x = 2

            x = 3
        return x

    def unused(self):
        return 4
"""
TREE = MappingTree({PATH: SOURCE, "tests/test_x.py": "x = 1\n", "broken.py": "def f(:\n"})
EVERY = frozenset(range(1, 15))


def code(layout: Layout = Layout.MODELING, not_run: tuple[NotRun, ...] = ()) -> ChangedCode:
    return changed_code(TREE, {PATH: EVERY, "tests/test_x.py": {1}, "broken.py": {1}}, not_run, layout)


def ran(*lines: int) -> Outcome:
    return Outcome(kind=OutcomeKind.PASS, executed={PATH: lines})


def test_statements_are_watched_and_not_comments_headers_tests_or_what_is_no_python() -> None:
    watched = code().watched
    assert list(watched) == [PATH]
    assert watched[PATH] == (
        (1, 1, True),
        (6, 6, False),
        (7, 7, False),
        (8, 8, False),
        (10, 10, False),
        (11, 11, False),
        (14, 14, False),
    )


def test_what_is_on_no_exported_path_is_told_elsewhere() -> None:
    symbol = NotRun(kind="symbol", name=f"{PATH}:Tagger.unused", reason="not on an exported path")
    assert code(not_run=(symbol,)).watched[PATH][-1] == (11, 11, False)
    assert code(not_run=(NotRun(kind="file", name=PATH, reason="only text"),)).watched == {}


def test_lines_that_no_case_ran_are_told_by_function() -> None:
    found = code().unreached([ran(1, 6), ran(1, 11)])
    assert found == (
        Unreached(file=PATH, function="Tagger.forward", lines=((7, 8), (10, 10))),
        Unreached(file=PATH, function="Tagger.unused", lines=((14, 14),)),
    )
    assert code().unreached([Outcome(kind=OutcomeKind.CRASH)]) == ()  # it could not tell
    assert code().unreached([ran(1, 6, 7, 8, 10, 11, 14)]) == ()


def test_only_the_changed_lines_of_a_statement_are_told() -> None:
    tree = MappingTree({PATH: "def f(x):\n    return (\n        x\n        + 1\n    )\n"})
    found = changed_code(tree, {PATH: {3}}, (), Layout.MODELING).unreached([ran()])
    assert found == (Unreached(file=PATH, function="f", lines=((3, 3),)),)


def test_of_a_checkout_only_what_models_run_are_lines_to_run() -> None:
    models = "src/transformers/models/x"
    names = ("modular_x.py", "modeling_x.py", "processing_x.py", "image_processing_pil_x.py", "tokenization_x.py")
    paths = [*(f"{models}/{name}" for name in names), "src/transformers/exporters/base.py", "utils/tool.py"]
    tree = MappingTree(dict.fromkeys(paths, "x = 1\n"))
    changed = {path: {1} for path in paths}
    assert list(changed_code(tree, changed, (), Layout.TRANSFORMERS).watched) == [f"{models}/modeling_x.py"]
