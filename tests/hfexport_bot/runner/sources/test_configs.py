"""Tiny configurations whose dimensions agree where a class demands it."""

from __future__ import annotations

import pytest
from transformers import (
    ConvNextConfig,
    DetrConfig,
    InformerConfig,
    LayoutLMv3Config,
    Mamba2Config,
    NllbMoeConfig,
    PatchTSTConfig,
    PretrainedConfig,
    Qwen3NextConfig,
    SamConfig,
    SwinConfig,
    ZambaConfig,
    xLSTMConfig,
)
from transformers.models.bamba.configuration_bamba import BambaConfig

from hfexport_bot.runner.sources.configs import tiny_config


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
