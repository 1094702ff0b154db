"""The kinds of a configuration's dimensions, told by the names of their fields, and one tiny value for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

VOCABULARY = 256

# Field names by kind, first match wins. `kind_value` holds what hangs on other fields too: `hidden_dim` is a width in
# some classes and a feed-forward width in others.
_KINDS: tuple[tuple[str, int], ...] = (
    # 0: keeps its default, though a later pattern would match.
    (
        r"temporal_patch_size|num_channels|in_channels|in_chans|(num|n)_shared_experts|type_vocab_size|max_2d_position_embeddings",
        0,
    ),
    (r"(\w+_)?vocab_size(_\w+)?|(n_)?vocab|vocabulary(_size)?|\w+_vocab|num_\w+_labels|head_out_channels", VOCABULARY),
    (r"max_source_positions", 16),
    (r"num_conv_pos_embeddings", 16),  # the kernel of a convolution that tells positions
    (r"speech_decoder_postnet_layers", 2),
    (r"encoder_max_relative_position", 8),
    (r"(num_)?(key_value|kv)_heads|num_(\w+_)?(key_value|kv)_heads|n_kv_heads?|n_head_kv|linear_num_key_heads", 2),
    (r"(\w+_)?(num_)?(attention_)?heads|n_heads?|num_head", 4),
    (r"head_dim|(\w+_)?head_dim|d_kv|kv_channels", 16),
    (r"rotary_dim", 8),
    (r"kv_lora_rank|q_lora_rank", 32),
    (r"first_k_dense_replace|num_dense_layers", 1),  # the layers after those have experts
    (r"max_window_layers", 1),
    (
        r"(num|n)_(\w+_)?layers?|((\w+_)?(encoder|decoder|hidden)_)?layers|depth|num_blocks|num_self_attends_per_block",
        2,
    ),
    (r"num_frames", 4),
    (
        r"(\w+_)?intermediate_(size|dim)|d_ff|(\w+_)?(ffn|feedforward|ff|mlp)(_hidden)?_(dim|size)|n_inner|d_inner"
        r"|\w+_dim_feedforward|\w+_linear_units",
        128,
    ),
    (r"(moe_)?(num|n)_(\w+_)?experts|num_local_experts|zero_expert_num", 4),
    (r"(\w+_)?sparse_step", 1),  # every how many layers has experts
    (r"n_group|topk_group", 2),
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
    (r"num_mel_bins|input_feat_per_channel|n_mels|feature_size|model_in_dim", 16),
    (r"num_queries|num_detection_tokens", 5),
    (r"num_latents", 8),
    (r"pooling_kernel_size", 2),
    (r"num_embeddings", VOCABULARY),  # of a codebook
    (r"context_size", 16),
    (r"num_groups", 4),
    (r"base_channels|latent_channels", 32),  # as many as the groups that they are normalised in
    (r"stage_out_channels", 64),
    (r"stage_mid_channels", 32),
    (r"quantization_dim", 64),
    # Coordinates and extents of a box, whose embeddings lie side by side: 4 and 2 of them make up the width.
    (r"coordinate_size", 8),
    (r"shape_size", 16),
    (r"num_pos_feats", 32),  # a sine and a cosine each make up the width
    (r"tdnn_dim|speech_decoder_(pre|post)net_units|speaker_embedding_dim", 32),
    (r"num_filters", 4),  # of the first convolution; every further one has twice as many
    (
        r"(\w+_)?hidden_sizes?|hidden_size_\w+|d_model|n_embd|dim|(\w+_)?embed_dims?|embedding_(size|dim)|emb_dim|model_dim|d_embed"
        r"|d_latents|(en|de)coder_hidden_dim|backbone_channel_list|(en|de)coder_in_channels|vision_features_channels|downsample_channels",
        64,
    ),
    (
        r"(\w+_)?projection_dim|(\w+_)?proj_(size|dim)s?|pooler_output_size|(\w+_)?output_dim|conv_dim|output_channels"
        r"|text_projection_(in|out)_dim|condition_dim|upsample_groups",
        64,
    ),
)
_TOP_K = r"num_experts_per_tok(en)?|(moe_)?top_?k|(moe_)?topk|top_k_experts|moe_k"
STATES = ("state_size", "ssm_state_size", "mamba_d_state")
#: Time series in patches that overlap.
_SERIES = {"patch_length": 8, "patch_stride": 4, "num_input_channels": 3}
_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")
#: Stages and blocks a stage of a network that attends in windows: its windows are shifted in every second block.
WINDOW_STAGES = 2
_WINDOW_BLOCKS = 2

#: What checkpoints say and classes leave open (None), but cannot be built without.
_LEFT_OPEN: dict[str, Any] = {
    "n_shared_experts": 1,
    "mlp_layer_types": ["dense", "sparse"],
    "layer_types": ["full_attention", "full_attention"],
    "indexer_n_heads": 4,
    "indexer_kv_heads": 2,
    "indexer_head_dim": 16,
    "indexer_budget": 4,
    "indexer_compress_ratio": 2,
    "vocab_size": VOCABULARY,
    "head_dim": 16,
    "num_key_value_heads": 4,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 128,
    "default_language": "en_XX",
    "prediction_length": 6,  # of a time series
}
#: Lists of layers whose states are used: of two layers, the last and the first.
_LAYER_INDICES = re.compile(r"vision_feature_layers?|\w*layer_ind(ic|ex)es|\w*feature_layers")

#: What is a dimension by its name, of whatever kind.
_DIMENSION = re.compile(r"\w*(dims?|channels?|sizes?|units|bins|planes|embeddings|config\w*|resnet_\w+|per_stage|list)")
_NO_DIMENSION = re.compile(r"\w*(kernel|image|patch|window|vocab|stride|dilation|chunk|group|rope)\w*")
_LARGE = 96
_SHARE = 8
#: The last that `smaller` takes: a size of millions is a few dozen then.
HARDEST = 6


def _by_kind(name: str, default: int) -> int | None:
    for pattern, value in _KINDS:
        if re.fullmatch(pattern, name):
            return value if value and default > 0 else None  # -1 and 0 say "none" in some classes
    return None


def _hidden_dim(declared: dict[str, Any], default: int) -> int | None:
    return 128 if any(width in declared for width in _WIDTHS) else 64


def _key_value_heads(declared: dict[str, Any], default: int) -> int | None:
    # Keys made from a latent vector: every head has its own.
    return 4 if "kv_lora_rank" in declared else _by_kind("num_key_value_heads", default)


def _head_dim(declared: dict[str, Any], default: int) -> int | None:
    if "expand" in declared and "num_attention_heads" not in declared:
        return int(64 * declared["expand"] // 4)  # the heads of a state-space model share its expanded width
    return _by_kind("head_dim", default)


def _window_size(declared: dict[str, Any], default: int) -> int | None:
    if "global_attn_indexes" in declared:
        return 3  # does not divide the image, so that windows are padded
    if "spatial_merge_size" in declared:
        return 32  # pixels: two merged patches a side, so that a picture has whole windows and parts of some
    if "downsample_rate" in declared:
        return None  # as many queries a window as the rate goes into it
    return _by_kind("window_size", default)


def _chunk_size(declared: dict[str, Any], default: int) -> int | None:
    # Of a scan over the sequence; elsewhere a matter of memory.
    return 4 if any(state in declared for state in STATES) else None


def _encoder_width(declared: dict[str, Any], default: int) -> int | None:
    # Twice as many with every stage of a codec.
    return 4 if "downsampling_ratios" in declared else _by_kind("encoder_hidden_size", default)


def _embed_dim(declared: dict[str, Any], default: int) -> int | None:
    # Twice as many with every stage.
    if attends_in_windows(declared) and _keeps_stages(declared):
        return 16
    return _by_kind("embed_dim", default)


def _source_positions(declared: dict[str, Any], default: int) -> int | None:
    # Where sound comes in windows, their length is fixed.
    return None if "n_window" in declared else _by_kind("max_source_positions", default)


def _feature_size(declared: dict[str, Any], default: int) -> int | None:
    # Of a pyramid of feature maps, or of a spectrogram.
    return 64 if "mask_feature_size" in declared else _by_kind("feature_size", default)


def _input_size(declared: dict[str, Any], default: int) -> int | None:
    # Of an image; of time series, the values at each step.
    return 32 if "patch_size" in declared else None


#: Fields whose value hangs on which others there are.
_DEPENDENT: dict[str, Callable[[dict[str, Any], int], int | None]] = {
    "hidden_dim": _hidden_dim,
    "num_key_value_heads": _key_value_heads,
    "head_dim": _head_dim,
    "window_size": _window_size,
    "chunk_size": _chunk_size,
    "mamba_chunk_size": _chunk_size,
    "encoder_hidden_size": _encoder_width,
    "embed_dim": _embed_dim,
    "max_source_positions": _source_positions,
    "feature_size": _feature_size,
    "input_size": _input_size,
    "num_time_features": lambda declared, default: 2,
    "num_kv_shared_layers": lambda declared, default: 0,  # two of two layers would be all
    "codebook_dim": lambda declared, default: min(64, default) or None,
}


def kind_value(name: str, declared: dict[str, Any], default: int) -> int | None:
    """The tiny value of an integer field beside the others that are ``declared``; None where it is of no kind."""
    if name in _DEPENDENT:
        return _DEPENDENT[name](declared, default)
    if re.fullmatch(_TOP_K, name):
        return min(2, default) or None
    if name in _SERIES and "patch_length" in declared:
        return _SERIES[name]
    if "depths" in declared and default > 0 and (pyramid := _pyramid_value(name, declared)):
        return pyramid
    return _by_kind(name, default)


def tiny_value(name: str, default: Any, declared: dict[str, Any]) -> Any:
    """The field's tiny value, or None to leave it as it is."""
    if isinstance(default, bool):
        return None
    if name == "stage_in_channels" and default:
        return [default[0], *[64] * (len(default) - 1)]
    if isinstance(default, int):
        return kind_value(name, declared, default)
    if isinstance(default, (list, tuple)) and default and all(type(item) is int for item in default):
        if name == "global_attn_indexes":
            return [1]  # of two layers: the other attends in windows
        if _LAYER_INDICES.fullmatch(name):
            return [1, 0][: len(default)]
        # As lists, which is what loaded configurations hold.
        tiny = [kind_value(name, declared, item) for item in default]
        if attends_in_windows(declared) and len(default) == len(declared["depths"]):
            tiny = [item if value is None else value for item, value in zip(default, tiny, strict=True)]
            return tiny if _keeps_stages(declared) else tiny[:WINDOW_STAGES]
        return None if None in tiny else tiny
    return None


def derived_value(name: str, derived: Any) -> Any:
    """The value of a field whose large one a class derives by itself, or None."""
    if not derived or not isinstance(derived, (list, tuple, dict)):
        return None
    if name == "image_grid_pinpoints":
        return [[32, 64], [64, 32], [64, 64]]  # pixels of pictures that are cut up
    if name == "projector_patch_to_query_dict":
        return dict.fromkeys((16, 30, 36), 4)  # features by a picture's patches
    if name == "attention_types":
        return [[kinds, 1] for kinds, _ in derived]  # each kind of layer once
    return [1, 0][: len(derived)] if _LAYER_INDICES.fullmatch(name) else None


def open_value(name: str, declared: dict[str, Any]) -> Any:
    """The value of a field that a class has left open, or None."""
    if name == "layer_types" and "conv_L_cache" in declared:
        return ["conv", "full_attention"]
    return _LEFT_OPEN.get(name)


def tiny_members(value: Any) -> Any:
    """``value`` with each size of a known kind in the objects that it is made of tiny: what a ``config.json`` says in
    an object of its own, or in a list of them."""
    if isinstance(value, Mapping):
        declared = dict(value)
        tiny = {name: tiny_value(name, item, declared) for name, item in declared.items()}
        return {name: tiny_members(item) if tiny[name] is None else tiny[name] for name, item in declared.items()}
    return [tiny_members(item) for item in value] if isinstance(value, (list, tuple)) else value


def smaller(name: str, value: Any, harder: int) -> Any:
    """A share of each large number in ``value``, lists and objects included, and no multiple of widths and depths; None
    where none is in it.

    ``harder``: 1 for an eighth of what is a dimension by its name; from 2 on also of all others, then an eighth of that
    each time.
    """
    if name in ("width_coefficient", "depth_coefficient"):
        return 1.0
    if isinstance(value, Mapping) and "rope" in name:  # numbers that rotations are made of: no sizes
        return None
    shrunk = _shrunk(name, tiny_members(value), harder)
    return None if shrunk == value else shrunk


def _shrunk(name: str, value: Any, harder: int) -> Any:
    if isinstance(value, Mapping):
        return {inner: _shrunk(inner, item, harder) for inner, item in value.items()}
    if _NO_DIMENSION.fullmatch(name) or not (harder > 1 or _DIMENSION.fullmatch(name)):
        listed = isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value)
        return [_shrunk("", item, harder) for item in value] if listed else value
    if isinstance(value, (list, tuple)):
        return [_shrunk(name, item, harder) for item in value]
    return max(value // _SHARE ** max(1, harder - 1), 16) if type(value) is int and value >= _LARGE else value


def _keeps_stages(declared: dict[str, Any]) -> bool:
    """Whether the feature maps of more stages than two are used."""
    used = declared.get("out_features") or declared.get("out_indices") or ()
    return len(used) > WINDOW_STAGES


def attends_in_windows(declared: dict[str, Any]) -> bool:
    """Whether the fields are of a network whose stages attend in windows."""
    return "window_size" in declared and isinstance(declared.get("depths"), (list, tuple))


def _pyramid_value(name: str, declared: dict[str, Any]) -> int | None:
    """The value of what is chosen together in a network whose stages halve the image, or None for all else."""
    in_windows = attends_in_windows(declared)
    values = {
        "depths": _WINDOW_BLOCKS if in_windows else 1,
        "patch_size": 2,
        "image_size": 32 if in_windows else 64,
        "encoder_stride": 2**WINDOW_STAGES,  # pixels a side of what one position of the last stage stands for
    }
    return values.get(name)
