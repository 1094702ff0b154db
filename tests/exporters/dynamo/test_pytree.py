from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from exporters.dynamo.pytree import _flatten_to_context, _unflatten_from_context, register_cache_pytrees
from exporters.leaves import named_leaves
from tests.exporters.models import Mean


@pytest.fixture(autouse=True)
def _registered() -> None:
    register_cache_pytrees(Mean())
    register_cache_pytrees(Mean())  # twice is once


def _filled(layers: int = 2) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer in range(layers):
        cache.update(torch.full((1, 2, 3, 4), float(layer)), torch.full((1, 2, 3, 4), 10.0 + layer), layer)
    return cache


def test_a_cache_is_its_layers_tensors() -> None:
    leaves = named_leaves({"past_key_values": _filled()})
    assert list(leaves) == [
        "past_key_values.layers.0.keys",
        "past_key_values.layers.0.values",
        "past_key_values.layers.1.keys",
        "past_key_values.layers.1.values",
    ]
    assert float(leaves["past_key_values.layers.1.values"].mean()) == 11.0


def test_a_cache_comes_back_as_it_was() -> None:
    cache = _filled()
    leaves, spec = pytree.tree_flatten(cache)
    back = pytree.tree_unflatten([leaf + 1 for leaf in leaves], spec)
    assert type(back) is type(cache)
    assert back.get_seq_length() == 3
    assert float(back.layers[0].keys.mean()) == 1.0
    back.update(torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4), 0)
    assert (back.get_seq_length(), cache.get_seq_length()) == (4, 3)


def test_an_encoder_decoder_cache_comes_back_with_its_integer_keys() -> None:
    from transformers import EncoderDecoderCache

    cache = EncoderDecoderCache(_filled(), _filled())
    leaves, spec = pytree.tree_flatten(cache)
    assert len(leaves) == 8
    back = pytree.tree_unflatten(leaves, spec)
    assert back.is_updated == cache.is_updated
    assert all(type(key) is int for key in back.is_updated)


def test_caches_of_one_structure_have_equal_specifications() -> None:
    assert pytree.tree_structure(_filled()) == pytree.tree_structure(_filled())
    assert pytree.tree_structure(_filled(1)) != pytree.tree_structure(_filled(2))


def test_a_specification_survives_being_written_down() -> None:
    spec = pytree.tree_structure(_filled())
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.5,
        "x",
        [1, [2]],
        (1, 2),
        {"a": {1: 2}},
        {3, 4},
        torch.float16,
        torch.device("cpu"),
        torch.Size([2]),
    ],
)
def test_plain_values_come_back_equal(value: Any) -> None:
    context = json.loads(json.dumps(_flatten_to_context(value, [], "")))
    back = _unflatten_from_context(context, [])
    assert back == value
    assert type(back) is type(value)


class Grow(torch.nn.Module):
    def forward(self, cache: Any, x: torch.Tensor) -> Any:
        keys, values = cache.update(x, 2 * x, 0)
        return {"sum": keys.sum() + values.sum(), "cache": cache}


@pytest.mark.export
def test_a_cache_can_go_into_a_graph_and_come_out_grown() -> None:
    from transformers import DynamicCache

    from exporters import DynamoExporter

    def inputs(length: int) -> dict[str, Any]:
        cache = DynamicCache()
        cache.update(torch.ones(2, 2, length, 4), torch.ones(2, 2, length, 4), 0)
        return {"cache": cache, "x": torch.ones(2, 2, 3, 4)}

    given = inputs(5)
    artifact = DynamoExporter().export_artifact(Grow().eval(), given)
    assert given["cache"].get_seq_length() == 5
    assert artifact.input_paths == ("cache.layers.0.keys", "cache.layers.0.values", "x")
    assert artifact.output_paths == ("sum", "cache.layers.0.keys", "cache.layers.0.values")
    assert artifact(**inputs(7))["cache.layers.0.keys"].shape == (2, 2, 10, 4)


def test_a_function_cannot_be_described() -> None:
    with pytest.raises(TypeError, match="cannot describe a function"):
        _flatten_to_context(lambda: None, [], "")
