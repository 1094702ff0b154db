"""Two ways of taking a cache apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils import _pytree as pytree

from exporters.dynamo.pytree import register_cache_pytrees
from exporters.leaves import named_leaves
from hfexport_bot.runner.engines.cache_nodes import CacheNodes

pytestmark = pytest.mark.export


class ToyCache:
    def __init__(self, keys: torch.Tensor) -> None:
        self.keys = keys


class ToyModel(torch.nn.Module):
    """Its module has a cache of its own, which our exporters register with it."""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_cache_pytrees(ToyModel())
    yield
    pytree._deregister_pytree_node(ToyCache)


def register_theirs() -> None:
    pytree.register_pytree_node(
        ToyCache,
        lambda cache: ([cache.keys], None),
        lambda leaves, context: ToyCache(*leaves),
        serialized_type_name="theirs",
        flatten_with_keys_fn=lambda cache: ([(pytree.SequenceKey(0), cache.keys)], None),
    )


def names() -> list[str]:
    return list(named_leaves({"cache": ToyCache(torch.zeros(1))}))


def test_each_way_has_its_place() -> None:
    nodes = CacheNodes()
    assert names() == ["cache.keys"]
    with nodes.used():
        assert names() == []  # nobody has registered it yet
        register_theirs()
        assert names() == ["cache.0"]
    assert names() == ["cache.keys"]
    with nodes.used():
        assert names() == ["cache.0"]
    assert names() == ["cache.keys"]


def test_ours_comes_back_also_after_an_error() -> None:
    with pytest.raises(KeyError), CacheNodes().used():
        register_theirs()
        raise KeyError
    assert names() == ["cache.keys"]
    assert pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get("theirs") is None
