"""From changed files to affected classes."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.layout import detect_layout
from hfexport_bot.changes.selection import NOT_EXPORTED, ONLY_TEXT, AffectedModule, Selection
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.plan import plan_cases
from hfexport_bot.sample import candidates
from hfexport_bot.schema import Backend, Layout, Shapes, Task


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
    assert module.reasons == {
        "A": "A.forward changed in modeling_a.py",
        "B": "B was removed in modeling_a.py",
        "C": "C was added in modeling_a.py",
    }
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
    assert reasons(selection) == {f"{outside}:x": NOT_EXPORTED, "modeling_stray.py:S.forward": NOT_EXPORTED}


def test_added_and_deleted_files_have_one_side() -> None:
    selection = run({"modeling_old.py": model("Old")}, {"pkg/modeling_new.py": model("New")})
    old, new = selection.affected
    assert (old.head, old.base_classes, old.head_classes) == (None, ("Old",), ())
    assert old.reason == "Old was removed in modeling_old.py"
    assert (new.base, new.base_classes, new.head_classes) == (None, (), ("New",))
    assert new.reason == "New was added in modeling_new.py"


def test_a_file_that_is_only_renamed_is_not_told_to_have_other_imports() -> None:
    helper, user = "import math\ndef scale(x): return math.sqrt(x)\n", "class M(PreTrainedModel):\n    x = scale(1)\n"
    before = {"old.py": helper, "modeling_a.py": f"from old import scale\n{user}"}
    after = {"new.py": helper, "modeling_a.py": f"from new import scale\n{user}"}
    assert not any("imports" in reason for reason in reasons(run(before, after, moves={"old.py": "new.py"})).values())


def test_a_model_that_is_renamed_with_its_file_is_removed_there_and_new_here() -> None:
    before, after = {"zoo/modeling_old.py": model("Old", "Kept")}, {"zoo/modeling_new.py": model("New", "Kept")}
    kept, gone = run(before, after, moves={"zoo/modeling_old.py": "zoo/modeling_new.py"}).affected
    assert (kept.base_classes, kept.head_classes) == (("Kept",), ("New", "Kept"))
    assert gone.base is not None
    assert (gone.base.model, gone.head, gone.base_classes, gone.classes) == ("zoo/modeling_old", None, *[("Old",)] * 2)
    cases = plan_cases(Selection((kept, gone)), [Backend.DYNAMO], [Shapes.DYNAMIC], [Task.FORWARD])
    assert {f"{case.id.model}/{case.id.class_name}": (case.base_module, case.head_module) for case in cases} == {
        "zoo/modeling_new/New": (None, "zoo/modeling_new.py"),
        "zoo/modeling_new/Kept": ("zoo/modeling_old.py", "zoo/modeling_new.py"),
        "zoo/modeling_old/Old": ("zoo/modeling_old.py", None),
    }
    keys = {each.key for each in candidates(cases, Selection((kept, gone)), {}, {})}
    assert keys == {(case.id.model, case.id.class_name) for case in cases}


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


def config(value: int, comment: str = "") -> str:
    return f"class AConfig(PreTrainedConfig):\n    size = {value}{comment}\n"


def using(name: str, config_module: str = "configuration_a") -> str:
    """A model that names its configuration as models do."""
    header = f"from .{config_module} import AConfig\n"
    return header + f"class {name}(PreTrainedModel):\n    config_class = AConfig\n    def forward(self): return 1\n"


def test_configuration_affects_the_models_that_name_it() -> None:
    same = {
        "modeling_a.py": using("A"),
        "modeling_b.py": "from .configuration_a import AConfig\n" + model("B"),
        "other/modeling_a.py": model("Other"),
    }
    selection = run(same | {"configuration_a.py": config(1)}, same | {"configuration_a.py": config(2)})
    assert only(selection).reasons == {"A": "AConfig.size changed in configuration_a.py → A"}


def test_configuration_outweighs_a_docstring_change() -> None:
    selection = run(
        {"modeling_a.py": using("A"), "configuration_a.py": config(1)},
        {"modeling_a.py": using("A") + "# more\n", "configuration_a.py": config(2)},
    )
    assert only(selection).reason == "AConfig.size changed in configuration_a.py → A"
    assert reasons(selection) == {"modeling_a.py": ONLY_TEXT}


def test_a_model_named_only_in_its_init_s_hint_is_affected() -> None:
    source = (
        "from .configuration_a import AConfig\nclass A(PreTrainedModel):\n"
        "    def __init__(self, config: AConfig): pass\n    def forward(self): return 1\n"
    )
    same = {"modeling_a.py": source}
    assert only(run(same | {"configuration_a.py": config(1)}, same | {"configuration_a.py": config(2)})).classes == (
        "A",
    )


def test_configurations_that_affect_nothing_are_listed() -> None:
    selection = run(
        {"configuration_a.py": config(1), "configuration_b.py": config(1)},
        {"configuration_a.py": config(1, "  # why"), "configuration_b.py": config(2)},
    )
    assert reasons(selection) == {"configuration_a.py": ONLY_TEXT, "configuration_b.py:AConfig.size": NOT_EXPORTED}


def test_tests_documents_and_other_languages_are_mentioned_in_one_line() -> None:
    paths = ("tests/modeling_a.py", "docs/conf.py", "test_a.py", "README.md", "x/conftest.py")
    selection = run({}, dict.fromkeys(paths, model("A")))
    assert selection.affected == ()
    assert reasons(selection) == {"5 files": "no model reads them: README.md, docs/conf.py, test_a.py and 2 more"}
    assert reasons(run({}, {"README.md": "x", "a.png": "y"})) == dict.fromkeys(
        ("README.md", "a.png"), "no model reads it"
    )


def test_files_without_models_and_odd_names_are_listed() -> None:
    selection = run(
        {}, {"modeling_utils.py": "x = 1", "my models/modeling_a.py": model("A"), "modeling_tf_a.py": model("T")}
    )
    assert selection.affected == ()
    found = reasons(selection)
    assert found["modeling_utils.py"] == NOT_EXPORTED
    assert "case id" in found["my models/modeling_a.py"]
    assert found["modeling_tf_a.py"] == NOT_EXPORTED


LAYER = "class Layer(Module):\n    def forward(self): return {}\n"


def holding(name: str, statement: str, use: str) -> str:
    body = "".join(f"        {line}\n" for line in use.splitlines())
    return f"{statement}\nclass {name}(PreTrainedModel):\n    def forward(self):\n{body}"


@pytest.mark.parametrize(
    ("path", "statement", "use"),
    [
        ("pkg/layers.py", "from .layers import Layer", "return Layer()"),
        ("pkg/layers.py", "from .layers import Layer as L", "return L()"),
        ("pkg/layers.py", "from . import layers", "return layers.Layer()"),
        ("pkg/layers.py", "import pkg.layers", "return pkg.layers.Layer()"),
        ("pkg/layers.py", "", "from layers import Layer\nreturn Layer()"),
        ("pkg/layers.py", "from .layers import *", "return Layer()"),
        ("pkg/layers.py", "from . import layers", "return getattr(layers, self.kind)()"),
        ("ops/fast.py", "from ..ops.fast import Layer", "return Layer()"),
        ("ops/__init__.py", "from ops import Layer", "return Layer()"),
    ],
)
def test_a_definition_that_a_model_uses_affects_it(path: str, statement: str, use: str) -> None:
    same = {"pkg/modeling_a.py": holding("A", statement, use), "pkg/modeling_b.py": holding("B", statement, "return 1")}
    selection = run(same | {path: LAYER.format(1)}, same | {path: LAYER.format(2)})
    if use.startswith("from"):
        assert "A" in only(selection).classes
    module = only(selection)
    assert module.base_classes == module.head_classes == ("A",)
    assert module.reason == f"Layer.forward changed in {path.rpartition('/')[2]} → A"
    assert selection.not_run == ()


def test_another_definition_of_a_file_that_is_used_affects_nothing() -> None:
    same = {"modeling_a.py": holding("A", "from .layers import Layer, other", "return Layer()")}
    selection = run(
        same | {"layers.py": LAYER.format(1) + "def other(): return 1\n"},
        same | {"layers.py": LAYER.format(1) + "def other(): return 2\n"},
    )
    assert reasons(selection) == {"layers.py:other": NOT_EXPORTED}


@pytest.mark.parametrize(
    "statement",
    [
        "from transformers.utils import logging as x",
        "from .other import x",
        "from ..utils import x",
        "from ... import x",
    ],
)
def test_a_namesake_of_what_is_imported_affects_nothing(statement: str) -> None:
    same = {"pkg/modeling_a.py": holding("A", statement, "return x")}
    selection = run(same | {"pkg/utils.py": "x = 1"}, same | {"pkg/utils.py": "x = 2"})
    assert selection.affected == ()
    assert reasons(selection) == {"pkg/utils.py:x": NOT_EXPORTED}


def test_an_imported_file_with_other_comments_affects_nothing() -> None:
    same = {"modeling_a.py": holding("A", "from .layers import Layer", "return Layer()")}
    selection = run(same | {"layers.py": "x = 1"}, same | {"layers.py": "x = 1  # why"})
    assert selection.affected == ()
    assert reasons(selection) == {"layers.py": ONLY_TEXT}


def test_a_deleted_definition_affects_those_that_used_it() -> None:
    using_it = holding("A", "from .layers import Layer", "return Layer()")
    selection = run({"modeling_a.py": using_it, "layers.py": LAYER.format(1)}, {"modeling_a.py": using_it})
    assert only(selection).reason == "Layer was removed in layers.py → A"


def test_a_cycle_of_imports_ends() -> None:
    same = {
        "one.py": "from .two import missing, b\nfrom .two import *\ndef a(): return b()\n",
        "modeling_a.py": holding("A", "from .one import a, missing", "return a()"),
    }
    two = "from .one import missing\nfrom .one import *\ndef b(): return {}\n"
    selection = run(same | {"two.py": two.format(1)}, same | {"two.py": two.format(2)})
    assert only(selection).reason == "b changed in two.py → a → A"


def test_huge_and_binary_files_are_no_python() -> None:
    same = {"modeling_a.py": model("A")}
    selection = run(same | {"data.py": "x = 1"}, same | {"data.py": "x = '\0'"})
    assert selection.affected == ()
    selection = run(same, same | {"big.py": "x = 1\n" * 1_000_000})
    assert "larger than" in reasons(selection)["big.py"]


def test_an_empty_diff_selects_nothing() -> None:
    assert run({"modeling_a.py": model("A")}, {"modeling_a.py": model("A")}) == Selection()


@pytest.mark.parametrize("more", ["", "def unused(): return 1\n"])
def test_what_runs_at_import_is_not_both_affecting_and_left_out(more: str) -> None:
    base = {"flags.py": f"import torch\ntorch.set_flags(1)\n{more}", "modeling_a.py": "import flags\n" + model("A")}
    selection = run(base, {**base, "flags.py": base["flags.py"].replace("flags(1)", "flags(2)")})
    why = "module-level code changed in flags.py → the import of modeling_a.py → A"
    assert only(selection).reasons == {"A": why}
    assert selection.not_run == ()
