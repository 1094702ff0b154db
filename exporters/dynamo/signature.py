"""Stage ``signature``: a forward that takes exactly the sample inputs.

Most forwards end in ``**kwargs``, which torch.export would turn into one nested argument whose structure matches
neither the inputs nor their dynamic shapes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from exporters.dynamo.caches import kept_apart
from exporters.leaves import named_leaves
from exporters.registry import replaced


@contextmanager
def flat_signature(
    model: torch.nn.Module, names: Iterable[str], constants: Mapping[str, Any], *, tensors_only: bool = False
) -> Iterator[None]:
    """Give ``model.forward`` the parameters ``names``, with ``constants`` passed along unseen, while inside.

    With ``tensors_only`` it returns its output tensors by path, for formats that hold no numbers, strings or None.
    """
    own = vars(model).get("forward")

    def forward(**inputs: Any) -> Any:
        # Found when it is called: the class's may be patched by then.
        original = own or functools.partial(type(model).forward, model)
        outputs = original(**{name: kept_apart(value) for name, value in inputs.items()}, **constants)
        return named_leaves(outputs) if tensors_only else outputs

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature([inspect.Parameter(n, kind, default=None) for n in names])  # type: ignore[attr-defined]
    with replaced(model, "forward", forward):
        yield
