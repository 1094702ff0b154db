"""From changed files to affected classes."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.affected import ONLY_TEXT, AffectedModule, Selection, select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.layout import detect_layout
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout


def model(*names: str, text: str = "Text.", value: int = 1, header: str = "") -> str:
    bodies = "".join(
        f"class {name}(PreTrainedModel):\n    '''{text}'''\n    def forward(self): return {value}\n" for name in names
    )
    return header + bodies


def run(
    base: dict[str, str], head: dict[str, str], *, layout: Layout | None = None, moves: dict[str, str] | None = None
) -> Selection:
    """Select with the changes that git would find; ``moves`` are renames, old path to new."""
    moves = moves or {}
    changes = [FileChange(old, new) for old, new in moves.items()]
    for path in sorted(base.keys() | head.keys()):
        if path in moves or path in moves.values() or base.get(path) == head.get(path):
            continue
        changes.append(FileChange(path if path in base else None, path if path in head else None))
    trees = MappingTree(base), MappingTree(head)
    return select(changes, *trees, layout or detect_layout(trees[1]))


def only(selection: Selection) -> AffectedModule:
    (module,) = selection.affected
    return module


def reasons(selection: Selection) -> dict[str, str]:
    return {entry.name: entry.reason for entry in selection.not_run}


def test_changed_file_affects_all_its_classes() -> None:
    selection = run({"modeling_a.py": model("A", "B")}, {"modeling_a.py": model("A", "C", value=2)})
    module = only(selection)
    assert module.base is not None
    assert module.base.module == "modeling_a.py"
    assert module.base.model == "modeling_a"
    assert module.base_classes == ("A", "B")
    assert module.head_classes == ("A", "C")
    assert module.reason == "modeling_a.py changed"
    assert selection.not_run == ()


def test_docstring_only_change_is_listed_and_not_run() -> None:
    selection = run({"modeling_a.py": model("A")}, {"modeling_a.py": model("A", text="Better.")})
    assert selection.affected == ()
    assert reasons(selection) == {"modeling_a.py": ONLY_TEXT}


def test_transformers_layout_names_modules_and_models_by_folder() -> None:
    path = "src/transformers/models/toy/modeling_toy_text.py"
    outside = "src/transformers/modeling_utils.py"
    selection = run(
        {path: model("A"), outside: "x = 1", "modeling_stray.py": model("S")},
        {path: model("A", value=2), outside: "x = 2", "modeling_stray.py": model("S", value=2)},
    )
    module = only(selection)
    assert module.head is not None
    assert module.head.module == "transformers.models.toy.modeling_toy_text"
    assert module.head.model == "toy"
    assert reasons(selection) == {outside: "not a modeling file", "modeling_stray.py": "not a modeling file"}


def test_added_and_deleted_files_have_one_side() -> None:
    selection = run({"modeling_old.py": model("Old")}, {"pkg/modeling_new.py": model("New")})
    old, new = selection.affected
    assert (old.head, old.base_classes, old.head_classes) == (None, ("Old",), ())
    assert old.reason == "modeling_old.py was deleted"
    assert (new.base, new.base_classes, new.head_classes) == (None, (), ("New",))
    assert new.reason == "modeling_new.py was added"


def test_moved_file_is_run_even_with_the_same_code() -> None:
    selection = run(
        {"modeling_a.py": model("A")}, {"pkg/modeling_a.py": model("A")}, moves={"modeling_a.py": "pkg/modeling_a.py"}
    )
    module = only(selection)
    assert module.base is not None
    assert module.head is not None
    assert (module.base.module, module.head.module) == ("modeling_a.py", "pkg/modeling_a.py")
    assert module.reason == "modeling_a.py moved from modeling_a.py"


def test_renaming_to_another_kind_of_file_deletes_the_model() -> None:
    selection = run({"modeling_a.py": model("A")}, {"legacy.py": model("A")}, moves={"modeling_a.py": "legacy.py"})
    assert only(selection).head is None


def test_syntax_error_on_one_side_takes_the_other_sides_classes() -> None:
    for base, head in ((model("A"), "def ("), ("def (", model("A"))):
        module = only(run({"modeling_a.py": base}, {"modeling_a.py": head}))
        assert module.base_classes == module.head_classes == ("A",)
        assert module.base is not None
        assert module.head is not None


def test_syntax_error_on_both_sides_is_listed_with_its_line() -> None:
    selection = run({"modeling_a.py": "def ("}, {"modeling_a.py": "x = 1\ndef ("})
    assert selection.affected == ()
    assert reasons(selection)["modeling_a.py"].startswith("syntax error on both sides, line 2: ")


def test_added_file_with_a_syntax_error_is_listed() -> None:
    assert reasons(run({}, {"modeling_a.py": "def ("}))["modeling_a.py"].startswith("syntax error, line 1: ")


def test_configuration_affects_the_files_that_use_it() -> None:
    same = {
        "modeling_a.py": model("A"),
        "modeling_b.py": model("B", header="from .configuration_a import AConfig\n"),
        "modeling_c.py": model("C"),
        "other/modeling_a.py": model("Other"),
    }
    selection = run(same | {"configuration_a.py": "x = 1"}, same | {"configuration_a.py": "x = 2"})
    assert [module.head_classes for module in selection.affected] == [("A",), ("B",)]
    assert {module.reason for module in selection.affected} == {"configuration_a.py changed"}


def test_configuration_outweighs_a_docstring_change() -> None:
    selection = run(
        {"modeling_a.py": model("A"), "configuration_a.py": "x = 1"},
        {"modeling_a.py": model("A", text="New."), "configuration_a.py": "x = 2"},
    )
    assert only(selection).reason == "configuration_a.py changed"
    assert selection.not_run == ()


def test_both_changed_gives_both_reasons() -> None:
    selection = run(
        {"modeling_a.py": model("A"), "configuration_a.py": "x = 1"},
        {"modeling_a.py": model("A", value=2), "configuration_a.py": "x = 2"},
    )
    assert only(selection).reason == "modeling_a.py changed; configuration_a.py changed"


def test_configuration_follows_a_moved_model() -> None:
    selection = run(
        {"modeling_a.py": model("A"), "configuration_a.py": "x = 1"},
        {"modeling_z.py": model("A"), "configuration_a.py": "x = 2"},
        moves={"modeling_a.py": "modeling_z.py"},
    )
    module = only(selection)
    assert module.reason == "modeling_z.py moved from modeling_a.py; configuration_a.py changed"


def test_configurations_that_affect_nothing_are_listed() -> None:
    selection = run(
        {"configuration_a.py": "x = 1", "configuration_b.py": "x = 1"},
        {"configuration_a.py": "x = 1  # why", "configuration_b.py": "x = 2"},
    )
    assert reasons(selection) == {
        "configuration_a.py": ONLY_TEXT,
        "configuration_b.py": "a configuration that no modeling file beside it uses",
    }


def test_tests_documents_and_other_languages_are_not_mentioned() -> None:
    paths = ("tests/modeling_a.py", "docs/conf.py", "test_a.py", "README.md", "x/conftest.py")
    assert run({}, dict.fromkeys(paths, model("A"))) == Selection()


def test_files_without_models_and_odd_names_are_listed() -> None:
    selection = run(
        {}, {"modeling_utils.py": "x = 1", "my models/modeling_a.py": model("A"), "modeling_tf_a.py": model("T")}
    )
    assert selection.affected == ()
    found = reasons(selection)
    assert found["modeling_utils.py"] == "has no model class"
    assert "case id" in found["my models/modeling_a.py"]
    assert found["modeling_tf_a.py"] == "not a modeling file, and none imports it"


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("pkg/layers.py", "from .layers import Layer"),
        ("pkg/layers.py", "from . import layers"),
        ("pkg/layers.py", "import pkg.layers"),
        ("pkg/layers.py", "def f():\n    from layers import Layer"),
        ("ops/fast.py", "from ..ops.fast import add"),
        ("ops/__init__.py", "from ops import add"),
        ("pkg/modeling_base.py", "from .modeling_base import Base"),
    ],
)
def test_a_file_that_a_modeling_file_imports_affects_it(path: str, statement: str) -> None:
    same = {"pkg/modeling_a.py": model("A", header=statement + "\n"), "pkg/modeling_b.py": model("B")}
    selection = run(same | {path: "x = 1"}, same | {path: "x = 2"})
    module = only(selection)
    assert module.base_classes == module.head_classes == ("A",)
    assert module.reason == f"{path.rpartition('/')[2]} changed"
    assert selection.not_run == ()


@pytest.mark.parametrize(
    "statement",
    [
        "from transformers.utils import logging",
        "from .other import utils",
        "from ..utils import x",
        "from ... import x",
    ],
)
def test_a_namesake_of_what_is_imported_affects_nothing(statement: str) -> None:
    same = {"pkg/modeling_a.py": model("A", header=statement + "\n")}
    selection = run(same | {"pkg/utils.py": "x = 1"}, same | {"pkg/utils.py": "x = 2"})
    assert selection.affected == ()
    assert reasons(selection) == {"pkg/utils.py": "not a modeling file, and none imports it"}


def test_an_imported_file_with_other_comments_affects_nothing() -> None:
    same = {"modeling_a.py": model("A", header="from .layers import Layer\n")}
    selection = run(same | {"layers.py": "x = 1"}, same | {"layers.py": "x = 1  # why"})
    assert selection.affected == ()
    assert reasons(selection) == {"layers.py": ONLY_TEXT}


def test_an_import_on_one_side_is_enough() -> None:
    without, using = model("A"), model("A", header="from .layers import Layer\n")
    selection = run({"modeling_a.py": using, "layers.py": "x = 1"}, {"modeling_a.py": without})
    assert only(selection).reason == "modeling_a.py changed; layers.py was deleted"


def test_a_package_init_affects_the_modeling_files_in_its_folder() -> None:
    same = {"pkg/modeling_a.py": model("A"), "pkg/sub/modeling_b.py": model("B"), "modeling_c.py": model("C")}
    module = only(run(same | {"pkg/__init__.py": ""}, same | {"pkg/__init__.py": "x = 2"}))
    assert module.head_classes == ("A",)
    assert module.reason == "__init__.py changed"


def test_imports_are_not_followed_in_a_transformers_checkout() -> None:
    folder = "src/transformers/models/toy/"
    same = {folder + "modeling_toy.py": model("A", header="from .layers import Layer\n")}
    selection = run(same | {folder + "layers.py": "x = 1"}, same | {folder + "layers.py": "x = 2"})
    assert selection.affected == ()
    assert reasons(selection) == {folder + "layers.py": "not a modeling file"}
