"""Changes of the shapes that transformers' history has, on a small checkout: what each of them affects, worked out by
hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hfexport_bot.changes.affected import NOT_EXPORTED, ONLY_TEXT, Selection, select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout

SRC = "src/transformers/"
LAZY = """
from typing import TYPE_CHECKING
from ...utils import _LazyModule
from ...utils.import_utils import define_import_structure
if TYPE_CHECKING:
    pass
else:
    import sys
    sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], define_import_structure(__file__))
"""
CORE = {
    "__init__.py": "",
    "models/__init__.py": "",
    "utils/__init__.py": "from .generic import can_return_tuple\n",
    "utils/generic.py": "def can_return_tuple(f): return f\n",
    "activations.py": """
class Gelu: pass
class Silu: pass
class ClassInstantier(dict): pass
ACT2CLS = {"gelu": Gelu, "silu": Silu}
ACT2FN = ClassInstantier(ACT2CLS)
""",
    "cache_utils.py": """
class CacheLayerMixin:
    def crop(self, length): pass
class DynamicLayer(CacheLayerMixin):
    def update(self, k, v): return k, v
    def crop(self, length): self.keys = self.keys[:length]
LAYERS = {"full": DynamicLayer}
class Cache:
    def __init__(self, kind): self.layers = [LAYERS[kind]()]
    def update(self, k, v, i): return self.layers[i].update(k, v)
    def crop(self, length):
        for layer in self.layers: layer.crop(length)
class DynamicCache(Cache):
    pass
""",
    "configuration_utils.py": """
class PreTrainedConfig:
    def __init__(self, **kwargs): self.settle(kwargs)
    def settle(self, kwargs): return 1
    def save_pretrained(self, path): return self.to_file(path)
    def to_file(self, path): return 1
""",
    "quantizers/__init__.py": "class Quantizer:\n    def prepare(self): return 1\n",
    "modeling_utils.py": """
from .activations import ACT2FN
from .quantizers import Quantizer
class PreTrainedModel:
    def __init__(self, config): self.config = config
    def post_init(self): self.init_weights()
    def init_weights(self): return ACT2FN[self.config.act]
    def from_pretrained(cls, path): return cls.read(path, Quantizer())
    def read(cls, path, quantizer): return quantizer.prepare()
    def widen(self, mask): return mask
""",
    "generation/__init__.py": """
from typing import TYPE_CHECKING
_import_structure = {"utils": ["GenerationMixin"]}
if TYPE_CHECKING:
    from .utils import GenerationMixin
""",
    "generation/utils.py": """
from ..cache_utils import DynamicCache
from .candidate_generator import DraftGenerator
GENERATION_MODES_MAPPING = {GenerationMode.GREEDY_SEARCH: "_sample", GenerationMode.ASSISTED: "_assisted_decoding"}
class GenerationMixin:
    def generate(self, mode): return getattr(type(self), GENERATION_MODES_MAPPING[mode])(self)
    def _sample(self): return self._next()
    def _next(self): return 1
    def _assisted_decoding(self):
        self.outputs.cache.crop(-1)
        return self._drafts()
    def _drafts(self): return DraftGenerator()
""",
    "generation/candidate_generator.py": """
class DraftGenerator:
    def __init__(self):
        from ..modeling_layers import MtpModel
        self.model = MtpModel.from_pretrained("x")
    def get_candidates(self): return 1
""",
    "modeling_layers.py": """
from .modeling_utils import PreTrainedModel
class MtpModel(PreTrainedModel):
    def forward(self): return 1
""",
    "models/auto/__init__.py": LAZY,
    "models/auto/configuration_auto.py": """
CONFIG_MAPPING_NAMES = OrderedDict([("toy", "ToyConfig"), ("far", "FarConfig")])
class _LazyConfigMapping: pass
CONFIG_MAPPING = _LazyConfigMapping(CONFIG_MAPPING_NAMES)
class AutoConfig:
    def for_model(cls, kind): return CONFIG_MAPPING[kind]
__all__ = ["CONFIG_MAPPING", "AutoConfig"]
""",
    "models/auto/modeling_auto.py": """
from .configuration_auto import CONFIG_MAPPING_NAMES
MODEL_MAPPING_NAMES = OrderedDict([("toy", "ToyModel"), ("far", "FarModel")])
class _LazyAutoMapping: pass
MODEL_MAPPING = _LazyAutoMapping(CONFIG_MAPPING_NAMES, MODEL_MAPPING_NAMES)
class AutoModel:
    _model_mapping = MODEL_MAPPING
__all__ = ["AutoModel"]
""",
}


def toy(name: str, header: str = "") -> dict[str, str]:
    """A model type: its configuration and two classes, one built on the other, that use a cache and an activation."""
    folder = f"models/{name.lower()}/"
    return {
        folder + "__init__.py": LAZY,
        folder + f"configuration_{name.lower()}.py": f"""
from ...configuration_utils import PreTrainedConfig
class {name}Config(PreTrainedConfig):
    model_type = "{name.lower()}"
    size: int = 4
__all__ = ["{name}Config"]
""",
        folder + f"modeling_{name.lower()}.py": f"""{header}
from ...activations import ACT2FN
from ...cache_utils import DynamicCache
from ...generation import GenerationMixin
from ...modeling_utils import PreTrainedModel
from ...utils import can_return_tuple
from .configuration_{name.lower()} import {name}Config
class {name}PreTrainedModel(PreTrainedModel):
    config: {name}Config
class {name}Layer:
    def __init__(self, config): self.act = ACT2FN[config.act]
    def forward(self, x, cache): return cache.update(x, x, 0)
class {name}Model({name}PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.layer = {name}Layer(config)
        self.post_init()
    @can_return_tuple
    def forward(self, x):
        '''Says something.'''
        return self.layer(x, DynamicCache("full"))
class {name}ForCausalLM({name}PreTrainedModel, GenerationMixin):
    def __init__(self, config): self.model = {name}Model(config)
    def forward(self, x): return self.model(x)
__all__ = ["{name}Config", "{name}Model", "{name}ForCausalLM", "{name}PreTrainedModel"]
""",
    }


FILES = {SRC + path: text for path, text in (CORE | toy("Toy") | toy("Far")).items()}
TOY, FAR = SRC + "models/toy/modeling_toy.py", SRC + "models/far/modeling_far.py"


def run(edits: Mapping[str, tuple[str, str]], extra: Mapping[str, str] | None = None) -> Selection:
    """Select after replacing, in some files, one text by another."""
    base = {**FILES, **(extra or {})}
    head = dict(base)
    for path, (old, new) in edits.items():
        assert old in base[path]
        head[path] = base[path].replace(old, new)
    changes = [FileChange(path, path) for path in edits]
    return select(changes, MappingTree(base), MappingTree(head), Layout.TRANSFORMERS)


def affected(selection: Selection) -> set[str]:
    return {name for module in selection.affected for name in (*module.base_classes, *module.head_classes)}


def generate_only(selection: Selection) -> set[str]:
    return {name for module in selection.affected for name in module.classes} - affected(selection)


def not_run(selection: Selection) -> dict[str, str]:
    return {entry.name: entry.reason for entry in selection.not_run}


ALL = {"ToyModel", "ToyForCausalLM", "FarModel", "FarForCausalLM"}


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
"""
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


def test_a_constant_that_only_a_documenting_decorator_reads_affects_nothing() -> None:
    files = {TOY: FILES[TOY].replace("class ToyLayer:", "DOC = 'a'\n@add_start_docstrings(DOC)\nclass ToyLayer:")}
    assert run({TOY: ("DOC = 'a'", "DOC = 'b'")}, files).affected == ()


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


@pytest.mark.parametrize(
    ("file", "old", "new", "classes"),
    [
        ("modeling_utils.py", "self.config = config", "self.conf = config", ALL),
        ("modeling_utils.py", "self.init_weights()", "self.init_weights(1)", ALL),
        ("modeling_utils.py", "cls.read(path, Quantizer())", "cls.read(path, 1)", set()),
        ("modeling_utils.py", "quantizer.prepare()", "quantizer", set()),
        ("modeling_utils.py", "return mask", "return -mask", set()),
        ("quantizers/__init__.py", "return 1", "return 2", set()),
        ("configuration_utils.py", "settle(self, kwargs): return 1", "settle(self, kwargs): return 2", ALL),
        ("configuration_utils.py", "to_file(self, path): return 1", "to_file(self, path): return 2", set()),
    ],
)
def test_of_broad_bases_only_what_construction_and_forward_reach_counts(
    file: str, old: str, new: str, classes: set[str]
) -> None:
    assert affected(run({SRC + file: (old, new)})) == classes


def test_greedy_decoding_affects_generate_alone() -> None:
    selection = run({SRC + "generation/utils.py": ("_next(self): return 1", "_next(self): return 2")})
    assert affected(selection) == set()
    assert generate_only(selection) == {"ToyForCausalLM", "FarForCausalLM"}


def test_a_registry_is_looked_up_as_a_whole_unless_the_key_is_a_literal() -> None:
    edit = {SRC + "activations.py": ("class Gelu: pass", "class Gelu: x = 1")}
    assert affected(run(edit)) == ALL
    literal = {FAR: FILES[FAR].replace("ACT2FN[config.act]", 'ACT2FN["silu"]')}
    assert affected(run(edit, literal)) == {"ToyModel", "ToyForCausalLM"}
    other = {FAR: FILES[FAR].replace("ACT2FN[config.act]", 'ACT2FN["gelu"]')}
    assert affected(run(edit, other)) == ALL


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
