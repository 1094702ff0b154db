"""What a model source hands over: a model with its inputs, or the reason why there is none."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hfexport_bot.runner.tree import TREE_PACKAGE
from hfexport_bot.schema import Limits, SourceTry, Task, UnavailableCause, Variant

Inputs = dict[str, Any]

#: Errors of sockets, and of the libraries that download, by name: not all of these are installed everywhere.
_NO_CONNECTION = {
    *("ConnectionError", "ConnectError", "ConnectTimeout", "ProxyError", "ReadTimeout", "URLError", "gaierror"),
    *("ClientConnectionError", "NewConnectionError", "MaxRetryError"),
}
_UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EAFNOSUPPORT}
_OF_THE_HUB = ("huggingface.co", "hf.co", "offline", "hf_hub", "local cache")

#: Packages whose modules are the code under test: nothing that could be installed.
_UNDER_TEST = ("tests", "transformers", TREE_PACKAGE)

#: A repository's own function, see ``load_hook``.
Hook = Callable[[str, int], Any]


@dataclass(frozen=True)
class Wanted:
    """What a source is asked for.

    ``tests``: the root of the checkout whose tests may be asked. ``checkpoint``: a local folder with this class's
    weights; ``no_checkpoint``: why the one that the settings name is not there. ``variant``: which of the model's own
    switches is turned. ``survey``: ask everything that could have the class (each of its test classes), to tell of
    each, instead of only the first that has it. ``apart``: the limits of the case, where the process is its alone and
    can be forked to ask the author's tests (`isolation`).
    """

    model_class: type
    seed: int = 0
    task: Task = Task.FORWARD
    hook: Hook | None = None
    tests: Path | None = None
    checkpoint: Path | None = None
    no_checkpoint: str = ""
    variant: Variant | None = None
    survey: bool = False
    apart: Limits | None = None


@dataclass
class ModelCase:
    """A model ready to be exported.

    ``model``: in eval mode, float32 on CPU. ``inputs``: keyword arguments of its forward, every mask all ones, or of
    its ``generate``, one row padded; every axis that may vary has at least 2. ``probes``: inputs at other shapes and
    with padding, by name; eager may refuse some of them. ``source``: who made it, of which ``origin`` is the test class
    or checkpoint; ``tried``: who was asked, where that is more to tell; ``notes``: what a reader should know of it.
    """

    model: torch.nn.Module
    inputs: Inputs
    probes: dict[str, Inputs] = field(default_factory=dict)
    source: str = "synthesised"
    origin: str = ""
    tried: tuple[SourceTry, ...] = ()
    notes: tuple[str, ...] = ()


class Unavailable(Exception):
    """No model or no inputs could be made; ``cause`` is from the closed list, the message says what is
    missing, and ``tried`` who was asked, where that is more than one."""

    def __init__(self, cause: UnavailableCause, message: str, tried: tuple[SourceTry, ...] = ()) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message
        self.tried = tried


class Inapplicable(Exception):
    """The variant asked for changes nothing of this class; the message says which do."""


class HookError(ValueError):
    """A repository's own case function is missing, raises or returns something that is no case."""


def first_line(error: BaseException) -> str:
    """The innermost cause's type and first line; libraries wrap what the reader wants to see."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def unavailable(error: Exception, otherwise: UnavailableCause, doing: str) -> Unavailable:
    """``Unavailable`` for an error met while ``doing`` something: a missing package, a download and a lack of memory
    are recognised, anything else has the cause ``otherwise``."""
    if _is_of_a_library(error):
        cause = UnavailableCause.MISSING_LIBRARY
    elif any(_is_about_a_download(each) for each in _chain(error)):
        cause = UnavailableCause.HUB_ACCESS
    elif isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        cause = UnavailableCause.TOO_BIG
    else:
        cause = otherwise
    return Unavailable(cause, f"{doing}: {first_line(error)}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it comes from: libraries wrap these, each in its own."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_of_a_library(error: Exception) -> bool:
    """Whether an import failed for want of a library, and not of a module of the code under test."""
    if not isinstance(error, ImportError):
        return False
    names = [each.name for each in _chain(error) if isinstance(each, ImportError) and each.name]
    return not names or names[-1].partition(".")[0] not in _UNDER_TEST


def _is_about_a_download(error: BaseException) -> bool:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & _NO_CONNECTION:
        return True
    lowered = str(error).lower()
    return isinstance(error, OSError) and (error.errno in _UNREACHABLE or any(word in lowered for word in _OF_THE_HUB))
