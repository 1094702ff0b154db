from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from exporters.configs import DynamoConfig
from exporters.dynamo import caches
from exporters.dynamo.pytree import register_cache_pytrees
from exporters.dynamo.shapes import dynamic_shapes
from exporters.leaves import named_leaves
from exporters.registry import Hits, apply_patches
from tests.exporters.models import Mean

WINDOW = 5


@pytest.fixture(autouse=True)
def _registered() -> None:
    register_cache_pytrees(Mean())


def states(tokens: int, seed: int) -> torch.Tensor:
    """(batch, heads, tokens, head_dim)"""
    return torch.randn(2, 1, tokens, 3, generator=torch.Generator().manual_seed(seed))


def counted(layer: Any, name: str) -> Any:
    """The layer with its counter as a graph has it."""
    setattr(layer, name, caches.counter_leaf(getattr(layer, name)))
    return layer


@pytest.mark.parametrize("prompt", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("tokens", [1, 2])
def test_a_patched_sliding_layer_holds_and_gives_what_eagers_does(prompt: int, tokens: int) -> None:
    from transformers.cache_utils import DynamicSlidingWindowLayer

    eager = DynamicSlidingWindowLayer(sliding_window=WINDOW)
    layer = DynamicSlidingWindowLayer(sliding_window=WINDOW)
    for step, new in enumerate([prompt, *[tokens] * 6]):
        keys = states(new, step)
        sizes = eager.get_mask_sizes(new)
        expected = eager.update(keys, 2 * keys)
        with apply_patches("dynamo", "model_patches", Hits()):
            assert tuple(map(int, layer.get_mask_sizes(new))) == sizes
            found = layer.update(keys, 2 * keys)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert torch.equal(layer.keys, eager.keys)
        assert torch.equal(layer.values, eager.values)
        assert layer.keys.shape[2] < WINDOW
        assert int(layer.get_seq_length()) == eager.get_seq_length()


@pytest.mark.parametrize("places", [4, 12])
@pytest.mark.parametrize("prompt", [1, 3, 4])
def test_a_patched_static_sliding_layer_holds_what_eagers_does(prompt: int, places: int) -> None:
    from transformers.cache_utils import StaticSlidingWindowLayer

    layers = [StaticSlidingWindowLayer(max_cache_len=places, sliding_window=WINDOW) for _ in range(2)]
    for layer in layers:
        layer.lazy_initialization(states(1, 0), states(1, 0))
    eager, layer = layers[0], counted(layers[1], "cumulative_length_int")
    for step, new in enumerate([prompt, *[1] * 7]):
        if places < WINDOW and eager.get_seq_length() + new > places:
            break  # it is full for good
        keys = states(new, step)
        expected, _ = eager.update(keys, 2 * keys)
        with apply_patches("dynamo", "model_patches", Hits()):
            length, offset = layer.get_mask_sizes(new)
            found, _ = layer.update(keys, 2 * keys)
        assert torch.equal(layer.keys, eager.keys)
        assert torch.equal(layer.values, eager.values)
        assert int(layer.cumulative_length) == int(eager.cumulative_length)
        assert int(layer.get_seq_length()) == eager.get_seq_length()
        assert found.shape[2] == length
        assert int(offset) + length >= eager.get_seq_length()
        if step:
            assert torch.equal(found, expected)


@pytest.mark.parametrize("prompt", [1, 2, 3, 4, 7])
def test_a_patched_convolution_state_is_what_eagers_is(prompt: int) -> None:
    from transformers.cache_utils import LinearAttentionLayer

    eager, layer = LinearAttentionLayer(), LinearAttentionLayer()
    for step, new in enumerate([prompt, 1, 1]):
        given = torch.randn(2, 6, new, generator=torch.Generator().manual_seed(step))
        expected = eager.update_conv_state(given, conv_kernel_size=4)
        with apply_patches("dynamo", "model_patches", Hits()):
            found = layer.update_conv_state(given, conv_kernel_size=4)
        assert torch.equal(layer.conv_states[0], eager.conv_states[0])
        assert torch.equal(found[..., -new:], expected[..., -new:])
        assert layer.has_previous_state == eager.has_previous_state


def sliding_cache(tokens: int = 3) -> Any:
    from transformers import DynamicCache, MistralConfig

    config = MistralConfig(num_hidden_layers=1, sliding_window=WINDOW)
    cache = DynamicCache(config=config)
    cache.update(states(tokens, 0), states(tokens, 1), 0)
    return cache


def test_a_counter_is_a_leaf_and_comes_back_as_a_number() -> None:
    cache = sliding_cache(3)
    leaves = named_leaves({"cache": cache})
    assert list(leaves) == ["cache.layers.0.keys", "cache.layers.0.values", "cache.layers.0.cumulative_length"]
    flat, spec = pytree.tree_flatten(cache)
    back = pytree.tree_unflatten(flat, spec)
    assert type(back.layers[0]) is type(cache.layers[0])
    assert type(back.get_seq_length()) is int
    back.update(states(1, 2), states(1, 3), 0)
    assert (back.get_seq_length(), cache.get_seq_length()) == (4, 3)
    assert torch.equal(back.layers[0]._sliding_window_tensor, cache.layers[0]._sliding_window_tensor)


def test_what_was_seen_is_no_part_of_the_structure() -> None:
    assert pytree.tree_structure(sliding_cache(3)) == pytree.tree_structure(sliding_cache(4))


def test_a_caches_axes_end_where_its_layers_do() -> None:
    shapes = dynamic_shapes({"cache": sliding_cache(3)}, DynamoConfig(max_size=64))
    assert shapes is not None
    keys, _, counter = shapes["cache"]
    assert [keys[axis].max for axis in (0, 2)] == [64, WINDOW - 1]
    assert counter == {}


def test_caches_that_are_written_into_are_copied_for_the_graph() -> None:
    from transformers import LlamaConfig, StaticCache

    growing = sliding_cache()
    assert caches.kept_apart(growing) is growing
    static = StaticCache(config=LlamaConfig(num_hidden_layers=1), max_cache_len=4)
    static.update(states(2, 0), states(2, 0), 0)
    copied = caches.kept_apart(static)
    copied.update(states(1, 1), states(1, 1), 0)
    assert int(copied.get_seq_length()) == 3
    assert int(static.get_seq_length()) == 2
    assert caches.kept_apart(5) == 5


def test_a_mask_is_filled_up_only_where_it_was_too_short() -> None:
    from transformers import masking_utils

    mask = torch.ones(1, 3)
    with apply_patches("dynamo", "model_patches", Hits()):
        patched = masking_utils.prepare_padding_mask
        assert patched(mask, 5, 0).tolist() == [[1, 1, 1, 0, 0]]
        assert patched(mask, 3, 0) is mask
        assert patched(mask, 3, torch.tensor(2)) is mask
        assert patched(None, 3, 0) is None
