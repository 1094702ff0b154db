"""Settings of ``generate``: as it settles them, which of them the exported loop can follow, and how sequences end."""

from __future__ import annotations

import copy
from typing import Any

from exporters.runtime.generation import Ending

#: Settings of ``generate`` that change which token is the best one, with the values that change nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (None, 1.0),
    "encoder_repetition_penalty": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "bad_words_ids": (None,),
    "sequence_bias": (None,),
    "exponential_decay_length_penalty": (None,),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "guidance_scale": (None, 1.0),
    "watermarking_config": (None,),
    "return_timestamps": (None, False),
}


def settled(model: Any, given: Any) -> Any:
    """Settings as ``generate`` settles them: what ``given`` leaves open comes from the model's own.

    All but the kind of cache, which changes no token: a static one must be asked for.
    """
    own = model.generation_config
    if given is not None and not isinstance(given, type(own)):
        raise TypeError(f"generation_config must be a {type(own).__name__}, got {type(given).__name__}")
    config = copy.deepcopy(own if given is None else given)
    for name, value in own.to_dict().items():
        if getattr(config, name, None) is None:
            setattr(config, name, value)
    config.cache_implementation = None if given is None else given.cache_implementation
    return config


def require_plain_greedy(config: Any) -> None:
    """Raise ``ValueError`` for settings that ask for more than the best token."""
    asked = [name for name, neutral in _NEUTRAL.items() if getattr(config, name, None) not in neutral]
    if asked:
        raise ValueError(
            f"the generation config sets {', '.join(asked)}, which the exported loop does not apply; "
            f"unset it first, as in model.generation_config.{asked[0]} = None"
        )


def require_language(model: Any, config: Any) -> None:
    """Raise ``ValueError`` where nobody says the language of what is heard: Whisper finds it out by a forward of its
    own."""
    detects = getattr(config, "is_multilingual", False) and getattr(config, "lang_to_id", None)
    if detects and getattr(config, "language", None) is None:
        raise ValueError(
            f"{type(model).__name__} would detect the language, which the exported loop does not do; "
            "set language (and task) in the generation_config"
        )


def ending_of(
    model: Any,
    generation_config: Any = None,
    start: tuple[int, ...] | None = None,
    unprompted: tuple[int, ...] | None = None,
) -> Ending:
    """The special tokens as ``generate`` settles them; ``start`` and ``unprompted`` as `Ending` has them."""
    config = settled(model, generation_config)
    eos = config.eos_token_id
    ids = () if eos is None else tuple(eos) if isinstance(eos, list | tuple) else (int(eos),)
    pad = config.pad_token_id
    return Ending(
        eos=ids,
        pad=int(pad if pad is not None else ids[0] if ids else 0),
        start=start,
        unprompted=unprompted,
        forced_first=config.forced_bos_token_id,
        forced_last=config.forced_eos_token_id,
        places=None if config.cache_implementation is None else config.max_length,
        suppressed=tuple(getattr(config, "suppress_tokens", None) or ()),
        suppressed_first=tuple(getattr(config, "begin_suppress_tokens", None) or ()),
    )
