"""Tiny configurations whose dimensions agree where a class demands it."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import (
    ConvNextConfig,
    Cosmos3EdgeTextConfig,
    DetrConfig,
    EsmConfig,
    Gemma4TextConfig,
    GptOssConfig,
    InformerConfig,
    LayoutLMv3Config,
    LlavaConfig,
    Mamba2Config,
    MinistralConfig,
    NllbMoeConfig,
    PatchTSTConfig,
    PretrainedConfig,
    Qwen3Config,
    Qwen3NextConfig,
    SamConfig,
    SwinConfig,
    VitsConfig,
    ZambaConfig,
    ZayaConfig,
    xLSTMConfig,
)
from transformers.models.bamba.configuration_bamba import BambaConfig

from hfexport_bot.runner.sources.cases import Unavailable
from hfexport_bot.runner.sources.configs import read, tiny_config
from hfexport_bot.schema import UnavailableCause


def test_the_heads_of_a_state_space_model_share_its_expanded_width() -> None:
    config = tiny_config(Mamba2Config)
    assert config.num_heads * config.head_dim == config.expand * config.hidden_size
    assert config.num_heads % config.n_groups == 0
    assert 1 < config.n_groups < config.num_heads  # groups of more than one head, and more than one group


@pytest.mark.parametrize("config_class", [Mamba2Config, BambaConfig])
def test_a_scan_has_more_than_one_chunk(config_class: type[PretrainedConfig]) -> None:
    config = tiny_config(config_class)
    assert getattr(config, "chunk_size", None) == 4 or config.mamba_chunk_size == 4


def test_chunks_that_only_save_memory_keep_their_size() -> None:
    assert tiny_config(xLSTMConfig).chunk_size == xLSTMConfig().chunk_size


def test_a_value_head_shares_its_keys() -> None:
    config = tiny_config(Qwen3NextConfig)
    assert config.linear_num_value_heads == 2 * config.linear_num_key_heads


def test_layers_of_each_kind_survive_under_the_classs_own_name_and_a_shared_one_twice() -> None:
    config = tiny_config(ZambaConfig)
    assert config.layers_block_type == ["linear_attention", "hybrid", "hybrid"]
    assert config.num_hidden_layers == 3


def test_every_layer_of_a_mixture_has_experts() -> None:
    config = tiny_config(NllbMoeConfig)
    assert (config.encoder_sparse_step, config.decoder_sparse_step) == (1, 1)


def test_a_backbone_of_timm_gives_way_to_a_local_one_with_as_many_feature_maps() -> None:
    config = tiny_config(DetrConfig)
    assert config.backbone_config.model_type == "resnet"
    assert config.backbone_config.out_indices == DetrConfig().backbone_config.out_indices


def test_sams_windows_do_not_divide_the_image_and_one_layer_sees_all_of_it() -> None:
    vision = tiny_config(SamConfig).vision_config
    assert (vision.image_size // vision.patch_size) % vision.window_size
    assert vision.global_attn_indexes == [1]
    assert vision.num_hidden_layers == 2


def test_the_embeddings_of_a_box_make_up_the_width() -> None:
    config = tiny_config(LayoutLMv3Config)
    assert 4 * config.coordinate_size + 2 * config.shape_size == config.hidden_size


def test_patches_of_a_time_series_overlap() -> None:
    config = tiny_config(PatchTSTConfig)
    assert 1 < config.patch_stride < config.patch_length < config.context_length
    assert config.num_input_channels > 1
    assert tiny_config(InformerConfig).input_size == InformerConfig().input_size


def test_windows_are_shifted_in_every_stage() -> None:
    config = tiny_config(SwinConfig)
    assert config.depths == [2, 2]
    assert len(config.num_heads) == 2
    last_grid = config.image_size // config.patch_size // 2
    assert last_grid > config.window_size
    assert last_grid % config.window_size == 0


def test_stages_that_halve_the_image_leave_some_of_it_and_are_lists_as_in_a_loaded_configuration() -> None:
    config = tiny_config(ConvNextConfig)
    assert config.depths == [1] * 4
    assert config.hidden_sizes == [64] * 4
    assert config.image_size // config.patch_size // 2**3 > 1


# -- A repository's own configurations ---------------------------------------------------------------------------


class BaseConfig(PretrainedConfig):
    model_type = "base_of_own"

    def __init__(self, hidden_size: int = 768, vocab_size: int = 30000, **kwargs: Any) -> None:
        self.hidden_size = hidden_size
        self.vocab_size = vocab_size
        super().__init__(**kwargs)


class InheritingConfig(BaseConfig):
    model_type = "inheriting"

    def __init__(self, num_attention_heads: int = 12, **kwargs: Any) -> None:
        self.num_attention_heads = num_attention_heads
        super().__init__(**kwargs)


class KeywordsConfig(PretrainedConfig):
    model_type = "keywords"

    def __init__(self, **kwargs: Any) -> None:
        self.hidden_size = kwargs.pop("hidden_size", 768)
        self.num_hidden_layers = kwargs.pop("num_hidden_layers", 24)
        super().__init__(**kwargs)


class EndlessConfig(PretrainedConfig):
    model_type = "endless"

    def __init__(self, text_config: Any = None, **kwargs: Any) -> None:
        self.text_config = EndlessConfig() if text_config is None else text_config
        super().__init__(**kwargs)


class CyclicOwnConfig(PretrainedConfig):
    model_type = "cyclic"

    def __init__(self, hidden_size: int = 64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.text_config = self


def test_a_constructor_that_hands_keywords_on_has_the_fields_of_its_base_too() -> None:
    config = tiny_config(InheritingConfig)
    assert (config.hidden_size, config.vocab_size, config.num_attention_heads) == (64, 256, 4)


def test_a_constructor_of_keywords_alone_is_given_those_that_its_default_has() -> None:
    config = tiny_config(KeywordsConfig)
    assert (config.hidden_size, config.num_hidden_layers) == (64, 2)


@pytest.mark.parametrize(
    ("config_class", "why"),
    [
        (EndlessConfig, "making a EndlessConfig makes another one, without end"),
        (CyclicOwnConfig, "text_config of CyclicOwnConfig is a configuration that it lies in itself"),
    ],
)
def test_a_configuration_within_itself_is_told_in_one_line(config_class: type, why: str) -> None:
    with pytest.raises(Unavailable) as caught:
        tiny_config(config_class)
    assert caught.value.cause == UnavailableCause.INVALID_CONFIG
    assert why in caught.value.message
    assert "\n" not in caught.value.message


def test_what_a_config_file_says_keeps_its_structure_and_loses_its_size() -> None:
    kinds = ["sliding_attention"] * 4 + ["full_attention", "sliding_attention"]
    given = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 1536,
        "hidden_act": "gelu_pytorch_tanh",
        "num_hidden_layers": 6,
        "layer_types": kinds,
        "vocab_size": 150000,
        "eos_token_id": 149999,
        "tie_word_embeddings": True,
    }
    config = tiny_config(Qwen3Config, given)
    assert config.hidden_size == 64
    assert config.hidden_act == "gelu_pytorch_tanh"
    assert config.layer_types == ["sliding_attention", "full_attention"]
    assert config.num_hidden_layers == 2
    assert config.eos_token_id == 255
    assert config.tie_word_embeddings


def test_nested_configurations_of_a_config_file_keep_theirs() -> None:
    given = {
        "text_config": {"model_type": "llama", "hidden_size": 2048, "hidden_act": "relu", "num_hidden_layers": 16},
        "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "hidden_act": "gelu"},
        "image_token_id": 31999,
    }
    config = tiny_config(LlavaConfig, given)
    assert (config.text_config.hidden_size, config.text_config.hidden_act) == (64, "relu")
    assert config.text_config.num_hidden_layers == 2
    assert (config.vision_config.image_size, config.vision_config.hidden_act) == (32, "gelu")
    assert config.image_token_id < 256


def test_lists_of_a_config_file_with_an_entry_a_layer_are_cut_with_the_layers() -> None:
    given = {
        "hidden_size": 512,
        "num_hidden_layers": 4,
        "layer_types": ["full_attention"] * 4,
        "uses_experts": [False, False, True, True],
    }
    config = tiny_config(Qwen3Config, given)
    assert config.uses_experts == [False, True]
    assert (len(config.layer_types), config.num_hidden_layers) == (2, 2)


# -- Rules -------------------------------------------------------------------------------------------------------


def test_values_that_differ_from_layer_to_layer_are_passed_over() -> None:
    config = tiny_config(Gemma4TextConfig)
    assert read(config, "head_dim", "none") == "none"
    assert set(config.layer_types) == {"sliding_attention", "full_attention"}


def test_fields_that_are_left_to_checkpoints_are_filled() -> None:
    assert tiny_config(MinistralConfig).head_dim == 16
    assert tiny_config(EsmConfig).vocab_size == 256


def test_sections_of_a_head_are_cut_in_their_shares() -> None:
    sections = tiny_config(Cosmos3EdgeTextConfig).rope_parameters["mrope_section"]
    assert sum(sections) == 8
    assert sections[1] == sections[2]


def test_large_dimensions_of_no_kind_shrink_only_where_a_model_is_too_big() -> None:
    assert tiny_config(VitsConfig).flow_size == VitsConfig().flow_size
    assert tiny_config(VitsConfig, harder=1).flow_size == VitsConfig().flow_size // 8


def test_what_rotations_are_made_of_is_no_size() -> None:
    assert tiny_config(GptOssConfig, harder=2).rope_parameters == GptOssConfig().rope_parameters


def test_no_more_experts_are_chosen_than_a_class_allows() -> None:
    assert tiny_config(ZayaConfig).num_experts_per_tok == 1
