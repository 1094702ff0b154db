"""Where a case's model and inputs come from: sources asked in order, the first that has a case gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hfexport_bot.runner.sources.cases import HookError, ModelCase, Unavailable
from hfexport_bot.runner.sources.repository import case_from_hook, load_hook
from hfexport_bot.runner.sources.synthesised import synthesised_case
from hfexport_bot.schema import Task

__all__ = ["HookError", "ModelCase", "Unavailable", "find_model_case", "load_hook"]

Hook = Callable[[str, int], Any]

#: Asked in this order; each returns a case, or None to pass on to the next.
SOURCES: tuple[Callable[[type, int, Hook | None, Task], ModelCase | None], ...] = (
    case_from_hook,
    lambda model_class, seed, hook, task: synthesised_case(model_class, seed, task),
)


def find_model_case(
    model_class: type, *, seed: int = 0, hook: Hook | None = None, task: Task = Task.FORWARD
) -> ModelCase:
    """The model and inputs to export ``model_class`` with, for one task.

    The same ``seed`` gives bit-identical weights and inputs; the global random state is left as it was.
    ``hook`` is the repository's own function, see ``load_hook``. Raises ``Unavailable`` where there is no
    case, ``HookError`` where the hook's answer is no case.
    """
    for source in SOURCES:
        case = source(model_class, seed, hook, task)
        if case is not None:
            return case
    raise AssertionError("the last source either gives a case or raises")
