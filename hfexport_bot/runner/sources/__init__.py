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

__all__ = ["GUESSED", "HookError", "Inapplicable", "ModelCase", "Unavailable", "Wanted", "find_model_case", "load_hook"]

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

#: Those that make the inputs by guessing what they mean.
GUESSED = frozenset({Source.SYNTHESISED, Source.CHECKPOINT})

#: Causes that tell what to do, and so say more than that another source could not guess the inputs.
_CURABLE = (UnavailableCause.MISSING_LIBRARY, UnavailableCause.HUB_ACCESS)


def _missing(name: Source, wanted: Wanted) -> str:
    """Why a source has nothing to do with a class."""
    if wanted.variant and name is not Source.SYNTHESISED:
        return "turns no switches (`--variant`)"
    return _MISSING[name](wanted)


def _without_hook(wanted: Wanted) -> str:
    return "its case function returns None for it" if wanted.hook else "the settings name no case function (`cases:`)"


def _without_tests(wanted: Wanted) -> str:
    if wanted.tests is None:
        return "only a transformers checkout has them (name one with --tree)"
    return "no test class of the checkout tests it"


#: What a source lacks that has nothing to do with a class.
_MISSING: dict[Source, Callable[[Wanted], str]] = {
    Source.REPOSITORY: _without_hook,
    Source.MODEL_TESTS: _without_tests,
    Source.SYNTHESISED: lambda wanted: "makes no case of it",
    Source.CHECKPOINT: lambda wanted: "the settings name none for it (`checkpoints:`, with `allow-hub: true`)",
}


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
        why = "; ".join(f"{name}: {_missing(name, asked)}" for name in SOURCES if not sources or name in sources)
        message = f"no source that was asked has to do with {model_class.__name__}: {why}"
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, message, tuple(tried))
    telling = next((each for each in failed if each.cause in _CURABLE), failed[-1])
    told = [telling, *(each for each in reversed(failed) if each is not telling)]
    message = "; ".join(dict.fromkeys(each.message for each in told))
    raise Unavailable(telling.cause or UnavailableCause.UNKNOWN_INPUTS, message, tuple(tried))
