"""A tiny configuration from any configuration class.

Every dimension of one kind (width, heads, layers, ...) gets one value, wherever its field occurs, so that fields which
must agree do. Kinds are told by field names; a field that is of no kind keeps its default, and one whose default is
None is left for the class to derive.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

from hfexport_bot.runner.sources.cases import unavailable
from hfexport_bot.schema import UnavailableCause

VOCABULARY = 256

# Field names by kind, first match wins. `_kind_value` holds what hangs on other fields too: `hidden_dim` is a width in
# some classes and a feed-forward width in others.
_KINDS: tuple[tuple[str, int], ...] = (
    # 0: keeps its default, though a later pattern would match.
    (
        r"temporal_patch_size|num_channels|in_channels|in_chans|(num|n)_shared_experts|type_vocab_size|max_2d_position_embeddings",
        0,
    ),
    (r"(\w+_)?vocab_size|n_vocab", VOCABULARY),
    (r"max_source_positions", 16),
    (r"num_conv_pos_embeddings", 16),  # the kernel of a convolution that tells positions
    (r"speech_decoder_postnet_layers", 2),
    (r"encoder_max_relative_position", 8),
    (r"(num_)?(key_value|kv)_heads|num_(\w+_)?(key_value|kv)_heads|n_kv_heads?|n_head_kv|linear_num_key_heads", 2),
    (r"(\w+_)?(num_)?(attention_)?heads|n_heads?|num_head", 4),
    (r"head_dim|(\w+_)?head_dim|d_kv|kv_channels", 16),
    (r"kv_lora_rank|q_lora_rank", 32),
    (r"max_window_layers", 1),
    (r"(num|n)_(\w+_)?layers?|((\w+_)?(encoder|decoder|hidden)_)?layers|depth|num_blocks", 2),
    (r"num_frames", 4),
    (
        r"(\w+_)?intermediate_(size|dim)|d_ff|(\w+_)?(ffn|feedforward|ff|mlp)(_hidden)?_(dim|size)|n_inner|d_inner",
        128,
    ),
    (r"(num|n)_(\w+_)?experts|num_local_experts", 4),
    (r"(\w+_)?sparse_step", 1),  # every how many layers has experts
    (r"n_group|topk_group", 2),
    (r"num_experts_per_tok(en)?|(moe_)?top_?k|(moe_)?topk", 2),
    (r"state_size|(mamba_)?d_state|ssm_state_size|(\w+_)?state_dim", 8),
    (r"(mamba_)?n_?groups", 2),
    (r"time_step_rank|dt_rank", 4),
    (r"sliding_window|attention_window|local_window_size|window_size", 4),
    (
        r"(max_(\w+_)?(position_embeddings|positions|seq_len|seq_length|sequence_length))|n_positions|n_ctx",
        64,
    ),
    (r"context_length|block_size|max_context_length|seq_len|seq_length", 64),
    (r"mm_tokens_per_image", 4),
    (r"image_size|img_size|(\w+_)?image_size", 32),
    (r"(\w+_)?patch_size|encoder_stride", 8),
    (r"num_mel_bins|input_feat_per_channel|n_mels|feature_size", 16),
    (r"num_queries|num_detection_tokens", 5),
    # Coordinates and extents of a box, whose embeddings lie side by side: 4 and 2 of them make up the width.
    (r"coordinate_size", 8),
    (r"shape_size", 16),
    (r"num_pos_feats", 32),  # a sine and a cosine each make up the width
    (r"tdnn_dim|speech_decoder_(pre|post)net_units|speaker_embedding_dim", 32),
    (r"num_filters", 4),  # of the first convolution; every further one has twice as many
    (
        r"(\w+_)?hidden_sizes?|d_model|n_embd|dim|(\w+_)?embed_dims?|embedding_(size|dim)|model_dim|d_embed",
        64,
    ),
    (r"(\w+_)?projection_dim|(\w+_)?proj_(size|dim)|pooler_output_size|(\w+_)?output_dim|conv_dim|output_channels", 64),
)
_STATES = ("state_size", "ssm_state_size", "mamba_d_state")
#: Time series in patches that overlap.
_SERIES = {"patch_length": 8, "patch_stride": 4, "num_input_channels": 3}
_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")
_SPECIAL_TOKEN = re.compile(r"(\w+_)?token_(id|ids|index)|(\w+_)?suppress_tokens")
_MAX_LAYERS = 8
#: Stages and blocks a stage of a network that attends in windows: its windows are shifted in every second block.
_WINDOW_STAGES = 2
_WINDOW_BLOCKS = 2


def tiny_config(config_class: Any) -> Any:
    """An instance of ``config_class`` with every dimension small.

    Special tokens move into the small vocabulary. Raises ``Unavailable`` (invalid config, missing library, hub access)
    with the class's own error.
    """
    try:
        default = config_class() if not _required_fields(config_class) else None
        fields = _tiny_fields(config_class, default, _moved_tokens(config_class, default))
        config = config_class(**fields)
        _settle_text_tokens(config)
        _settle_rope_sections(config)
    except Exception as error:
        doing = f"{config_class.__name__} cannot be built"
        raise unavailable(error, UnavailableCause.INVALID_CONFIG, doing) from error
    return config


def walk(config: Any) -> Iterator[Any]:
    """``config`` and every configuration nested in it, outermost first."""
    yield config
    for value in list(vars(config).values()) if hasattr(config, "__dict__") else ():
        if _is_config(value):
            yield from walk(value)


def find_field(config: Any, *names: str) -> Any:
    """The first of ``names`` that ``config``, or else a configuration nested in it, has a value for."""
    for part in walk(config):
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return None


def switch_off_cache(config: Any) -> None:
    """Set ``use_cache`` to False wherever ``config`` has it: the forward task has no cache."""
    if config is None:
        return
    for part in walk(config):
        if getattr(part, "use_cache", None):
            part.use_cache = False


def switch_on_cache(config: Any) -> None:
    """Set ``use_cache`` to True wherever ``config`` has it, and have a class that encodes by default (BERT) decode: the
    generate task needs both, before the model is built."""
    for part in walk(config):
        if getattr(part, "use_cache", None) is not None:
            part.use_cache = True
    if getattr(config, "is_decoder", None) is False and not getattr(config, "is_encoder_decoder", False):
        config.is_decoder = True


def special_token_ids(config: Any) -> set[int]:
    """Every token id with a meaning of its own (padding, end, an image's placeholder, ...)."""
    return {number for part in walk(config) for _, value in _special_tokens(part) for number in _numbers(value)}


def _is_config(value: Any) -> bool:
    from transformers import PretrainedConfig

    return isinstance(value, PretrainedConfig)


def _own_parameters(config_class: Any) -> dict[str, inspect.Parameter]:
    """Parameters of an ``__init__`` that the class, or a base below transformers' own, wrote itself."""
    skipped = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = list(inspect.signature(config_class.__init__).parameters.values())[1:]
    return {parameter.name: parameter for parameter in parameters if parameter.kind not in skipped}


def _required_fields(config_class: Any) -> list[str]:
    parameters = _own_parameters(config_class).values()
    return [p.name for p in parameters if p.default is inspect.Parameter.empty]


def _declared_defaults(config_class: Any) -> dict[str, Any]:
    """Field names with the defaults written in the class: those the constructor computes are not among them."""
    from transformers import PretrainedConfig

    declared = {
        name: None if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in _own_parameters(config_class).items()
    }
    if dataclasses.is_dataclass(config_class):
        for item in dataclasses.fields(config_class):
            if item.default is not dataclasses.MISSING:
                declared.setdefault(item.name, item.default)
            elif item.default_factory is not dataclasses.MISSING:
                declared[item.name] = item.default_factory()
    common = set(inspect.signature(PretrainedConfig.__init__).parameters)
    if dataclasses.is_dataclass(PretrainedConfig):
        common |= {item.name for item in dataclasses.fields(PretrainedConfig)}
    return {name: default for name, default in declared.items() if name not in common}


def _tiny_fields(config_class: Any, default: Any, moved: dict[int, int]) -> dict[str, Any]:
    declared = _declared_defaults(config_class)
    fields: dict[str, Any] = {}
    for name, value in declared.items():
        nested: Any = getattr(default, name, None)
        if _is_config(nested):
            fields[name] = _tiny_nested(nested, moved)
        elif _SPECIAL_TOKEN.fullmatch(name):
            current = value if default is None else getattr(default, name, value)
            if isinstance(current, (list, tuple)):
                fields[name] = type(current)(moved.get(item, item) for item in current)
            elif current in moved:
                fields[name] = moved[current]
        elif name == "fullatt_block_indexes":
            fields[name] = [1]  # of two layers, the second looks past its windows
        elif name in _required_fields(config_class):
            fields[name] = _kind_value(name, declared, 1 << 30)
        elif (tiny := _tiny_value(name, value, declared)) is not None:
            fields[name] = tiny
    _shorten_convolutions(declared, fields)
    kinds = getattr(default, "layer_types", None)
    if isinstance(kinds, (list, tuple)) and kinds:
        _keep_every_layer_type(
            list(kinds), config_class.attribute_map.get("layer_types", "layer_types"), declared, fields
        )
    return fields


def _tiny_nested(config: Any, moved: dict[int, int]) -> Any:
    """A tiny configuration of a nested one's class; a ResNet with as many feature maps in place of a backbone that
    the timm library would make."""
    if config.model_type != "timm_backbone":
        return type(config)(**_tiny_fields(type(config), config, moved))
    from transformers import ResNetConfig

    backbone: Any = ResNetConfig
    return backbone(**_tiny_fields(backbone, backbone(), moved), out_indices=list(config.out_indices))


def _keep_every_layer_type(kinds: list[str], field: str, declared: dict[str, Any], fields: dict[str, Any]) -> None:
    """Choose layers so that each kind of layer of the full model is among them; ``field`` lists the kinds."""
    distinct = list(dict.fromkeys(kinds))
    if len(distinct) == 1 and field not in fields and not declared.get(field):
        return
    chosen = distinct if len(distinct) > 1 else distinct * 2
    if chosen.count("hybrid") == 1:
        chosen = [*chosen, "hybrid"]  # they share one block's weights, which a single one cannot
    depth = len(chosen)
    if field in declared:
        fields[field] = chosen
    else:  # derived from the depth: go as deep as the last kind's first layer
        depth = min(_MAX_LAYERS, max(2, *(kinds.index(kind) + 1 for kind in distinct)))
    for name in ("num_hidden_layers", "num_layers", "n_layer", "n_layers"):
        if name in fields:
            fields[name] = depth


def _shorten_convolutions(declared: dict[str, Any], fields: dict[str, Any]) -> None:
    """Leave three of the layers that halve a waveform: the first, another, and the last, whose kernels differ.

    A feature vector then stands for tens of samples instead of hundreds.
    """
    stem = [name for name in ("conv_dim", "conv_stride", "conv_kernel") if name in declared]
    layers = [fields.get(name, declared[name]) for name in stem]
    if len(stem) == 3 and all(isinstance(of_layers, (list, tuple)) and len(of_layers) > 3 for of_layers in layers):
        for name, of_layers in zip(stem, layers, strict=True):
            fields[name] = type(of_layers)((*of_layers[:2], of_layers[-1]))


def _tiny_value(name: str, default: Any, declared: dict[str, Any]) -> Any:
    """The field's tiny value, or None to leave it as it is."""
    if isinstance(default, bool):
        return None
    if isinstance(default, int):
        return _kind_value(name, declared, default)
    if isinstance(default, (list, tuple)) and default and all(type(item) is int for item in default):
        if name == "global_attn_indexes":
            return [1]  # of two layers: the other attends in windows
        # As lists, which is what loaded configurations hold.
        tiny = [_kind_value(name, declared, item) for item in default]
        if _attends_in_windows(declared) and len(default) == len(declared["depths"]):
            tiny = [item if value is None else value for item, value in zip(default, tiny, strict=True)]
            return tiny[:_WINDOW_STAGES]
        return None if None in tiny else tiny
    return None


def _attends_in_windows(declared: dict[str, Any]) -> bool:
    return "window_size" in declared and isinstance(declared.get("depths"), (list, tuple))


def _pyramid_value(name: str, declared: dict[str, Any]) -> int | None:
    """The value of what is chosen together in a network whose stages halve the image, or None for all else."""
    in_windows = _attends_in_windows(declared)
    values = {
        "depths": _WINDOW_BLOCKS if in_windows else 1,
        "patch_size": 2,
        "image_size": 32 if in_windows else 64,
        "encoder_stride": 2**_WINDOW_STAGES,  # pixels a side of what one position of the last stage stands for
    }
    return values.get(name)


def _kind_value(name: str, declared: dict[str, Any], default: int) -> int | None:
    if name == "hidden_dim":
        return 128 if any(width in declared for width in _WIDTHS) else 64
    if name == "num_key_value_heads" and "kv_lora_rank" in declared:
        return 4  # keys made from a latent vector: every head has its own
    if name == "head_dim" and "expand" in declared and "num_attention_heads" not in declared:
        return 64 * declared["expand"] // 4  # the heads of a state-space model share its expanded width
    if name == "window_size" and "global_attn_indexes" in declared:
        return 3  # does not divide the image, so that windows are padded
    if name == "input_size":  # of an image; of time series, the values at each step
        return 32 if "patch_size" in declared else None
    if name in _SERIES and "patch_length" in declared:
        return _SERIES[name]
    if name == "window_size" and "spatial_merge_size" in declared:
        return 32  # pixels: two merged patches a side, so that a picture has whole windows and parts of some
    if name in ("chunk_size", "mamba_chunk_size"):  # of a scan over the sequence; elsewhere a matter of memory
        return 4 if any(state in declared for state in _STATES) else None
    if "depths" in declared and default > 0 and (pyramid := _pyramid_value(name, declared)):
        return pyramid
    for pattern, value in _KINDS:
        if re.fullmatch(pattern, name):
            return value if value and default > 0 else None  # -1 and 0 say "none" in some classes
    return None


def _special_tokens(config: Any) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(config).items()):
        if _SPECIAL_TOKEN.fullmatch(name) and value is not None:
            yield name, value


def _numbers(value: Any) -> list[int]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if type(item) is int]


def _moved_tokens(config_class: Any, default: Any) -> dict[int, int]:
    """Where special tokens outside the small vocabulary go: to its end, in their order, apart from all others."""
    if default is None:
        named = _declared_defaults(config_class).items()
        special = {n for name, value in named if _SPECIAL_TOKEN.fullmatch(name) for n in _numbers(value)}
    else:
        special = special_token_ids(default)
    outside = sorted(number for number in special if number >= VOCABULARY)
    free = [number for number in range(VOCABULARY - 1, -1, -1) if number not in special]
    return dict(zip(outside, sorted(free[: len(outside)]), strict=False))


def _settle_rope_sections(config: Any) -> None:
    """How many of a head's rotations tell time, height and width: checkpoints say it, and defaults are for wide
    heads."""
    if find_field(config, "spatial_merge_size") is None:
        return
    for part in walk(config):
        rope = getattr(part, "rope_parameters", None)
        if isinstance(rope, dict) and "rope_type" in rope and rope["rope_type"] != "axial":
            width = getattr(part, "head_dim", None) or part.hidden_size // part.num_attention_heads
            rope.setdefault("mrope_section", [width // 2 - 2 * (width // 6), width // 6, width // 6])


def _settle_text_tokens(config: Any) -> None:
    """Give a padding token to a class that takes one (sequence classification finds a row's end by it), and a
    decoder's first token to a class that leaves it to checkpoints."""
    taken = special_token_ids(config)
    padding = next(number for number in range(VOCABULARY) if number not in taken)
    for part in walk(config):
        pad = getattr(part, "pad_token_id", 0)
        if pad is not None and pad >= VOCABULARY:
            part.pad_token_id = padding
        if not hasattr(part, "vocab_size"):
            continue
        if pad is None:
            part.pad_token_id = padding
        if getattr(part, "is_encoder_decoder", False) and getattr(part, "decoder_start_token_id", None) is None:
            part.decoder_start_token_id = getattr(part, "pad_token_id", padding)
