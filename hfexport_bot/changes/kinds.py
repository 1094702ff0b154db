"""What kinds of model a class is: its attention, its caches, what it is fed, told by the words of its file.

Nothing is parsed and nothing imported: a broad change asks this of some thousand classes. A class has the kinds of all
definitions of its file that it leads to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from hfexport_bot.changes.layout import ModelFile
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.tree import StoredTree

#: Kind to the words that tell it.
_WORDS: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(words)
    for kind, words in {
        "full attention": r"eager_attention_forward|scaled_dot_product_attention|softmax|MultiheadAttention",
        "causal mask": r"create_causal_mask|_prepare_4d_causal_attention_mask\w*",
        "sliding attention": r"create_sliding_window_causal_mask|sliding_window|sliding_attention",
        "chunked attention": r"create_chunked_causal_mask|attention_chunk_size|chunked_attention",
        "windowed attention": r"window_partition|get_window_index|relative_position_bias_table",
        "linear attention": r"linear_attention|\w*GatedDeltaNet|\w*gated_delta_rule|\w*LinearAttention",
        "latent attention": r"kv_lora_rank",
        "deformable attention": r"\w*Deformable\w*Attention",
        "cross attention": r"encoder_hidden_states|encoder_attn|cross_attn|cross_attention\w*",
        "packed sequences": r"cu_seqlens",
        "growing cache": r"DynamicCache",
        "static cache": r"StaticCache",
        "cache of an encoder-decoder": r"EncoderDecoderCache",
        "cache of states": r"cache_params|conv_states?",
        "cache of its own": r"(?!Dynamic|Static|EncoderDecoder|Hybrid|Quantized|Offloaded)[A-Z]\w*Cache",
        "mixture of experts": r"\w*Experts|num_experts|num_local_experts|\w*SparseMoe\w*",
        "state-space": r"ssm_states?|A_log|selective_scan\w*|selective_state_update",
        "recurrent": r"LSTM|GRU|\w*(?:rwkv|Rwkv|RgLru)\w*",
        "encoder-decoder": r"decoder_input_ids|encoder_outputs",
        "vision": r"pixel_values",
        "video": r"pixel_values_videos|video_grid_thw|num_frames",
        "audio": r"input_features|input_values|audio_values",
        "pictures in text": r"image_token_id|image_token_index|get_image_features",
        "sound in text": r"audio_token_id|audio_token_index|get_audio_features",
        "boxes": r"bbox|pred_boxes",
        "time series": r"past_values",
        "generates": r"GenerationMixin",
    }.items()
}
_TEXT = re.compile(r'("""|\'\'\')[\s\S]*?\1|#[^\n]*')
_TOP = re.compile(r"^(?:class|def|async def) (\w+)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")

#: A class: the model of its case ids, and its name.
ClassKey = tuple[str, str]


def model_kinds(source: bytes, names: Iterable[str]) -> dict[str, frozenset[str]]:
    """The kinds of each of a modeling file's classes; none for a name that the file does not define."""
    return {
        name: frozenset(kind for word in set(_WORD.findall(code)) for kind in _kinds_of(word))
        for name, code in code_of(source, names).items()
    }


def code_of(source: bytes, names: Iterable[str]) -> dict[str, str]:
    """All definitions of a file that each of its classes leads to, itself first, without comments and docstrings."""
    blocks = dict(_blocks(source.decode(errors="replace")))
    words = {name: set(_WORD.findall(code)) & blocks.keys() for name, code in blocks.items()}
    found: dict[str, str] = {}
    for name in names:
        seen: dict[str, None] = {}
        waiting = [name] if name in blocks else []
        while waiting:
            block = waiting.pop()
            if block not in seen:
                seen[block] = None
                waiting += words[block] - seen.keys()
        found[name] = "\n".join(blocks[block] for block in seen)
    return found


def selected_kinds(selection: Selection, base: StoredTree, head: StoredTree) -> dict[ClassKey, frozenset[str]]:
    """The kinds of every affected class, read on head, or on base for a file that only base has."""
    return {
        (file.model, name): kinds
        for file, source, names in selected_sources(selection, base, head)
        for name, kinds in model_kinds(source, names).items()
    }


def selected_sources(
    selection: Selection, base: StoredTree, head: StoredTree
) -> Iterator[tuple[ModelFile, bytes, tuple[str, ...]]]:
    """Every affected modeling file, its content on head, or on base where only that has it, and its classes."""
    wanted: dict[ModelFile, tuple[str, ...]] = {}
    for module in selection.affected:
        file = module.head or module.base
        if file is not None:
            wanted[file] = module.classes
    heads, bases = head.blobs(), base.blobs()
    blobs = {file: heads.get(file.path) or bases.get(file.path, "") for file in wanted}
    sources = dict(head.contents(sorted({blob for blob in blobs.values() if blob})))
    sources |= base.contents(sorted({blob for blob in blobs.values() if blob} - sources.keys()))
    yield from ((file, sources.get(blobs[file], b""), names) for file, names in wanted.items())


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each definition of a file's own level and its code, comments and docstrings aside."""
    code = _TEXT.sub("", text)
    starts = [*_TOP.finditer(code)]
    ends = [*(match.start() for match in starts[1:]), len(code)]
    for match, end in zip(starts, ends, strict=False):
        yield match[1], code[match.start() : end]


@cache
def _kinds_of(word: str) -> frozenset[str]:
    return frozenset(kind for kind, words in _WORDS.items() if words.fullmatch(word))
