"""Changes of code that all models share: what of it is on an exported path, worked out by hand on a small checkout."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.selection import NOT_EXPORTED, ONLY_ORDER, ONLY_VERSION
from tests.hfexport_bot.changes.checkout import ALL, FAR, FILES, SRC, TOY, affected, generate_only, not_run, run

FAR_CONFIG = SRC + "models/far/configuration_far.py"
GENERATING = {"ToyForCausalLM", "FarForCausalLM"}


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


def test_what_a_model_prepares_for_generate_affects_generate_alone() -> None:
    utils = SRC + "generation/utils.py"
    base = FILES[utils].replace("def _next(self)", "def prepare(self): return 1\n    def _next(self)")
    model = "class FarForCausalLM(FarPreTrainedModel, GenerationMixin):"
    own = {utils: base, FAR: FILES[FAR].replace(model, f"{model}\n    def prepare(self): return 'x'")}
    selection = run({FAR: ("return 'x'", "return 'y'")}, own)
    assert affected(selection) == set()
    assert generate_only(selection) == {"FarForCausalLM"}
    own[FAR] = own[FAR].replace("return self.model(x)", "return self.model(self.prepare())")
    assert affected(run({FAR: ("return 'x'", "return 'y'")}, own)) == {"FarForCausalLM"}


def test_a_registry_is_looked_up_by_the_keys_that_configurations_name_unless_the_key_is_a_literal() -> None:
    edit = {SRC + "activations.py": ("class Gelu: pass", "class Gelu: x = 1")}
    assert affected(run(edit)) == ALL
    far_config = SRC + "models/far/configuration_far.py"
    silu = {far_config: FILES[far_config].replace("gelu", "silu")}
    assert affected(run(edit, silu)) == {"ToyModel", "ToyForCausalLM"}
    tester = "class FarModelTester:\n    def get_config(self): return FarConfig(act='gelu')\n"
    assert affected(run(edit, silu | {"tests/models/far/test_modeling_far.py": tester})) == ALL
    assert affected(run(edit, silu | {"tests/causal_lm_tester.py": tester})) == ALL
    far = FILES[FAR].replace("class FarLayer:", "from ..toy.modeling_toy import ToyLayer\nclass FarLayer:")
    borrowing = {
        FAR: far.replace("FarLayer(config)", "ToyLayer(config)"),
        (toy_config := SRC + "models/toy/configuration_toy.py"): FILES[toy_config].replace("gelu", "silu"),
    }
    assert affected(run(edit, borrowing)) == ALL
    literal = {FAR: FILES[FAR].replace("ACT2FN[config.act]", 'ACT2FN["silu"]')}
    assert affected(run(edit, literal)) == {"ToyModel", "ToyForCausalLM"}
    other = {FAR: FILES[FAR].replace("ACT2FN[config.act]", 'ACT2FN["gelu"]')}
    assert affected(run(edit, other)) == ALL


def test_a_configuration_for_generation_affects_generate_alone() -> None:
    config = SRC + "generation/configuration_utils.py"
    selection = run({config: ("self.length = 1", "self.length = 2")})
    assert affected(selection) == set()
    assert generate_only(selection) == GENERATING
    # The configuration of every model asks for these.
    assert affected(run({config: ('{"length": 1}', '{"length": 2}')})) == ALL


@pytest.mark.parametrize("edit", [("self.standardize()", "1"), ("return self.rope", "return -self.rope"), ("1", "2")])
def test_what_is_about_rope_affects_models_whose_configuration_has_its_parameters(edit: tuple[str, str]) -> None:
    rope = {FAR_CONFIG: FILES[FAR_CONFIG].replace("size:", "rope_parameters: dict | None = None\n    size:")}
    file = SRC + "modeling_rope_utils.py"
    selection = run({file: edit}, rope)
    assert affected(selection) == {"FarModel", "FarForCausalLM"}
    assert run({file: edit}).affected == ()


def test_a_configuration_is_validated_by_methods_that_nothing_names() -> None:
    assert affected(run({SRC + "configuration_utils.py": ("self.size > 0", "self.size > 1")})) == ALL


def test_kernels_of_the_hub_and_plans_for_devices_are_on_no_exported_path() -> None:
    kernels = SRC + "integrations/hub_kernels.py"
    assert run({kernels: ('"Norm": 1', '"Norm": 2')}).affected == ()
    plan = {FAR_CONFIG: FILES[FAR_CONFIG].replace("size:", "base_model_tp_plan = {}\n    size:")}
    selection = run({FAR_CONFIG: ("base_model_tp_plan = {}", "base_model_tp_plan = None")}, plan)
    assert selection.affected == ()
    assert not_run(selection) == {f"{FAR_CONFIG}:FarConfig.base_model_tp_plan": NOT_EXPORTED}


def test_what_fetches_a_kernel_is_on_no_exported_path() -> None:
    kernels, base = SRC + "integrations/hub_kernels.py", SRC + "modeling_utils.py"
    fetch = "def load_and_register_attn_kernel(name): return 1\ndef lazy_load_kernel(name): return 3\n"
    for fetched, classes in (("load_and_register_attn_kernel", set[str]()), ("lazy_load_kernel", ALL)):
        extra = {
            kernels: FILES[kernels] + fetch,
            base: FILES[base]
            .replace("import kernelize", f"import kernelize, {fetched}")
            .replace("self.init_weights()", f"self.init_weights({fetched}('flash'))"),
        }
        edit = ("return 1", "return 2") if not classes else ("return 3", "return 4")
        assert affected(run({kernels: edit}, extra)) == classes


def test_decoding_of_batches_that_come_and_go_is_on_no_exported_path() -> None:
    paged, base = SRC + "integrations/sdpa_paged.py", SRC + "modeling_utils.py"
    extra = {
        paged: "def sdpa_attention_paged_forward(cache, k, v): return cache.update(k, v, 0)\n",
        base: "from .integrations.sdpa_paged import sdpa_attention_paged_forward\n"
        + FILES[base].replace("self.init_weights()", "self.init_weights(sdpa_attention_paged_forward)"),
    }
    selection = run({paged: ("k, v, 0", "v, k, 0")}, extra)
    assert selection.affected == ()
    assert set(not_run(selection).values()) == {NOT_EXPORTED}


def test_an_implementation_of_experts_affects_models_that_have_experts() -> None:
    moe, base = SRC + "integrations/moe.py", SRC + "modeling_utils.py"
    extra = {
        moe: """
def grouped(x): return 1
ALL_EXPERTS_FUNCTIONS = dict({"grouped": grouped})
def use_experts_implementation(cls, functions=ALL_EXPERTS_FUNCTIONS): return functions["grouped"](cls)
""",
        base: "from .integrations.moe import ALL_EXPERTS_FUNCTIONS\n"
        + FILES[base].replace("self.init_weights()", "self.init_weights(ALL_EXPERTS_FUNCTIONS.keys())"),
        FAR: "from ...integrations.moe import use_experts_implementation\n"
        + FILES[FAR].replace("class FarLayer", "@use_experts_implementation\nclass FarLayer"),
    }
    assert affected(run({moe: ("return 1", "return 2")}, extra)) == {"FarModel", "FarForCausalLM"}


def test_a_cache_does_not_affect_models_without_one_since_shared_code_updates_something_else() -> None:
    base, generic = SRC + "modeling_utils.py", SRC + "utils/generic.py"
    without = FILES[FAR].replace("from ...cache_utils import DynamicCache\n", "")
    extra = {
        FAR: without.replace("cache.update(x, x, 0)", "x").replace(', DynamicCache("full")', ""),
        base: "from .cache_utils import DynamicCache\n"
        + FILES[base].replace("self.init_weights()", "self.init_weights(DynamicCache, self.config.plan.update({}))"),
        generic: "SEEN = set()\ndef can_return_tuple(f): return SEEN.update(f)\n",
    }
    edit = {SRC + "cache_utils.py": ("return k, v", "return v, k")}
    assert affected(run(edit, extra)) == {"ToyModel", "ToyForCausalLM"}


@pytest.mark.parametrize("attribute", ["_tp_plan", "_no_split_modules", "_keys_to_ignore_on_load_unexpected"])
def test_what_a_model_says_of_loading_is_on_no_exported_path(attribute: str) -> None:
    said = {FAR: FILES[FAR].replace("config: FarConfig", f"config: FarConfig\n    {attribute} = 1")}
    assert run({FAR: (f"{attribute} = 1", f"{attribute} = 2")}, said).affected == ()
    ties = {FAR: FILES[FAR].replace("config: FarConfig", "config: FarConfig\n    _tied_weights_keys = 1")}
    assert affected(run({FAR: ("_tied_weights_keys = 1", "_tied_weights_keys = 2")}, ties)) == {
        "FarModel",
        "FarForCausalLM",
    }


def test_a_helper_beside_what_tests_import_from_a_common_file_affects_nothing() -> None:
    common, test = "tests/test_modeling_common.py", "tests/models/toy/test_modeling_toy.py"
    files = {
        common: """
from .elsewhere.mixins import OtherMixin
class ModelTesterMixin:
    def test_rope(self): return set_rope(self)
def set_rope(config): return 1
""",
        test: """
from ...test_modeling_common import ModelTesterMixin, OtherMixin
class ToyModelTest(ModelTesterMixin, OtherMixin):
    all_model_classes = (ToyModel,)
""",
    }
    assert run({common: ("return 1", "return 2")}, files).affected == ()


def test_a_kind_of_layer_that_is_newly_allowed_affects_configurations_that_name_it() -> None:
    config = SRC + "configuration_utils.py"
    allowed = 'ALLOWED_ATTN_LAYER_TYPES = ("full",)\nclass PreTrainedConfig'
    base = FILES[config].replace("class PreTrainedConfig", allowed)
    base = base.replace("return self.size > 0", "return self.layer_type in ALLOWED_ATTN_LAYER_TYPES")
    windowed = {config: base, FAR_CONFIG: FILES[FAR_CONFIG].replace('act: str = "gelu"', 'layer_type: str = "window"')}
    assert affected(run({config: ('("full",)', '("full", "window")')}, windowed)) == {"FarModel", "FarForCausalLM"}
    assert run({config: ('("full",)', '("full", "chunked")')}, windowed).affected == ()
    assert affected(run({config: ('("full",)', "tuple(KINDS)")}, windowed)) == ALL


def test_flash_attention_and_the_loading_of_its_kernels_are_on_no_exported_path() -> None:
    kernels, utils = SRC + "integrations/hub_kernels.py", SRC + "modeling_utils.py"
    base = FILES[utils].replace("import kernelize", "import kernelize, load_and_register_attn_kernel")
    files = {
        kernels: FILES[kernels] + "def load_and_register_attn_kernel(name): return sdpa(name)\ndef sdpa(x): return 1\n",
        utils: base.replace("self.config = config", "self.attention = load_and_register_attn_kernel('x')"),
        SRC + "integrations/flash_paged.py": "def paged_attention_forward(x): return x\n",
    }
    assert run({kernels: ("sdpa(x): return 1", "sdpa(x): return 2")}, files).affected == ()
    assert run({SRC + "integrations/flash_paged.py": ("return x", "return -x")}, files).affected == ()
    loads = {
        utils: base.replace("self.config = config", "self.attention = sdpa(1)").replace(
            "load_and_register_attn_kernel", "sdpa"
        )
    }
    assert affected(run({kernels: ("sdpa(x): return 1", "sdpa(x): return 2")}, files | loads)) == ALL


def test_to_ask_a_table_for_its_keys_runs_none_of_its_values() -> None:
    experts, utils = SRC + "integrations/moe.py", SRC + "modeling_utils.py"
    files = {
        experts: """
class ExpertsInterface(dict):
    mapping = {"grouped": grouped}
ALL_EXPERTS_FUNCTIONS = ExpertsInterface()
def grouped(x): return 1
def use_experts(c, table=ALL_EXPERTS_FUNCTIONS): return c
""",
        utils: FILES[utils]
        .replace("class Pre", "from .integrations.moe import ALL_EXPERTS_FUNCTIONS\nclass Pre")
        .replace("self.config = config", "self.known = ALL_EXPERTS_FUNCTIONS.keys()"),
        FAR: FILES[FAR].replace(
            "class FarLayer", "from ...integrations.moe import use_experts\n@use_experts\nclass FarLayer"
        ),
    }
    edit = {experts: ("grouped(x): return 1", "grouped(x): return 2")}
    assert affected(run(edit, files)) == {"FarModel", "FarForCausalLM"}
    takes = {utils: files[utils].replace("ALL_EXPERTS_FUNCTIONS.keys()", "ALL_EXPERTS_FUNCTIONS.get('x')")}
    assert affected(run(edit, files | takes)) == ALL


def test_what_only_pickling_runs_is_on_no_exported_path() -> None:
    auto = SRC + "models/auto/modeling_auto.py"
    made = {
        auto: FILES[auto].replace(
            "class _LazyAutoMapping: pass",
            "class _LazyAutoMapping:\n    def __reduce__(self): return (self._from_pickle, 1)\n"
            "    def _from_pickle(cls, x): return cls(x)",
        ),
        FAR: FILES[FAR]
        .replace("self.post_init()", "AutoModel.from_config(config)")
        .replace("class FarLayer:", "from ..auto.modeling_auto import AutoModel\nclass FarLayer:"),
    }
    edit = {auto: ("return cls(x)", "return cls(-x)")}
    assert run(edit, made).affected == ()
    also = {auto: made[auto] + "def rebuild(mapping): return mapping._from_pickle(1)\n"}
    assert affected(run(edit, made | also)) == {"FarModel", "FarForCausalLM"}


def test_the_version_selects_nothing_by_itself() -> None:
    init, config = SRC + "__init__.py", SRC + "configuration_utils.py"
    files = {
        init: '__version__ = "1"\n',
        config: "from . import __version__\n"
        + FILES[config].replace("kwargs): return 1", "kwargs): return __version__"),
    }
    selection = run({init: ('"1"', '"2"')}, files)
    assert selection.affected == ()
    assert not_run(selection) == {init: ONLY_VERSION}


def test_a_part_of_a_composite_has_the_configuration_that_it_names_not_its_base_s() -> None:
    config = FILES[FAR_CONFIG].replace(
        "class FarConfig",
        "from ..toy.configuration_toy import ToyConfig\n"
        "class FarVisionConfig(PreTrainedConfig): model_type = 'far_vision'\n"
        "class FarConfig",
    )
    vision = """
class FarVisionModel(FarPreTrainedModel):
    config: FarVisionConfig
    def forward(self, x): return x
class FarTextModel(FarPreTrainedModel):
    def forward(self, x): return x
class FarForCausalLM"""
    files = {
        FAR_CONFIG: config.replace("size:", "sub_configs = {'text': ToyConfig, 'vision': FarVisionConfig}\n    size:"),
        FAR: FILES[FAR]
        .replace("import FarConfig", "import FarConfig, FarVisionConfig")
        .replace("class FarForCausalLM", vision)
        .replace('"FarModel",', '"FarModel", "FarVisionModel", "FarTextModel",'),
    }
    toy = SRC + "models/toy/configuration_toy.py"
    assert affected(run({toy: ("size: int = 4", "size: int = 5")}, files)) == ALL | {"FarTextModel"}
    assert affected(run({FAR_CONFIG: ("model_type = 'far_vision'", "model_type = 'far_sight'")}, files)) == {
        *("FarModel", "FarForCausalLM", "FarTextModel", "FarVisionModel")
    }
    holds = {FAR: files[FAR].replace("self.post_init()", "self.vision = FarVisionModel(config.vision)")}
    inner = {
        FAR: (
            "def forward(self, x): return x\nclass FarTextModel",
            "def forward(self, x): return -x\nclass FarTextModel",
        )
    }
    assert affected(run(inner, files | holds)) == {"FarModel", "FarForCausalLM", "FarVisionModel"}


def test_a_layer_has_the_configuration_of_the_model_that_holds_it_whatever_it_hints() -> None:
    config = FILES[FAR_CONFIG].replace(
        "class FarConfig", "class FarVisionConfig(PreTrainedConfig): x = 1\nclass FarConfig"
    )
    vision = """
class FarVisionLayer:
    def __init__(self, config: FarConfig): self.x = config.x
    def forward(self, x): return x
class FarVisionModel(FarPreTrainedModel):
    config: FarVisionConfig
    def __init__(self, config: FarConfig): self.layer = FarVisionLayer(config)
    def forward(self, x): return self.layer(x)
class FarForCausalLM"""
    far = (
        FILES[FAR]
        .replace("import FarConfig", "import FarConfig, FarVisionConfig")
        .replace("class FarForCausalLM", vision)
    )
    files = {FAR_CONFIG: config, FAR: far.replace('"FarModel",', '"FarModel", "FarVisionModel",')}
    edit = {FAR_CONFIG: ("size: int = 4", "size: int = 5")}
    assert affected(run(edit, files)) == {"FarModel", "FarForCausalLM"}
    # Where no class says which configuration it has, its hint does.
    silent = files | {FAR: files[FAR].replace("    config: FarConfig\n", "    pass\n")}
    assert affected(run(edit, silent)) == {"FarVisionModel"}


def test_the_hint_of_a_base_of_configurations_leads_nowhere() -> None:
    config, cache = SRC + "configuration_utils.py", SRC + "cache_utils.py"
    files = {
        cache: "from .configuration_utils import PreTrainedConfig\n"
        + FILES[cache].replace("(self, kind): ", "(self, kind, config: PreTrainedConfig | None = None): ")
    }
    selection = run({config: ("self.size > 0", "self.size > 1")}, files)
    assert all("Cache" not in module.reason for module in selection.affected)
    assert affected(selection) == ALL


def test_a_kind_of_cache_layer_affects_configurations_that_name_it_and_all_where_caches_do() -> None:
    cache = SRC + "cache_utils.py"
    table = 'DYNAMIC_LAYER_TYPE_MAPPING = {"full": DynamicLayer, "conv": ConvLayer}'
    made = FILES[cache].replace('LAYERS = {"full": DynamicLayer}', f"class ConvLayer(DynamicLayer): pass\n{table}")
    made = made.replace("LAYERS[kind]()", "DYNAMIC_LAYER_TYPE_MAPPING[kind]()")
    files = {cache: made, FAR_CONFIG: FILES[FAR_CONFIG].replace('act: str = "gelu"', 'kind: str = "conv"')}
    far = {"FarModel", "FarForCausalLM"}
    assert (
        affected(run({cache: ("class ConvLayer(DynamicLayer): pass", "class ConvLayer(CacheLayerMixin): pass")}, files))
        == far
    )
    assert affected(run({cache: ('"conv": ConvLayer', '"conv": DynamicLayer')}, files)) == far
    assert run({cache: ('"conv": ConvLayer', '"conv": ConvLayer, "mlp": ConvLayer')}, files).affected == ()
    asks = {cache: made.replace("class Cache:", "class Cache:\n    def kinds(self): return ['conv']")}
    assert affected(run({cache: ('"conv": ConvLayer', '"conv": DynamicLayer')}, files | asks)) == ALL
    selection = run({cache: (table, 'DYNAMIC_LAYER_TYPE_MAPPING = {"conv": ConvLayer, "full": DynamicLayer}')}, files)
    assert selection.affected == ()
    assert not_run(selection) == {f"{cache}:DYNAMIC_LAYER_TYPE_MAPPING": ONLY_ORDER}


def test_a_processor_of_logits_affects_generate_of_models_whose_configuration_turns_it_on() -> None:
    utils, processors = SRC + "generation/utils.py", SRC + "generation/logits_process.py"
    settings = SRC + "generation/configuration_utils.py"
    build = """from .logits_process import ForcedEnd, Normalise, TopK, Repeats
class GenerationMixin:
    def _get_logits_processor(self, generation_config):
        found = [Normalise()]
        if generation_config.repeats is not None and generation_config.repeats > 0:
            found.append(Repeats())
        if generation_config.forced_end is not None:
            found.append(ForcedEnd())
        if generation_config.top is not None and generation_config.top != 0:
            found.append(TopK())
        return found
"""
    names = ("ForcedEnd", "Normalise", "TopK", "Repeats")
    files = {
        utils: FILES[utils]
        .replace("class GenerationMixin:\n", build)
        .replace("return self._next()", "return self._get_logits_processor(1)"),
        processors: "".join(f"class {name}:\n    def __call__(self, x): return {name!r}\n" for name in names),
        settings: FILES[settings]
        + "    def _get_default_generation_params(): return {'repeats': 0, 'forced_end': None, 'top': 50}\n",
        FAR_CONFIG: FILES[FAR_CONFIG].replace("size:", "forced_end: int | None = 2\n    size:"),
    }

    def found(name: str, files: dict[str, str]) -> set[str]:
        selection = run({processors: (f"return {name!r}", "return x")}, files)
        assert affected(selection) == set()
        return generate_only(selection)

    assert found("Normalise", files) == found("TopK", files) == GENERATING
    assert found("Repeats", files) == set()
    assert found("ForcedEnd", files) == {"FarForCausalLM"}
    files[settings] = files[settings].replace("'repeats': 0", "'repeats': 3")
    assert found("Repeats", files) == GENERATING
    unknown = {settings: FILES[settings]}
    assert found("ForcedEnd", files | unknown) == GENERATING


def test_what_a_configuration_updates_is_no_cache() -> None:
    cache, base = SRC + "cache_utils.py", SRC + "configuration_utils.py"
    plain = FILES[FAR].replace("return cache.update(x, x, 0)", "return x")
    files = {
        FAR: plain,  # makes a cache and never asks it
        SRC + "__init__.py": "from .models.far import modeling_far\nT = {}\nT['x'].update(1)\n",
        FAR_CONFIG: FILES[FAR_CONFIG].replace("size:", "def settle(self, kwargs): kwargs.update(x=1)\n    size:"),
        base: FILES[base].replace("settle(self, kwargs): return 1", "settle(self, kwargs): return kwargs.update(x=1)"),
    }
    edit = {cache: ("return k, v", "return v, k")}
    assert affected(run(edit, files)) == {"ToyModel", "ToyForCausalLM"}
    assert affected(run(edit, files | {FAR: FILES[FAR]})) == ALL


def test_a_head_that_models_share_builds_the_model_of_its_configuration() -> None:
    layers = SRC + "modeling_layers.py"
    head = """from .models.auto.modeling_auto import AutoModel
class GenericForClassification:
    def __init__(self, config): self.model = AutoModel.from_config(config)
    def forward(self, x): return self.model(x)
"""
    far = FILES[FAR].replace(
        "from .configuration_far", "from ...modeling_layers import GenericForClassification\nfrom .configuration_far"
    )
    own = "class FarForClassification(GenericForClassification, FarPreTrainedModel): pass\n__all__ = ["
    extra = {layers: FILES[layers] + head, FAR: far.replace("__all__ = [", own + '"FarForClassification", ')}
    edit = ("FarLayer(config)", "FarLayer(config, 1)")
    assert affected(run({FAR: edit}, extra)) == {"FarModel", "FarForCausalLM", "FarForClassification"}
    toy = {TOY: ("ToyLayer(config)", "ToyLayer(config, 1)")}
    assert affected(run(toy, extra)) == {"ToyModel", "ToyForCausalLM"}
