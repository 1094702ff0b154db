"""Changes of the shapes that transformers' history has, on a small checkout: what each of them affects, worked out by
hand."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.selection import NOT_EXPORTED, ONLY_MODE, ONLY_TEXT
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout
from tests.hfexport_bot.changes.checkout import ALL, FAR, FILES, LAZY, SRC, TOY, affected, not_run, run


def test_a_class_and_what_builds_on_it() -> None:
    selection = run({TOY: ("self.layer(x,", "self.layer(x + 1,")})
    assert affected(selection) == {"ToyModel", "ToyForCausalLM"}
    (module,) = selection.affected
    assert module.reason_of("ToyForCausalLM") == "ToyModel.forward changed in modeling_toy.py → ToyForCausalLM"


def test_the_last_class_alone_and_the_checks_of_its_test() -> None:
    test = "tests/models/toy/test_modeling_toy.py"
    checks = "class ToyModelTest:\n    all_model_classes = (ToyModel,)\n    def test_this(self): return 1\n"
    selection = run(
        {TOY: ("return self.model(x)", "return self.model(x) + 1"), test: ("return 1", "return 2")}, {test: checks}
    )
    assert affected(selection) == {"ToyForCausalLM"}
    assert list(not_run(selection)) == [test]


def test_a_tester_affects_the_classes_that_its_test_lists() -> None:
    test = "tests/models/toy/test_modeling_toy.py"
    text = """
from transformers import ToyConfig, ToyModel
class ToyModelTester:
    def get_config(self): return ToyConfig(size=1)
    def create_and_check_model(self): return 1
class ToyModelTest:
    all_model_classes = (ToyModel,)
    def setUp(self): self.model_tester = ToyModelTester(self)
    def _helper(self): return "one"
class ToyIntegrationTest(unittest.TestCase):
    def setUp(self): self.path = "big"
"""
    assert affected(run({test: ('"big"', '"huge"')}, {test: text})) == set()
    assert affected(run({test: ("size=1", "size=2")}, {test: text})) == {"ToyModel"}
    assert affected(run({test: ("return 1", "return 2")}, {test: text})) == set()
    assert affected(run({test: ('"one"', '"two"')}, {test: text})) == set()
    assert affected(run({test: ("ToyModelTester(self)", "ToyModelTester(self, 1)")}, {test: text})) == {"ToyModel"}


def test_a_modular_file_whose_generated_one_did_not_change_runs_nothing() -> None:
    modular = SRC + "models/toy/modular_toy.py"
    header = "# This file was automatically generated from src/transformers/models/toy/modular_toy.py.\n"
    files = {modular: "x = 1\n", TOY: header + FILES[TOY]}
    selection = run({modular: ("x = 1", "x = 2")}, files)
    assert selection.affected == ()
    assert "modeling_toy.py did not" in not_run(selection)[modular]
    both = run({modular: ("x = 1", "x = 2"), TOY: ("self.layer(x,", "self.layer(x + 1,")}, files)
    assert affected(both) == {"ToyModel", "ToyForCausalLM"}
    assert both.not_run == ()
    assert both.affected[0].reason == "ToyModel.forward changed in modular_toy.py"
    processing = SRC + "models/toy/processing_toy.py"
    made = {**files, processing: header + "size = 1\n"}
    assert modular not in not_run(run({modular: ("x = 1", "x = 2"), processing: ("size = 1", "size = 2")}, made))


def test_a_file_of_which_only_the_mode_changed_says_so() -> None:
    assert not_run(run({TOY: ("class", "class")})) == {TOY: ONLY_MODE}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Says something.", "Says more."),
        ("def forward(self, x, cache)", "def forward(self, x: int, cache) -> int"),
        ("class ToyLayer:", "# why\nclass ToyLayer:"),
        ("class ToyLayer:", "@add_start_docstrings('Other.')\nclass ToyLayer:"),
    ],
)
def test_text_affects_nothing(old: str, new: str) -> None:
    selection = run({TOY: (old, new)})
    assert selection.affected == ()
    assert not_run(selection) == {TOY: ONLY_TEXT}


@pytest.mark.parametrize(
    "names",
    [
        "_can_record_outputs = {'x': ToySide}",
        "def init_weights(self, module): return isinstance(module, ToySide)",
        "def init_weights(self, module): return isinstance(module, (ToyLayer, ToySide))",
    ],
)
def test_a_layer_that_is_only_asked_for_or_listened_to_affects_those_that_hold_it(names: str) -> None:
    side = "class ToySide:\n    def forward(self): return 1\nclass ToyPreTrainedModel"
    outer = "class ToyOuter(ToyPreTrainedModel):\n    def forward(self): return ToySide()\n__all__ = ['ToyOuter', "
    text = FILES[TOY].replace("class ToyPreTrainedModel", side).replace("__all__ = [", outer)
    files = {TOY: text.replace("config: ToyConfig", f"config: ToyConfig\n    {names}")}
    assert affected(run({TOY: ("def forward(self): return 1", "def forward(self): return 2")}, files)) == {"ToyOuter"}
    renamed = run({TOY: ("class ToySide:", "class ToyOther:")}, files)
    assert affected(renamed) == {"ToyOuter", "ToyModel", "ToyForCausalLM"}


def test_what_only_writes_docstrings_affects_nothing() -> None:
    text = "TOY_START_DOCSTRING = 'a'\n@add_start_docstrings(TOY_START_DOCSTRING)\nclass ToyLayer:"
    selection = run({TOY: ("DOCSTRING = 'a'", "DOCSTRING = 'b'")}, {TOY: FILES[TOY].replace("class ToyLayer:", text)})
    assert selection.affected == ()
    assert not_run(selection) == {TOY: ONLY_TEXT}
    words = SRC + "utils/auto_docstring.py"
    decorated = FILES[TOY].replace("@can_return_tuple", "@auto_docstring\n    @can_return_tuple")
    files = {words: "class ModelArgs:\n    labels = 'a'\n", TOY: decorated}
    selection = run({words: ("'a'", "'b'")}, files)
    assert selection.affected == ()
    assert not_run(selection) == {words: ONLY_TEXT}


def test_hints_count_where_they_make_a_field() -> None:
    output = "@dataclass\nclass ToyOutput:\n    x: int = 1\nclass ToyLayer:\n    output = ToyOutput"
    files = {TOY: FILES[TOY].replace("class ToyLayer:", output)}
    assert affected(run({TOY: ("x: int = 1", "x: str = 1")}, files)) == {"ToyModel", "ToyForCausalLM"}
    local = {
        TOY: FILES[TOY].replace("x): return self.model(x)", "x):\n        y: int = self.model(x)\n        return y")
    }
    assert not_run(run({TOY: ("y: int", "y: Tensor | None")}, local)) == {TOY: ONLY_TEXT}


def test_assisted_decoding_and_a_model_that_only_it_uses_are_on_no_exported_path() -> None:
    drafts, layers = SRC + "generation/candidate_generator.py", SRC + "modeling_layers.py"
    selection = run({drafts: ("get_candidates(self): return 1", "get_candidates(self): return 2"), layers: ("1", "2")})
    assert selection.affected == ()
    assert not_run(selection) == {
        f"{drafts}:DraftGenerator.get_candidates": NOT_EXPORTED,
        f"{layers}:MtpModel.forward": NOT_EXPORTED,
    }


def test_cropping_a_cache_is_on_no_exported_path_but_a_models_forward_that_crops_is() -> None:
    cache = SRC + "cache_utils.py"
    edit = {cache: ("self.keys[:length]", "self.keys[:-length]")}
    assert run(edit).affected == ()
    assert not_run(run(edit)) == {f"{cache}:DynamicLayer.crop": NOT_EXPORTED}
    sampling = "    def sample_actions(self, cache): cache.crop(1)\n__all__"
    assert run(edit, {FAR: FILES[FAR].replace("__all__", sampling)}).affected == ()
    cropping = {FAR: FILES[FAR].replace("return self.layer(x,", "self.cache.crop(1)\n        return self.layer(x,")}
    assert affected(run(edit, cropping)) == {"FarModel", "FarForCausalLM"}


def test_updating_a_cache_affects_whoever_uses_one() -> None:
    assert affected(run({SRC + "cache_utils.py": ("return k, v", "return v, k")})) == ALL


COMPOSITE = {
    SRC + "models/duo/configuration_duo.py": """
from ...configuration_utils import PreTrainedConfig
from ..auto import CONFIG_MAPPING, AutoConfig
class DuoConfig(PreTrainedConfig):
    sub_configs = {"text_config": AutoConfig}
    def __init__(self, text):
        self.text = CONFIG_MAPPING["toy"]() if text is None else CONFIG_MAPPING[text["model_type"]]()
__all__ = ["DuoConfig"]
""",
    SRC + "models/duo/modeling_duo.py": """
from ...modeling_utils import PreTrainedModel
from ..auto import AutoModel
from .configuration_duo import DuoConfig
class DuoModel(PreTrainedModel):
    config: DuoConfig
    def __init__(self, config): self.text = AutoModel.from_config(config.text)
    def forward(self, x): return self.text(x)
__all__ = ["DuoModel"]
""",
    SRC + "models/duo/__init__.py": LAZY,
}


DUO_TESTER = "from transformers import FarConfig\nclass DuoTest:\n    def get_text_model(self): return FarConfig()\n"


def test_a_composite_model_is_affected_by_the_models_that_its_configuration_or_tests_name() -> None:
    forward = ("self.layer(x,", "self.layer(x + 1,")
    assert "DuoModel" in affected(run({TOY: forward}, COMPOSITE))
    assert "DuoModel" not in affected(run({FAR: forward}, COMPOSITE))
    config = SRC + "models/toy/configuration_toy.py"
    assert "DuoModel" in affected(run({config: ("size: int = 4", "size: int = 8")}, COMPOSITE))
    tests = {"tests/models/duo/test_modeling_duo.py": DUO_TESTER}
    assert "DuoModel" in affected(run({FAR: forward}, COMPOSITE | tests))


def test_a_configuration_may_name_the_class_of_another_instead_of_its_type() -> None:
    """Deriving from another does not: a model is built for what the configuration holds."""
    config = SRC + "models/duo/configuration_duo.py"
    imported = COMPOSITE[config].replace(
        "class DuoConfig", "from ..far.configuration_far import FarConfig\nclass DuoConfig"
    )
    forward = {FAR: ("self.layer(x,", "self.layer(x + 1,")}
    holding = imported.replace('"text_config": AutoConfig', '"text_config": FarConfig')
    assert "DuoModel" in affected(run(forward, COMPOSITE | {config: holding}))
    made = imported.replace('CONFIG_MAPPING["toy"]()', "FarConfig()")
    assert "DuoModel" in affected(run(forward, COMPOSITE | {config: made}))
    deriving = imported.replace("DuoConfig(PreTrainedConfig)", "DuoConfig(FarConfig)")
    assert "DuoModel" not in affected(run(forward, COMPOSITE | {config: deriving}))


def test_a_new_type_in_the_auto_tables_affects_no_other() -> None:
    table = SRC + "models/auto/modeling_auto.py"
    assert run({table: ('("far",', '("new", "NewModel"), ("far",')}, COMPOSITE).affected == ()
    assert affected(run({table: ('"ToyModel"', '"ToyForCausalLM"')}, COMPOSITE)) == {"DuoModel"}


def test_a_lazy_import_is_an_edge_only_from_the_function_that_holds_it() -> None:
    swap = "def swap():\n    from ..models.toy.modeling_toy import ToyLayer\n    return ToyLayer\n"
    helper = {SRC + "integrations/bits.py": swap}
    user = {FAR: FILES[FAR] + "from ...integrations.bits import other\n"}
    assert affected(run({TOY: ("cache.update(x, x, 0)", "x")}, helper | user)) == {"ToyModel", "ToyForCausalLM"}


def test_an_affected_class_without_a_forward_is_named() -> None:
    outer = "class ToyForAll(ToyPreTrainedModel):\n    def __init__(self, config): self.toy = ToyModel(config)\n"
    files = {TOY: FILES[TOY].replace('__all__ = ["', outer + '__all__ = ["ToyForAll", "')}
    reasons = not_run(run({TOY: ("self.layer(x,", "self.layer(x + 1,")}, files))
    assert reasons["toy/ToyForAll"].startswith("it has no forward of its own to export; ToyModel.forward changed")


def test_what_is_installed_affects_every_model() -> None:
    files = {"requirements.txt": "torch==2.12\n"}
    selection = run({"requirements.txt": ("2.12", "2.13")}, files)
    assert affected(selection) == ALL
    assert "torch==2.12 to torch==2.13" in selection.affected[0].reason
    comment = run({"requirements.txt": ("torch", "# why\ntorch")}, files)
    assert comment.affected == ()
    assert list(not_run(comment)) == ["requirements.txt"]


def test_a_modular_file_whose_generated_file_did_not_change_says_so() -> None:
    path = "zoo/modular_a.py"
    code = (
        "from transformers import PreTrainedModel\nclass AModel(PreTrainedModel):\n    def forward(self, x): return x\n"
    )
    header = "# This file was automatically generated from zoo/modular_a.py.\n"
    files = {"zoo/modeling_a.py": header + code, path: code}
    trees = MappingTree(files), MappingTree({**files, path: code.replace("return x", "return -x")})
    found = select([FileChange(path, path)], *trees, Layout.MODELING)
    assert not found.affected
    assert [entry.reason for entry in found.not_run] == [
        "only the modular file changed; modeling_a.py did not, so that the code that runs is the same"
    ]
