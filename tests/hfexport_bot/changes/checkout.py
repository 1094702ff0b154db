"""A small checkout of transformers' shape: two types of model on shared code; and selections on it."""

from __future__ import annotations

from collections.abc import Mapping

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.selection import Selection
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
from .generation.configuration_utils import GenerationConfig
from .modeling_rope_utils import RotaryEmbeddingConfigMixin
class PreTrainedConfig(RotaryEmbeddingConfigMixin):
    def __init__(self, **kwargs):
        self.settle(kwargs)
        if hasattr(self, "rope_parameters"): self.convert_rope()
        for name in GenerationConfig.defaults(): kwargs.pop(name, None)
    def validate_size(self): return self.size > 0
    def settle(self, kwargs): return 1
    def save_pretrained(self, path): return self.to_file(path)
    def to_file(self, path): return 1
""",
    "modeling_rope_utils.py": """
class RotaryEmbeddingConfigMixin:
    def convert_rope(self): return self.standardize()
    def standardize(self): return self.rope_parameters
    def validate_rope(self): return 1
""",
    "generation/configuration_utils.py": """
class GenerationConfig:
    def __init__(self, **kwargs): self.length = 1
    @classmethod
    def from_config(cls, config): return cls(length=config.length)
    @staticmethod
    def defaults(): return {"length": 1}
""",
    "integrations/hub_kernels.py": """
_KERNELS = {"Norm": 1}
def kernelize(model): return _KERNELS
""",
    "quantizers/__init__.py": "class Quantizer:\n    def prepare(self): return 1\n",
    "modeling_utils.py": """
from .activations import ACT2FN
from .generation.configuration_utils import GenerationConfig
from .integrations.hub_kernels import kernelize
from .quantizers import Quantizer
class PreTrainedModel:
    generation_config_class = GenerationConfig
    def __init__(self, config):
        self.config = config
        self.generation_config = self.generation_config_class.from_config(config)
        self._tp_plan = config.base_model_tp_plan
    def train(self, mode):
        if self.use_kernels: self.set_use_kernels(True)
    def set_use_kernels(self, use): kernelize(self)
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
    act: str = "gelu"
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


#: Every class of the checkout.
ALL = {"ToyModel", "ToyForCausalLM", "FarModel", "FarForCausalLM"}
