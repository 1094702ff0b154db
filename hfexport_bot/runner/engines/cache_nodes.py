"""Two ways of taking a cache apart, the exporters' under test and ours, each where it belongs.

torch knows one way for a class. A program that was traced with one cannot be called with the other, and the names of
outputs must be ours on both sides of a comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils import _pytree as pytree

from exporters.dynamo import pytree as ours

#: A class with what torch keeps of it: how it is flattened, and how that is written to a file.
_Node = tuple[type[Any], Any, Any]


class CacheNodes:
    """What the exporters under test registered."""

    def __init__(self) -> None:
        self._theirs: list[_Node] = []

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside, caches are taken apart as those exporters do, also by what they register meanwhile."""
        taken = _take_out([cls for cls, node in pytree.SUPPORTED_NODES.items() if _is_ours(node)])
        _put_in(self._theirs)
        before = set(pytree.SUPPORTED_NODES) - {cls for cls, _, _ in self._theirs}
        try:
            yield
        finally:
            self._theirs = _take_out([cls for cls in pytree.SUPPORTED_NODES if cls not in before and _is_cache(cls)])
            _put_in(taken)


def _is_ours(node: Any) -> bool:
    return bool(getattr(node.flatten_fn, "__module__", "") == ours.__name__)


def _is_cache(cls: type[Any]) -> bool:
    """Whether ours takes it apart too: other classes, such as a ModelOutput, have one way only."""
    return any(base.__name__.endswith("Cache") for base in cls.__mro__)


def _take_out(classes: list[type[Any]]) -> list[_Node]:
    found = []
    for cls in classes:
        node, written = pytree.SUPPORTED_NODES.pop(cls), pytree.SUPPORTED_SERIALIZED_TYPES.pop(cls)
        pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(written.serialized_type_name, None)
        found.append((cls, node, written))
    return found


def _put_in(nodes: list[_Node]) -> None:
    for cls, node, written in nodes:
        pytree.SUPPORTED_NODES[cls] = node
        pytree.SUPPORTED_SERIALIZED_TYPES[cls] = written
        pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE[written.serialized_type_name] = cls
