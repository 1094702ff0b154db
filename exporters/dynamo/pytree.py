"""Stage ``pytree``: lets torch.export look into cache objects.

ModelOutputs are registered by transformers itself. A cache is taken apart by reflection: its tensors become the
leaves, under their attribute paths, and everything else a JSON-native description that can be compared and saved.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exporters.dynamo.caches import complete_layer, counter_from_leaf, counter_leaf, counters, layer_attributes

_Named = list[tuple[str, Any]]

_BY_NAME = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}


def register_cache_pytrees(model: torch.nn.Module) -> None:
    """Register every ``Cache`` subclass, and the ``*Cache`` classes of the model's own module, once per process."""
    from transformers.cache_utils import Cache

    module = inspect.getmodule(type(model))
    own = [
        cls
        for name, cls in (vars(module).items() if module else ())
        if inspect.isclass(cls) and name.endswith("Cache") and cls.__module__ == type(model).__module__
    ]
    for cls in (*_subclasses(Cache), *own):
        if cls not in pytree.SUPPORTED_NODES:
            pytree.register_pytree_node(
                cls,
                _flatten,
                _unflatten,
                serialized_type_name=class_path(cls),
                flatten_with_keys_fn=_flatten_with_keys,
            )


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    subclass: type[Any]
    for subclass in cls.__subclasses__():
        yield from _subclasses(subclass)


def _flatten(value: Any) -> tuple[list[Any], Any]:
    leaves: _Named = []
    context = _flatten_to_context(value, leaves, "")
    return [leaf for _, leaf in leaves], context


def _flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
    leaves: _Named = []
    context = _flatten_to_context(value, leaves, "")
    # Not an attribute key: torch.export takes those apart at the dots.
    return [(pytree.MappingKey(name), leaf) for name, leaf in leaves], context


def _unflatten(leaves: Any, context: Any) -> Any:
    return _unflatten_from_context(context, list(leaves))


def _flatten_to_context(value: Any, leaves: _Named, path: str) -> Any:
    """Describe ``value`` as nested lists that start with a tag; tensors and symbolic sizes go to ``leaves``.

    A new kind of value is added here and in `_unflatten_from_context`.
    """
    descend = partial(_flatten_child, leaves=leaves, path=path)
    if value is None or type(value) in (bool, int, float, str):
        return ["value", value]
    if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
        leaves.append((path, value))
        return ["leaf", len(leaves) - 1]
    for tag, kind in _BY_NAME.items():
        if isinstance(value, kind):
            return [tag, str(value).removeprefix("torch.")]
    if isinstance(value, torch.device):
        return ["device", str(value)]
    if isinstance(value, type):
        return ["class", class_path(value)]
    if type(value) is dict:
        # Pairs, since JSON would turn integer keys (a cache's layer indices) into strings.
        return ["dict", [[key, descend(str(key), item)] for key, item in value.items()]]
    if isinstance(value, list | tuple | set | frozenset):
        items = [descend(str(index), item) for index, item in enumerate(value)]
        return ["sequence", class_path(type(value)), items]
    if hasattr(value, "__dict__") and not callable(value):
        counting = counters(type(value))
        attributes = [
            [name, ["counter", descend(name, counter_leaf(item))] if name in counting else descend(name, item)]
            for name, item in layer_attributes(value).items()
        ]
        return ["object", class_path(type(value)), attributes]
    raise TypeError(f"{path or type(value).__name__}: cannot describe a {type(value).__name__} for torch.export")


def _flatten_child(name: str, value: Any, *, leaves: _Named, path: str) -> Any:
    return _flatten_to_context(value, leaves, f"{path}.{name}" if path else name)


def _unflatten_from_context(context: Any, leaves: list[Any]) -> Any:
    """The inverse of `_flatten_to_context`."""
    tag, content = context[0], context[-1]
    if tag == "value":
        return content
    if tag == "leaf":
        return leaves[content]
    if tag == "counter":
        return counter_from_leaf(_unflatten_from_context(content, leaves))
    if tag in _BY_NAME:
        return getattr(torch, content)
    if tag == "device":
        return torch.device(content)
    if tag == "class":
        return class_at(content)
    if tag == "dict":
        return {key: _unflatten_from_context(item, leaves) for key, item in content}
    cls = class_at(context[1])
    if tag == "sequence":
        items = [_unflatten_from_context(item, leaves) for item in content]
        return cls(*items) if hasattr(cls, "_fields") else cls(items)
    if tag == "object":
        made = cls.__new__(cls)
        vars(made).update({name: _unflatten_from_context(item, leaves) for name, item in content})
        complete_layer(made)
        return made
    raise ValueError(f"unknown tag {tag!r} in the description of a cache")


def class_path(cls: type) -> str:
    """``module:qualified.name`` of a class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def class_at(path: str) -> Any:
    """The class at such a path. Raises ``ImportError`` or ``AttributeError`` where there is none."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
