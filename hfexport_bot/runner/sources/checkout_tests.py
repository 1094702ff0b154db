"""Second source: the model tests of a transformers checkout, ``tests/models/<m>/test_modeling_*.py``.

They are imported as ``tests.models.<m>.test_modeling_<m>`` and never run: a test class of the wanted class is set up,
and its tester makes the model and inputs (`hfexport_bot.runner.sources.testers`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.sources.cases import ModelCase, Unavailable, Wanted
from hfexport_bot.runner.sources.isolation import ask_apart
from hfexport_bot.runner.sources.process_state import Changes, unchanged_state
from hfexport_bot.runner.sources.stand_ins import stand_ins
from hfexport_bot.runner.sources.testers import as_unavailable, case_from_tester, model_classes
from hfexport_bot.runner.tree import make_package
from hfexport_bot.schema import MAX_MESSAGE_CHARS, Source, SourceTry, Task, UnavailableCause

#: What nearly every model test imports.
_SHARED = ("tests.test_modeling_common", "tests.test_configuration_common", "tests.causal_lm_tester")

#: Only add tests to a class, and are most of the work of an import: every exporter, every pipeline, and for those the
#: configurations of all models.
_LEFT_OUT = ("tests.exporters.test_export", "tests.test_pipeline_mixin")

#: For what they share to be imported, before the first case.
MAX_SECONDS = 120.0

#: Of what a test changed, that a note tells.
_MOST_NAMES = 20


@functools.cache
def memory_folder() -> Path:
    """A folder, not made yet, where cases leave word of tests that hang: the parent's, which asks for it first."""
    return Path(tempfile.gettempdir(), f"tests-{os.getpid()}")


def case_from_tests(wanted: Wanted) -> ModelCase | None:
    """The case of the first test class that tests the wanted class and makes one; None where none tests it.

    With ``wanted.survey`` all of them are asked, each also for a forward of eager (or a generation), and the case's
    ``tried`` tells of each by its name. With ``wanted.apart`` they are asked in forks of this process.

    Raises:
        Unavailable: the test file does not import, or the test classes make no case; ``tried`` tells of each.
    """
    if wanted.apart is None:
        return _ask(wanted, {}, lambda name: None)
    if not any(_test_modules(wanted)):
        return None
    return ask_apart(functools.partial(_ask, wanted), wanted.apart, memory_folder() / wanted.model_class.__module__)


def _ask(wanted: Wanted, failed: Mapping[str, SourceTry], on_ask: Callable[[str], None]) -> ModelCase | None:
    """What `case_from_tests` gives; not asked are those that have ``failed``, and ``on_ask`` gets the names of others
    as each begins."""
    found: ModelCase | None = None
    tried: list[SourceTry] = []
    for name, case in _attempts(wanted, failed, on_ask):
        if isinstance(case, SourceTry):
            tried.append(case)
            continue
        if isinstance(case, Unavailable):
            message = case.message[:MAX_MESSAGE_CHARS]
            tried.append(SourceTry(source=Source.MODEL_TESTS, name=name, cause=case.cause, message=message))
            continue
        tried.append(SourceTry(source=Source.MODEL_TESTS, name=name))
        found = found or replace(case, source=Source.MODEL_TESTS, origin=name)
        if not wanted.survey:
            break
    if found is not None:
        return replace(found, tried=tuple(tried))
    if tried:
        raise Unavailable(tried[-1].cause or UnavailableCause.UNKNOWN_INPUTS, tried[-1].message, tuple(tried))
    return None


def import_shared_tests(root: Path) -> None:
    """Import, in the parent that forks cases, what nearly every model test of the checkout imports; nothing where it
    has no tests. Raises ``Unavailable`` that says what does not import."""
    memory_folder()
    for name in _SHARED:
        if (root / f"{name.replace('.', '/')}.py").is_file():
            with _within(MAX_SECONDS):
                _import(name, root)


def _attempts(
    wanted: Wanted, failed: Mapping[str, SourceTry], on_ask: Callable[[str], None]
) -> Iterator[tuple[str, ModelCase | Unavailable | SourceTry]]:
    """What each test class of the wanted class comes to, and each file that does not import, by name."""
    for root, name in _test_modules(wanted):
        stem = name.rpartition(".")[2]
        if stem in failed:
            yield stem, failed[stem]
            continue
        on_ask(stem)
        try:
            module, notes = _import(name, root)
        except Unavailable as error:
            yield stem, error
            continue
        for test_class in _test_classes(module, wanted.model_class):
            if test_class.__name__ in failed:
                yield test_class.__name__, failed[test_class.__name__]
                continue
            on_ask(test_class.__name__)
            try:
                case = _case(test_class, wanted)
            except Unavailable as error:
                yield test_class.__name__, error
            else:
                if case is not None:
                    yield test_class.__name__, replace(case, notes=(*notes, *case.notes))


def _test_modules(wanted: Wanted) -> Iterator[tuple[Path, str]]:
    """The test modules of the model's folder, that of the folder's own name first."""
    package, _, _ = wanted.model_class.__module__.rpartition(".")
    if wanted.tests is None or wanted.variant or not package.startswith("transformers.models."):
        return
    root, model = wanted.tests.resolve(), package.removeprefix("transformers.models.")
    files = (root / "tests" / "models" / model.replace(".", "/")).glob("test_modeling_*.py")
    own = f"test_modeling_{model.rpartition('.')[2]}"
    for stem in sorted((file.stem for file in files), key=lambda stem: (stem != own, stem)):
        yield root, f"tests.models.{model}.{stem}"


def _import(name: str, root: Path) -> tuple[ModuleType, tuple[str, ...]]:
    """The module, and notes on what importing it has changed for the process, which is put back."""
    tests = sys.modules.get("tests")
    if tests is not None and str(root / "tests") not in list(tests.__path__):
        message = f"another package named tests is imported already, from {', '.join(tests.__path__)}"
        raise Unavailable(UnavailableCause.UNKNOWN_INPUTS, message)
    with as_unavailable(name, "does not import"), unchanged_state() as changes:
        make_package("tests", root / "tests")
        with stand_ins(root, _LEFT_OUT):
            module = importlib.import_module(name)
    return module, _noted(f"importing {name}", changes)


def _test_classes(module: ModuleType, model_class: type) -> Iterator[Any]:
    """Test classes of a module that may have ``model_class``: some name their classes only when they are set up."""
    for value in list(vars(module).values()):
        is_test = isinstance(value, type) and issubclass(value, unittest.TestCase)
        if is_test and value.__module__ == module.__name__ and hasattr(value, "all_model_classes"):
            named = value.all_model_classes
            if not isinstance(named, tuple | list) or not named or model_class in named:
                yield value


def _case(test_class: Any, wanted: Wanted) -> ModelCase | None:
    """The case of one test class; None where it turns out not to have the wanted class, or not for this task."""
    name = test_class.__name__
    with unchanged_state() as changes:
        test_case = test_class()
        try:
            with as_unavailable(f"{name}.setUp", "fails"):
                test_case.setUp()
                if wanted.model_class not in model_classes(test_case, wanted.task):
                    return None
            case = case_from_tester(test_case, wanted.model_class, wanted.task, wanted.seed)
        finally:
            with contextlib.suppress(Exception):  # the case is made, or has an error of its own
                test_case.tearDown()
                test_case.doCleanups()
    if wanted.survey:
        with as_unavailable(name, f"makes what {wanted.model_class.__name__} does not run on"):
            _run_eager(case, wanted)
    notes = _noted(name, changes)
    if getattr(test_class, "__unittest_skip__", False):
        reason = getattr(test_class, "__unittest_skip_why__", "") or "it gives no reason"
        notes = (*notes, f"{name} is skipped as a test, and was asked all the same: {reason}")
    return replace(case, notes=(*case.notes, *notes))


def _run_eager(case: ModelCase, wanted: Wanted) -> None:
    from hfexport_bot.runner.generation import Decoding  # which imports the sources

    model = Decoding(case.model) if wanted.task is Task.GENERATE else case.model
    run_eager(model, case.inputs, wanted.seed)


def _noted(who: str, changes: Changes) -> tuple[str, ...]:
    notes = []
    if changes.put_back:
        notes.append(f"{who} changed what is the process's: {_some(changes.put_back)} (put back)")
    if changes.left:
        notes.append(
            f"{who} changed what cannot be put back, so that eager, here, may not be the model's own: "
            f"{_some(changes.left)}"
        )
    return tuple(notes)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


class _OutOfTime(BaseException):
    """Raised by the clock; no ``except Exception`` of a test stops it."""


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """End, as ``Unavailable`` (timeout), what takes longer. Code that never comes back to Python is left to the limits
    of the case, and so is everything outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _OutOfTime:
        message = f"the model's tests are not done after {seconds:g} s"
        raise Unavailable(UnavailableCause.TIMEOUT, message) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
