"""Stage ``translate``: operators that torchlib translates wrongly or not at all, translated here.

A translation is a function ``_aten_*`` over onnxscript with its reason as docstring, registered for the operators that
it translates::

    @register_translation(torch.ops.aten.gelu.default, upstream="https://github.com/...")
    def _aten_gelu(x, approximate="none"): ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from exporters.registry import Hits, Workaround, workarounds


class TranslationTable(Mapping[Any, Callable[..., Any]]):
    """Operators to the functions that are registered for them: a live view, which the exporter reads.

    An entry is made with `exporters.utils.register_translation`. Of two for one operator the later counts.
    """

    def active(self, disabled: Iterable[str] = ()) -> dict[Any, Workaround]:
        """Operators to their workarounds, without those whose ids are in ``disabled``."""
        found = workarounds("onnx", "translate", kind="translation", disabled=disabled)
        return {operator: workaround for workaround in found for operator in workaround.targets}

    def counted(self, hits: Hits, disabled: Iterable[str] = ()) -> dict[Any, Callable[..., Any]]:
        """As ``torch.onnx.export(custom_translation_table=...)`` takes it; a translated node counts as a hit."""
        return {operator: _counted(workaround, hits) for operator, workaround in self.active(disabled).items()}

    def __getitem__(self, operator: Any) -> Callable[..., Any]:
        return self.active()[operator].function

    def __iter__(self) -> Iterator[Any]:
        return iter(self.active())

    def __len__(self) -> int:
        return len(self.active())


def _counted(workaround: Workaround, hits: Hits) -> Callable[..., Any]:
    @functools.wraps(workaround.function)  # torch.onnx reads the signature through __wrapped__
    def translate(*args: Any, **kwargs: Any) -> Any:
        hits.add(workaround)
        return workaround.function(*args, **kwargs)

    return translate


_ONNX_TRANSLATION_TABLE = TranslationTable()
