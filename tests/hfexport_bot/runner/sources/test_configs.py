"""Tiny configurations whose dimensions agree where a class demands it."""

from __future__ import annotations

import pytest
from transformers import Mamba2Config, NllbMoeConfig, PretrainedConfig, Qwen3NextConfig, ZambaConfig, xLSTMConfig
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
