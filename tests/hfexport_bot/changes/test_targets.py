"""Looking up what a user names."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.targets import every_model, globs_of_no_class, resolve_on_both, resolve_targets, why_no_model
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.errors import UsageError
from hfexport_bot.schema import Layout


def model(*names: str) -> str:
    return "".join(f"class {name}(PreTrainedModel):\n    def forward(self): ...\n" for name in names)


CHECKOUT = MappingTree(
    {
        "src/transformers/models/bert/modeling_bert.py": model("BertModel", "BertForMaskedLM"),
        "src/transformers/models/data2vec/modeling_data2vec_audio.py": model("Data2VecAudioModel"),
        "src/transformers/models/data2vec/modeling_data2vec_text.py": model("Data2VecTextModel"),
        "src/transformers/models/broken/modeling_broken.py": "def (",
    }
)
REPOSITORY = MappingTree({"modeling_a.py": model("A", "B"), "pkg/modeling_c.py": model("C"), "tool.py": ""})


def find(*names: str, tree: MappingTree = CHECKOUT, layout: Layout = Layout.TRANSFORMERS) -> dict[str, tuple[str, ...]]:
    found = resolve_targets(names, tree, layout)
    return {module.head.module: module.head_classes for module in found if module.head}


def test_a_model_is_all_classes_of_all_its_files() -> None:
    assert find("bert") == {"transformers.models.bert.modeling_bert": ("BertModel", "BertForMaskedLM")}
    assert list(find("data2vec")) == [
        "transformers.models.data2vec.modeling_data2vec_audio",
        "transformers.models.data2vec.modeling_data2vec_text",
    ]


def test_a_class_is_looked_for_in_all_files_of_its_model() -> None:
    assert find("data2vec/Data2VecTextModel") == {
        "transformers.models.data2vec.modeling_data2vec_text": ("Data2VecTextModel",)
    }


def test_a_glob_that_is_for_no_class_is_told_with_what_it_may_have_meant() -> None:
    model_files = {"zoo/modeling_known.py": model("Knowner"), "zoo/modeling_bad.py": "class Bad(X):\n  def ("}
    head = MappingTree(model_files)
    base = MappingTree({"zoo/modeling_old.py": model("Old")})
    good = ("*", "zoo/*", "*/Knowner/*", "zoo/modeling_known/Knowner/onnx/dynamic/forward", "*/Old/*", "*/Bad/*")
    variants = ("*/Knowner/onnx/*+eager_attention@repo", "*/Knowner/*@repo")
    assert globs_of_no_class([*good, *variants], (head, base), Layout.MODELING) == {}
    assert globs_of_no_class(["zoo/Knowner/*", "*/Typo/*"], (head, base), Layout.MODELING) == {
        "zoo/Knowner/*": "did you mean `zoo/modeling_known/Knowner/*`?",
        "*/Typo/*": "ids are like `zoo/modeling_known/Knowner/onnx/dynamic/forward`",
    }
    other = MappingTree({"zoo/modeling_a.py": "class TwoOutput(ModelOutput):\n    first = None\n", **model_files})
    for glob in ("*/Typo/*", "zoo/TwoOutput/*"):  # a class without cases is no example
        (said,) = globs_of_no_class([glob], (other,), Layout.MODELING).values()
        assert said == "ids are like `zoo/modeling_known/Knowner/onnx/dynamic/forward`"
    assert globs_of_no_class(["x/*"], (other,), Layout.MODELING, "a/A/onnx") == {"x/*": "ids are like `a/A/onnx`"}
    assert globs_of_no_class(["x/*"], (MappingTree({}),), Layout.MODELING) == {"x/*": ""}
    checkout = ["bert/BertModel/*", "data2vec/*", "*/Data2VecTextModel/onnx/*", "bert/BartModel/*", "bart/BertModel/*"]
    assert list(globs_of_no_class(checkout, (CHECKOUT,), Layout.TRANSFORMERS)) == [
        "bert/BartModel/*",
        "bart/BertModel/*",
    ]


def test_models_of_two_revisions_have_the_classes_of_each() -> None:
    base = MappingTree({"modeling_a.py": model("A", "Old"), "modeling_broken.py": "def ("})
    head = MappingTree({name: model(name[9].upper(), "B") for name in ("modeling_a.py", "modeling_n.py")})
    more = MappingTree(
        {"modeling_a.py": model("A", "B"), "modeling_n.py": model("N"), "modeling_broken.py": model("X")}
    )
    found = resolve_on_both(["a", "n"], base, head, Layout.MODELING)
    assert [(each.base and each.base.path, each.base_classes, each.head_classes) for each in found] == [
        ("modeling_a.py", ("A",), ("A", "B")),
        (None, (), ("N", "B")),
    ]
    (broken,) = resolve_on_both(["broken"], base, more, Layout.MODELING)
    assert (broken.base_classes, broken.head_classes) == (("X",), ("X",))
    with pytest.raises(UsageError, match="unknown model 'old'"):
        resolve_on_both(["old"], base, head, Layout.MODELING)


def test_each_class_comes_once() -> None:
    assert find("bert/BertForMaskedLM", "bert") == {
        "transformers.models.bert.modeling_bert": ("BertForMaskedLM", "BertModel")
    }


@pytest.mark.parametrize("name", ["modeling_a.py", "modeling_a", "a"])
def test_a_repositorys_own_models_go_by_path_or_short_name(name: str) -> None:
    assert find(name, tree=REPOSITORY, layout=Layout.MODELING) == {"modeling_a.py": ("A", "B")}


@pytest.mark.parametrize("name", ["pkg/modeling_c/C", "pkg/modeling_c.py:C", "c/C"])
def test_a_class_of_a_file(name: str) -> None:
    assert find(name, tree=REPOSITORY, layout=Layout.MODELING) == {"pkg/modeling_c.py": ("C",)}


@pytest.mark.parametrize("name", ["bert/", "bert//"])
def test_a_name_may_end_as_a_shell_completes_folders(name: str) -> None:
    assert find(name) == find("bert")


@pytest.mark.parametrize("name", ["net", "modeling_net.py", "net/Net", "modeling_net.py:Net"])
def test_a_plain_module_is_told_what_it_lacks(name: str) -> None:
    tree = MappingTree({"modeling_net.py": "class Net(nn.Module):\n    def forward(self, x): return x\n"})
    with pytest.raises(UsageError, match=r"derives from transformers' PreTrainedModel.*; Net derives from torch\.nn"):
        find(name, tree=tree, layout=Layout.MODELING)


def test_every_model_tells_which_files_it_leaves_out() -> None:
    plain = "class Net(nn.Module):\n    def forward(self, x): return x\n"
    tree = MappingTree({"modeling_a.py": model("A"), "modeling_b.py": "def (", "modeling_c.py": plain})
    modules, notes = every_model(tree, Layout.MODELING)
    assert [module.classes for module in modules] == [("A",)]
    assert notes[0] == "modeling_b.py was left out: syntax error, line 1: invalid syntax"
    assert notes[1].startswith("modeling_c.py was left out: a model class derives from")
    assert notes[1].endswith("Net derives from torch.nn.Module only, which no case function makes up for")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"modeling_a.py": model("A")}, ""),
        ({"modeling_a.py": "def (", "modeling_b.py": model("B")}, ""),
        ({"modeling_a.py": "def ("}, "modeling_a.py was left out: syntax error, line 1: invalid syntax"),
        (
            {"modeling_a.py": "#" * (5 << 20)},
            "modeling_a.py was left out: larger than 4 MiB, which is too large to be read",
        ),
        ({"a.py": model("A")}, "no file is called modeling_*.py"),
    ],
)
def test_that_there_is_no_model_at_all_is_told(files: dict[str, str], problem: str) -> None:
    there, gone = MappingTree(files), MappingTree({})
    said = f"no model class to try: {problem}" if problem else ""
    assert why_no_model((there, gone), Layout.MODELING) == said
    assert bool(why_no_model((gone, there), Layout.MODELING)) == bool(problem)


def test_only_what_is_accepted_is_suggested() -> None:
    files = {
        "zoo/modeling_a.py": "class Net(nn.Module): ...",
        "zoo/modeling_b.py": "def (",
        "zoo/modeling_c.py": model("C"),
    }
    with pytest.raises(UsageError, match=r"unknown model 'zoo'; did you mean zoo/modeling_c\?$"):
        find("zoo/*", tree=MappingTree(files), layout=Layout.MODELING)


def test_a_class_without_a_forward_is_told_with_that_reason() -> None:
    mute = "class Mute(PreTrainedModel):\n    pass\n"
    tree = MappingTree({"modeling_a.py": model("A") + mute, "modeling_b.py": mute})
    for name in ("a/Mute", "b", "modeling_b.py:Mute"):
        with pytest.raises(UsageError, match="Mute has no forward"):
            find(name, tree=tree, layout=Layout.MODELING)
    modules, notes = every_model(tree, Layout.MODELING)
    assert [module.classes for module in modules] == [("A",)]
    assert notes == tuple(f"modeling_{x}.py: left out for want of a forward: Mute" for x in "ab")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tool.py": ""}, "no file is called modeling_"),
        ({"modeling_a.py": "x = 1"}, "a model class derives from"),
        ({"modeling_a.py": "def ("}, "modeling_a.py was left out: syntax error"),
    ],
)
def test_no_model_at_all_is_an_error(files: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        every_model(MappingTree(files), Layout.MODELING)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bret/", "unknown model 'bret'; did you mean bert"),
        ("bret", "unknown model 'bret'; did you mean bert"),
        ("bret/BertModel", "unknown model 'bret'; did you mean bert"),
        ("bert/BertForMaskedML", "no model class BertForMaskedML; did you mean BertForMaskedLM"),
        ("src/transformers/models/bert/modeling_bret.py", "did you mean src/transformers/models/bert/modeling_bert.py"),
        ("broken", "syntax error, line 1"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(name)
    assert message in str(caught.value)


def test_a_folder_of_models_is_answered_with_what_lies_in_it() -> None:
    with pytest.raises(UsageError, match=r"unknown model 'pkg'; did you mean pkg/modeling_c\?"):
        find("pkg/", tree=REPOSITORY, layout=Layout.MODELING)


def test_a_class_of_a_broken_file_is_run_to_show_how_it_fails() -> None:
    assert find("broken/BrokenModel") == {"transformers.models.broken.modeling_broken": ("BrokenModel",)}


@pytest.mark.parametrize(("name", "said"), [("pkg/C", "'pkg'"), ("C", "'C'")])
def test_a_class_whose_model_is_missing_is_named_with_it(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"unknown model {said}; did you mean pkg/modeling_c/C\?$"):
        find(name, tree=REPOSITORY, layout=Layout.MODELING)
