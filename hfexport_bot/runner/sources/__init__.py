"""Where a case's model and inputs come from: sources asked in order, the first that has a case gives it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from hfexport_bot.runner.sources.cases import HookError, Inapplicable, ModelCase, Unavailable, Wanted
from hfexport_bot.runner.sources.checkout_tests import case_from_tests
from hfexport_bot.runner.sources.checkpoints import case_from_checkpoint
from hfexport_bot.runner.sources.repository import case_from_hook, load_hook
from hfexport_bot.runner.sources.synthesised import synthesised_case
from hfexport_bot.schema import MAX_MESSAGE_CHARS, Source, SourceTry, UnavailableCause

__all__ = ["HookError", "Inapplicable", "ModelCase", "Unavailable", "Wanted", "find_model_case", "load_hook"]

#: Asked in this order, by name; each returns a case, or None where it has nothing to do with the class, or raises
#: ``Unavailable``.
SOURCES: dict[Source, Callable[[Wanted], ModelCase | None]] = {
    Source.REPOSITORY: case_from_hook,
    Source.MODEL_TESTS: case_from_tests,
    Source.SYNTHESISED: lambda wanted: synthesised_case(
        wanted.model_class, wanted.seed, wanted.task, variant=wanted.variant
    ),
    Source.CHECKPOINT: case_from_checkpoint,
}

#: Causes that tell what to do, and so say more than that another source could not guess the inputs.
_CURABLE = (UnavailableCause.MISSING_LIBRARY, UnavailableCause.HUB_ACCESS)


def find_model_case(model_class: type, *, sources: Collection[Source] = (), **wanted: Any) -> ModelCase:
    """The model and inputs to export ``model_class`` with; the other keywords are the fields of `Wanted`.

    The same ``seed`` gives bit-identical weights and inputs; the global random state is left as it was. ``sources``
    are the only ones to ask, all by default. The case, or ``Unavailable``, tells in ``tried`` who was asked and why
    those before had none.

    Raises ``Unavailable`` where no source has a case, ``HookError`` where the hook's answer is no case,
    ``Inapplicable`` for a variant that is not to be had.
    """
    asked = Wanted(model_class, **wanted)
    tried: list[SourceTry] = []
    for name, source in SOURCES.items():
        if sources and name not in sources:
            continue
        try:
            case = source(asked)
        except Unavailable as error:
            tried += error.tried or [
                SourceTry(source=name, cause=error.cause, message=error.message[:MAX_MESSAGE_CHARS])
            ]
            continue
        if case is not None:
            tried += case.tried or [SourceTry(source=case.source, name=case.origin)]
            return replace(case, tried=tuple(tried))
    failed = [each for each in tried if each.cause is not None]
    if not failed:
        message = f"none of the sources asked ({', '.join(sources) or 'all'}) has to do with {model_class.__name__}"
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, message, tuple(tried))
    telling = next((each for each in failed if each.cause in _CURABLE), failed[-1])
    told = [telling, *(each for each in reversed(failed) if each is not telling)]
    message = "; ".join(dict.fromkeys(each.message for each in told))
    raise Unavailable(telling.cause or UnavailableCause.UNKNOWN_INPUTS, message, tuple(tried))
