"""Models that take sound are fed it in their own layout, and eager reacts to every input."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    HubertModel,
    MusicgenForCausalLM,
    MusicgenForConditionalGeneration,
    SpeechT5ForSpeechToText,
    SpeechT5ForTextToSpeech,
    SpeechT5Model,
    Wav2Vec2Config,
    Wav2Vec2ForXVector,
)

from hfexport_bot.runner.eager import MIN_REACTION, reactions, run_eager
from hfexport_bot.runner.sources import find_model_case
from hfexport_bot.runner.sources.configs import tiny_config

SHAPES: dict[type, dict[str, tuple[int, ...]]] = {
    HubertModel: {"input_values": (2, 800), "attention_mask": (2, 800)},
    Wav2Vec2ForXVector: {"input_values": (2, 800), "attention_mask": (2, 800)},
    SpeechT5Model: {
        "input_values": (2, 8, 64),
        "attention_mask": (2, 8),
        "decoder_input_values": (2, 6, 64),
        "decoder_attention_mask": (2, 6),
    },
    SpeechT5ForSpeechToText: {
        "input_values": (2, 800),
        "attention_mask": (2, 800),
        "decoder_input_ids": (2, 6),
        "decoder_attention_mask": (2, 6),
    },
    SpeechT5ForTextToSpeech: {
        "input_ids": (2, 8),
        "attention_mask": (2, 8),
        "decoder_input_values": (2, 6, 16),
        "decoder_attention_mask": (2, 6),
        "speaker_embeddings": (2, 32),
    },
    MusicgenForCausalLM: {
        "input_ids": (8, 8),
        "attention_mask": (2, 8),
        "encoder_hidden_states": (2, 6, 64),
        "encoder_attention_mask": (2, 6),
    },
    MusicgenForConditionalGeneration: {
        "input_ids": (2, 8),
        "attention_mask": (2, 8),
        "decoder_input_ids": (8, 6),
        "decoder_attention_mask": (2, 6),
    },
}


@pytest.mark.parametrize("model_class", SHAPES, ids=lambda model_class: model_class.__name__)
def test_sound_is_fed_in_the_models_own_layout_and_at_other_sizes(model_class: type) -> None:
    case = find_model_case(model_class, seed=0)
    assert {name: tuple(value.shape) for name, value in case.inputs.items()} == SHAPES[model_class]
    reference = run_eager(case.model, case.inputs, 0)
    found = reactions(case.model, case.inputs, reference, 0)
    assert set(found) == set(case.inputs)
    assert min(found.values()) >= MIN_REACTION
    assert {"batch_1", "batch_3", "pad_right", "pad_left"} <= set(case.probes)
    for inputs in case.probes.values():
        run_eager(case.model, inputs, 0)  # eager takes all of them


def test_a_padded_waveform_has_fewer_feature_vectors() -> None:
    case = find_model_case(HubertModel, seed=0)
    lengths = case.probes["pad_right"]["attention_mask"].sum(-1)
    assert case.model._get_feat_extract_output_lengths(lengths).tolist() == [24, 39]
    assert torch.equal(case.probes["pad_left"]["attention_mask"].sum(-1), lengths.flip(0))


def test_convolutions_over_a_waveform_are_few_and_differ() -> None:
    config = tiny_config(Wav2Vec2Config)
    layers = [[*of_layers] for of_layers in (config.conv_dim, config.conv_stride, config.conv_kernel)]
    assert layers == [[64, 64, 64], [5, 2, 2], [10, 3, 2]]
