"""How many ids a model takes, and whether a forward failed since it was fed others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hfexport_bot.runner.sources.configs import find_field, special_token_ids
from hfexport_bot.runner.sources.kinds import VOCABULARY


def ordinary_tokens(model: Any) -> torch.Tensor:
    """The ids that ``model`` takes and that have no meaning of their own, int64, [tokens]."""
    special = special_token_ids(model.config)
    return torch.tensor([token for token in range(vocabulary_size(model)) if token not in special])


def vocabulary_size(model: Any) -> int:
    """What the configuration says, and no more than the rows of the model's own input embedding."""
    told = find_field(model.config, "vocab_size")
    try:
        embedding = model.get_input_embeddings()
    except Exception:  # a model may have none, or find it in a way of its own
        embedding = None
    rows = embedding.num_embeddings if isinstance(embedding, torch.nn.Embedding) else None
    return min((size for size in (told, rows) if size), default=VOCABULARY)


def refused_values(model: torch.nn.Module, inputs: Mapping[str, Any]) -> str:
    """Whose fault a failed forward is: a sentence on the input whose own values lie past the table that they are looked
    up in; empty where there is none."""
    watching = _Lookups(inputs)
    try:
        with torch.no_grad(), watching:
            model(**inputs)
    except Exception:  # that it fails is known
        return watching.refused
    return ""


class _Lookups(TorchDispatchMode):
    """Sees an input, or a view of it, that is looked up in a table with too few rows."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        super().__init__()
        self.refused = ""
        tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        self._names = {value.untyped_storage().data_ptr(): name for name, value in tensors.items()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.embedding.default:
            table, values = args[:2]
            name, largest = self._names.get(values.untyped_storage().data_ptr()), int(values.max())
            if name is not None and largest >= len(table):
                self.refused = (
                    f"the {name!r} that were made go up to {largest}, past the {len(table)} rows of their table; tell "
                    "its size by the configuration's vocab_size or by get_input_embeddings, or write a case function"
                )
        return func(*args, **(kwargs or {}))
