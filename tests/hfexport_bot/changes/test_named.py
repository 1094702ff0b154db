"""What else than code selects models: settings, case functions, workarounds, configuration files."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.layout import detect_layout
from hfexport_bot.changes.named import Asked
from hfexport_bot.changes.selection import NOT_EXPORTED, ONLY_TEXT, Selection, is_harmless
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.settings import SETTINGS_PATH, Both, SettingsFile, concerning
from tests.hfexport_bot.changes.checkout import FILES

MODEL = "class {0}(PreTrainedModel):\n    config_class = object\n    def forward(self): pass\n"
BASE = {
    "zoo/modeling_cat.py": MODEL.format("CatModel") + MODEL.format("CatHead"),
    "zoo/modeling_dog.py": MODEL.format("DogModel"),
    "farm/modeling_cow.py": MODEL.format("CowModel"),
    "export_cases.py": '"""Not for DogModel."""\nimport helper\ndef build(name, seed): return helper.f(CatHead)\n',
    "helper.py": "def f(x): return x\n",
    "workarounds.py": "TARGET = 'zoo.modeling_dog.DogLayer.forward'\n",
    SETTINGS_PATH: "cases: export_cases.py:build\n",
}
HOOKS = {"export_cases.py": "case functions", "workarounds.py": "workarounds"}


def run(new: Mapping[str, str | None], asked: Asked | None = None, base: Mapping[str, str] = BASE) -> Selection:
    head = {path: source for path, source in {**base, **new}.items() if source is not None}
    changes = [FileChange(path if path in base else None, path if path in head else None) for path in new]
    trees = MappingTree(base), MappingTree(head)
    return select(changes, *trees, detect_layout(trees[1]), asked=asked or Asked(hooks=HOOKS, file=SETTINGS_PATH))


def affected(selection: Selection) -> dict[str, str]:
    return {name: module.reason_of(name) for module in selection.affected for name in module.classes}


def not_run(selection: Selection) -> dict[str, str]:
    return {entry.name: entry.reason for entry in selection.not_run}


def test_a_changed_case_function_selects_the_classes_it_names() -> None:
    selection = run({"export_cases.py": BASE["export_cases.py"].replace("f(CatHead)", "f(CatHead, 1)")})
    assert affected(selection) == {"CatHead": "export_cases.py, the repository's case functions, changed"}
    assert selection.not_run == ()


def test_what_a_case_function_uses_counts_and_its_comments_do_not() -> None:
    selection = run({"helper.py": "def f(x): return 2\n"})
    assert set(affected(selection)) == {"CatHead"}
    assert not_run(selection) == {}
    selection = run({"export_cases.py": BASE["export_cases.py"] + "# CowModel\n"})
    assert affected(selection) == {}
    assert not_run(selection) == {"export_cases.py": ONLY_TEXT}


def test_a_helper_of_case_functions_selects_in_a_checkout_of_transformers_too() -> None:
    cases = "from ci.helpers import f\nfrom transformers import FarModel\ndef build(name, seed): return f(FarModel)\n"
    base = FILES | {
        "ci/cases.py": cases,
        "ci/helpers.py": "from .deep import g\ndef f(x): return g(x)\ndef other(x): return x\n",
        "ci/deep.py": "def g(x): return x\n",
        "ci/unused.py": "def h(x): return x\n",
    }
    asked = Asked(hooks={"ci/cases.py": "case functions"}, file=SETTINGS_PATH)
    for path, old, new in (("ci/helpers.py", "g(x)", "1"), ("ci/deep.py", "return x", "return 2")):
        selection = run({path: base[path].replace(old, new)}, asked, base)
        assert affected(selection) == {"FarModel": "ci/cases.py, the repository's case functions, changed"}
        assert not_run(selection) == {}
    selection = run({"ci/unused.py": "def h(x): return 2\n"}, asked, base)
    assert affected(selection) == {}
    assert not_run(selection) == {"ci/unused.py:h": NOT_EXPORTED}


def test_data_that_a_case_function_names_counts() -> None:
    base = BASE | {"export_cases.py": "CONFIG = 'data/tiny.json'\ndef build(name, seed): return CatModel, CONFIG\n"}
    selection = run({"data/tiny.json": "{}"}, base=base)
    assert affected(selection) == {"CatModel": "data/tiny.json changed, which export_cases.py names"}
    assert not_run(selection) == {}


def test_workarounds_select_the_files_of_what_they_patch() -> None:
    selection = run({"workarounds.py": "TARGET = 'zoo.modeling_dog.DogLayer.backward'\n"})
    assert set(affected(selection)) == {"DogModel"}


def test_a_case_function_that_names_no_class_selects_all() -> None:
    assert set(
        affected(
            run(
                {"export_cases.py": "def build(name, seed): return make(name)\n"},
                base=BASE | {"export_cases.py": "def build(name, seed): return None\n"},
            )
        )
    ) == {"CatModel", "CatHead", "DogModel", "CowModel"}


@pytest.mark.parametrize(
    ("base", "head", "names"),
    [
        ({}, {"checkpoints": {"DogModel": "a/b"}}, {"DogModel"}),
        (
            {"checkpoints": {"zoo/modeling_cat": "a/b"}},
            {"checkpoints": {"zoo/modeling_cat": "a/c"}},
            {"CatModel", "CatHead"},
        ),
        ({}, {"accepted": [{"id": "farm/*/onnx/*", "reason": "r"}]}, {"CowModel"}),
        ({}, {"cases": "export_cases.py:build"}, {"CatHead"}),
        ({}, {"limits": {"seconds": 9}, "seed": 2}, set()),
    ],
)
def test_settings_select_the_models_they_say_something_new_of(
    base: dict[str, object], head: dict[str, object], names: set[str]
) -> None:
    asked = concerning(Both(SettingsFile.model_validate(base), SettingsFile.model_validate(head)))
    selection = run({SETTINGS_PATH: "# new"}, asked)
    assert set(affected(selection)) == names
    if not names:
        assert not_run(selection) == {SETTINGS_PATH: "takes effect after merge: `limits`, `seed`"}
        assert all(map(is_harmless, selection.not_run))
    else:
        assert not_run(selection) == {}


def test_settings_with_other_comments_select_nothing() -> None:
    asked = concerning(Both(SettingsFile(), SettingsFile()))
    assert not_run(run({SETTINGS_PATH: "# new"}, asked)) == {SETTINGS_PATH: ONLY_TEXT}


def test_a_config_json_selects_the_models_beside_it_that_it_names() -> None:
    assert affected(run({"zoo/config.json": "{}"})) == dict.fromkeys(
        ("CatModel", "CatHead", "DogModel"), "zoo/config.json changed"
    )
    assert set(affected(run({"zoo/config.json": '{"architectures": ["CatHead"]}'}))) == {"CatHead"}
    assert set(affected(run({"zoo/config.json": "no json"}))) == {"CatModel", "CatHead", "DogModel"}
    assert not_run(run({"elsewhere/config.json": "{}"})) == {"elsewhere/config.json": "no model reads it"}


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*/CatModel/*", {"CatModel"}),
        ("zoo/modeling_*/onnx/static/*", {"CatModel", "CatHead", "DogModel"}),
        ("*[mM]odel/dynamo/*", {"CatModel", "DogModel", "CowModel"}),
        ("[f]arm/*", {"CowModel"}),
        ("*/C?tHead/*/generate", {"CatHead"}),
        ("zoo/modeling_dog/DogModel/executorch/dynamic/forward", {"DogModel"}),
        ("*", {"CatModel", "CatHead", "DogModel", "CowModel"}),
        ("*/dogmodel/*", set()),
    ],
)
def test_a_glob_selects_the_classes_with_a_case_that_it_matches(glob: str, expected: set[str]) -> None:
    found = run({}, Asked(globs=((glob, "said so"),)))
    assert affected(found) == dict.fromkeys(expected, "said so")
