"""What of transformers' shared code is on an exported path: construction, ``forward`` and greedy ``generate``.

Its base classes are used by every model, and hold far more than a model needs to be exported. Of these, a member counts
where code on an exported path takes it by name. Loading, quantisation, saving, training, several devices and
decoding other than greedy are a boundary: nothing behind it is exported.
"""

from __future__ import annotations

import re

#: Where transformers' package lies in a checkout, its models, and the tables from model types to classes.
PACKAGE = "src/transformers/"
MODELS = PACKAGE + "models/"
AUTO = MODELS + "auto/"
TESTS = "tests/"
#: Where what testers have in common is kept, beside the tests' own folder.
TESTING = PACKAGE + "testing_utils.py"
#: Has what makes the inputs of ``generate`` in model tests.
GENERATION_TESTS = TESTS + "generation/test_utils.py"

#: Bases whose members count one by one, with all that they derive from.
MODEL_BASE, CONFIG_BASE, GENERATION_BASE = "PreTrainedModel", "PreTrainedConfig", "GenerationMixin"
GENERATION_CONFIG = "GenerationConfig"
BASES = (MODEL_BASE, CONFIG_BASE, GENERATION_BASE, GENERATION_CONFIG)
#: The same, with all that derive from them.
CACHES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")

#: Mixins of the configurations' base that act on those alone that have an attribute.
CONCERNS = {"RotaryEmbeddingConfigMixin": "rope_parameters"}
#: Properties of few configurations, and what is written to give them to one.
PROPERTIES = {"is_heterogeneous": "per_layer_config"}
#: What a configuration gets such a property by, other than its word as a key or an argument: it is set, taken over by a
#: member or an attribute of its class, or given by a function or a mixin.
GETS_PROPERTY = {
    "per_layer_config": ("per_layer_config", "is_heterogeneous", "heterogeneous_config", "HeterogeneousConfig")
}
#: Decorators that hand on to a function what they are called with, and no more.
TRANSPARENT = frozenset(
    {"abstractmethod", "auto_docstring", "cache", "can_return_tuple", "deprecate_kwarg", "lru_cache", "no_grad"}
    | {"staticmethod"}
)
#: Methods that run whenever a configuration is made, by the decorator ``strict``.
VALIDATES = "validate_"

#: Tables that code looks up by what a configuration says. A base looks up what the model at hand has, so that only
#: models that name the table themselves are affected by its entries.
REGISTRIES = frozenset({"ACT2FN", "ACT2CLS", "ALL_ATTENTION_FUNCTIONS", "ROPE_INIT_FUNCTIONS"})

#: Those of them whose keys are written in configurations and testers.
KEYED_BY_CONFIG = frozenset(
    {
        *("ACT2FN", "ACT2CLS", "ROPE_INIT_FUNCTIONS", "ALLOWED_ATTN_LAYER_TYPES", "ALLOWED_MLP_LAYER_TYPES"),
        *("DYNAMIC_LAYER_TYPE_MAPPING", "STATIC_LAYER_TYPE_MAPPING"),
    }
)

#: Fields of configurations by which a cache chooses kinds of layers that the configuration does not name.
LAYERS_BY_FIELD = {
    "sliding_attention": "sliding_window",
    "hybrid_sliding": "sliding_window",
    "chunked_attention": "attention_chunk_size",
}

#: What is asked of a table for its keys alone, so that no value of it runs.
KEYS = "keys"

#: Where a model names layers to listen to: nothing of them runs by it.
LISTENS = frozenset({"_can_record_outputs"})

#: Where a model class names its configuration.
CONFIGURED = frozenset({"config", "config_class"})

#: How a model is built and called: `model_class(config).eval().float()`, then itself or its generate.
ENTRIES = frozenset({"forward", "eval", "train", "float", "_from_config"})
GENERATE = "generate"
#: The table from modes of generation to methods, and what its keys say where decoding is greedy.
GENERATION_MODES = "GENERATION_MODES_MAPPING"
GREEDY = "GREEDY_SEARCH"

#: Shared code that holds no cache: what it takes of an object of any kind, such as ``update``, is of another.
_WITHOUT_CACHES = tuple(
    PACKAGE + inside for inside in ("__init__.py", "utils/", "distributed/", "modeling_utils.py", "backbone_utils.py")
)

#: Methods behind the boundary, whoever defines them.
BOUNDARY = frozenset(
    {
        *("from_pretrained", "save_pretrained", "push_to_hub", "_load_pretrained_model", "_finalize_model_loading"),
        *("_remove_keys_not_serialized", "to_diff_dict", "to_json_string"),
        *("get_init_context", "register_for_auto_class", "load_adapter", "add_adapter"),
        *("dequantize", "loss_function", "resize_token_embeddings", "get_memory_footprint", "num_parameters"),
        *("gradient_checkpointing_enable", "gradient_checkpointing_disable", "_set_gradient_checkpointing"),
        *("_assisted_decoding", "_beam_search", "generate_batch", "load_custom_generate"),
        *("set_use_kernels", "kernelize"),  # kernels of the hub, on request
        # What goes to which device, and which weights a checkpoint may lack.
        *("_no_split_modules", "_skip_keys_device_placement", "_keep_in_fp32_modules", "_keep_in_fp32_modules_strict"),
        *("_keys_to_ignore_on_load_missing", "_keys_to_ignore_on_load_unexpected", "_keys_to_ignore_on_save"),
        *("_checkpoint_conversion_mapping", "supports_gradient_checkpointing"),
    }
)
#: Load kernels of flash attention, those of the hub too, for devices on which nothing is exported.
_LOADS_KERNELS = frozenset(
    {"lazy_import_flash_attention", "lazy_import_paged_flash_attention", "load_and_register_attn_kernel"}
)
#: Which kernels of the hub there are.
_KERNELS = re.compile(r"_?(?:HUB_)?KERNELS?_[A-Z_]+")
#: Plans for spreading a model over devices.
_PLAN = re.compile(r"(?:base_model|)_(?:tp|pp|ep|fsdp)_plan")
#: Files and folders of the package behind it.
_BOUNDARY_FILES = (
    *("quantizers/", "core_model_loading.py", "conversion_mapping.py", "modeling_gguf_pytorch_utils.py"),
    *("safetensors_conversion.py", "dynamic_module_utils.py", "pipelines/", "cli/", "trainer", "training_args"),
    *("loss/", "exporters/", "model_debugging_utils.py", "data/", "modelcard.py"),
    # Attention of other devices, and that of continuous batching.
    *("integrations/flash_attention.py", "integrations/flash_paged.py", "integrations/sdpa_paged.py"),
    *("integrations/eager_paged.py", "generation/continuous_batching/"),
)
_QUANTISED = re.compile(r"\w*(?:Quantiz|Quanto|HQQ|Quantized)\w*")

#: Files and constants that only write docstrings, by decorators such as `auto_docstring`.
_DOCUMENTING_FILES = (PACKAGE + "utils/auto_docstring.py", PACKAGE + "utils/doc.py")
_DOCUMENTING = re.compile(r"\w*_(?:DOCSTRING|FOR_DOC)")

#: Special methods that no exported path runs.
_NEVER = frozenset(
    {
        *("__repr__", "__str__", "__del__", "__eq__", "__hash__"),
        *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"),
    }
)

#: Files of a model that no model imports: not read unless some file does.
_ASIDE = re.compile(
    r"(?:convert|modular|tokenization|processing|image_processing|video_processing|feature_extraction)_\w*\.py"
)


#: Test classes, and what of them a case is made with; the rest of them checks.
_TEST_CLASS = re.compile(r"(?:Test|Mixin)$")
_MAKES_INPUTS = re.compile(
    r"setUp$|all_(?:generative_)?model_classes$|model_tester_class$|prepare_(?:config_and_inputs|for|inputs)|_prepare_for_class$"
)


def is_special(member: str) -> bool:
    """Whether using a class runs this member without naming it."""
    return member.startswith("__") and member.endswith("__") and member not in _NEVER


def is_never_run(member: str) -> bool:
    """Whether no exported path runs a special method, such as those of pickling."""
    return member in _NEVER


def is_of_generate(family: str | None, part: str) -> bool:
    """Whether only ``generate`` runs a member of a broad base, or reads an object of it."""
    return family == GENERATION_BASE or (family == GENERATION_CONFIG and not part)


def may_hold(path: str, family: str) -> bool:
    """Whether code of a file may hold an object of one of the broad bases."""
    of_configurations = path.rpartition("/")[2].startswith("configuration_")
    return family not in CACHES or not (of_configurations or path.startswith(_WITHOUT_CACHES))


def is_behind_boundary(path: str, definition: str, part: str) -> bool:
    """Whether this is about loading, quantisation, saving, training or documentation."""
    if is_of_boundary(part) or part in _NEVER or only_documents(path, definition):
        return True
    if not path.startswith(PACKAGE) or path.startswith(MODELS):
        return False
    if is_version(path, definition) or definition in _LOADS_KERNELS:
        return True
    inside = path.removeprefix(PACKAGE)
    if _KERNELS.fullmatch(definition):
        return True
    return inside.startswith(_BOUNDARY_FILES) or bool(_QUANTISED.fullmatch(definition))


def is_of_boundary(member: str) -> bool:
    """Whether a member is behind the boundary, whoever has it."""
    return member in BOUNDARY or bool(_PLAN.fullmatch(member))


def is_version(path: str, definition: str) -> bool:
    """Whether this says which release a checkout leads to."""
    return (path, definition) == (PACKAGE + "__init__.py", "__version__")


def only_documents(path: str, definition: str) -> bool:
    """Whether this is text, or code that writes text, that a decorator puts into docstrings."""
    return path in _DOCUMENTING_FILES or bool(_DOCUMENTING.fullmatch(definition))


def is_shared(path: str) -> bool:
    """Whether a file is the package's own and no model's."""
    return path.startswith(PACKAGE) and not path.startswith(MODELS)


def is_read(path: str) -> bool:
    """Whether a file of a transformers checkout may be part of a model, or makes its inputs in a test."""
    name = path.rpartition("/")[2]
    if path.startswith(TESTS):
        model_test = path.startswith("tests/models/") and name.startswith("test_modeling_")
        return model_test or path.count("/") == 1 or path == GENERATION_TESTS
    if not path.startswith(PACKAGE) or not name.endswith(".py"):
        return False
    return not is_aside(path) and not path.startswith((PACKAGE + "pipelines/", PACKAGE + "cli/"))


def is_aside(path: str) -> bool:
    """Whether a file belongs to a model that does not import it, as a processor's or a tokenizer's does."""
    return bool(_ASIDE.fullmatch(path.rpartition("/")[2]))


def runs_in_a_test_only(definition: str, part: str) -> bool:
    """Whether a member of a test class or a tester checks something, and takes no part in making a model's inputs."""
    if part and _TEST_CLASS.search(definition):
        return not _MAKES_INPUTS.match(part)
    return is_check(part or definition)


def is_check(member: str) -> bool:
    """Whether a member of a test class checks something, so that what it names says nothing of the model."""
    return member.startswith(("test_", "create_and_check", "check_", "assert", "_check"))
