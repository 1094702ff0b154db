"""How sound lies in a model's inputs: waveforms, features of them, spectrograms, and the codes of an audio codec.

What a model takes under one name is decided by its class where its signature does not tell:

- ``Musicgen*``: the codes of every codebook are rows of their own, [batch x codebooks, length]. A decoder alone is
  given the text's states, without which half of it would not run.
- ``SpeechT5Model``: the bare model has no layers for sound, and takes and gives states.
- ``SpeechT5ForTextToSpeech``, ``SpeechT5ForSpeechToSpeech``: their decoder takes a spectrogram and a speaker.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import torch

from hfexport_bot.runner.sources.configs import find_field

#: Of a waveform. The first is traced, the other probed.
SAMPLES, OTHER_SAMPLES = 800, 1200

_SPEAKING = ("SpeechT5ForTextToSpeech", "SpeechT5ForSpeechToSpeech")


class Features(StrEnum):
    """How a spectrogram lies."""

    CHANNELS_FIRST = "channels first"  # [batch, mel bins, frames]
    CHANNELS_LAST = "channels last"  # [batch, frames, mel bins]
    PICTURE = "picture"  # [batch, 1, frames, mel bins]


class Waveform(StrEnum):
    """How a waveform lies, or what is taken under its name."""

    PLAIN = "plain"  # [batch, samples]
    CHANNEL = "channel"  # [batch, 1, samples]
    FEATURES = "features"  # a spectrogram, [batch, frames, mel bins]


#: Fields that tell the width of a spectrogram, the surer ones first.
_BINS = (
    "num_mel_bins",
    "input_feat_per_channel",
    "n_mels",
    "feature_projection_input_dim",
    "input_dim",
    "feature_size",
)

_USUAL_BINS = 128


def features(config: Any, layout: Features, batch: int, frames: int, generator: torch.Generator) -> torch.Tensor:
    """A spectrogram, float32, laid out as ``layout`` tells."""
    bins = next((found for name in _BINS if (found := find_field(config, name))), _USUAL_BINS)
    shapes = {
        Features.CHANNELS_FIRST: (bins, frames),
        Features.CHANNELS_LAST: (frames, bins),
        Features.PICTURE: (1, frames, bins),
    }
    return torch.randn(batch, *shapes[layout], generator=generator)


def takes_states(model: torch.nn.Module) -> bool:
    """Whether what is named a waveform is states [batch, length, width]."""
    return type(model).__name__ == "SpeechT5Model"


def input_values(
    model: torch.nn.Module, batch: int, samples: int, length: int, generator: torch.Generator
) -> torch.Tensor | None:
    """A waveform [batch, samples], or states [batch, length, width]; None where the sound is given as codes."""
    if codebooks(model) > 1:
        return None
    shape = (length, _width(model)) if takes_states(model) else (samples,)
    return torch.randn(batch, *shape, generator=generator)


def decoder_input_values(
    model: torch.nn.Module, batch: int, length: int, generator: torch.Generator
) -> torch.Tensor | None:
    """A spectrogram [batch, length, mel bins], or states [batch, length, width]; None for other decoders."""
    if takes_states(model):
        width = _width(model)
    elif type(model).__name__ in _SPEAKING:
        width = find_field(model.config, "num_mel_bins")
    else:
        return None
    return torch.randn(batch, length, width, generator=generator)


def speaker_embeddings(model: torch.nn.Module, batch: int, generator: torch.Generator) -> torch.Tensor | None:
    """[batch, width of a speaker]; None where nothing would use them."""
    if type(model).__name__ not in _SPEAKING:
        return None
    return torch.randn(batch, find_field(model.config, "speaker_embedding_dim"), generator=generator)


def encoder_hidden_states(
    model: torch.nn.Module, batch: int, length: int, generator: torch.Generator
) -> torch.Tensor | None:
    """[batch, length, width] for a decoder of codes; None for all other models, which encode for themselves."""
    return torch.randn(batch, length, _width(model), generator=generator) if codebooks(model) > 1 else None


def encoder_attention_mask(model: torch.nn.Module, batch: int, length: int) -> torch.Tensor | None:
    """[batch, length] of int64 for the states of `encoder_hidden_states`."""
    return torch.ones(batch, length, dtype=torch.int64) if codebooks(model) > 1 else None


def codebooks(model: torch.nn.Module) -> int:
    """How many rows of codes the decoder takes for each of the batch."""
    found: Any = find_field(model.config, "num_codebooks") if type(model).__name__.startswith("Musicgen") else None
    return found or 1


def _width(model: torch.nn.Module) -> int:
    width: int = find_field(model.config, "hidden_size")
    return width
