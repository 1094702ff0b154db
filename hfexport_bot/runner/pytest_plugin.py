"""A pytest plugin for model authors: export checks for every test class that has a model tester.

Loaded with pytest wherever hfexport-bot is installed, and without effect until ``--export-checks``, or ``export_checks
= true`` in pytest's settings, asks for it. Then each ``unittest.TestCase`` with ``all_model_classes``, as transformers'
``ModelTesterMixin`` has it, gets the tests of ``FAMILIES``, one for each of its model classes::

    pytest --export-checks tests/models/bert -k "test_onnx_export[BertModel-"

Tests that the class has already stay as they are, also those of the same name: ours have the model class in brackets,
and the mark ``export_check``.
"""

from __future__ import annotations

import types
import unittest
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

#: Tests by name: the backend and the task that each is about.
FAMILIES = {
    "test_torch_export": ("dynamo", "forward"),
    "test_onnx_export": ("onnx", "forward"),
    "test_executorch_export": ("executorch", "forward"),
    "test_torch_export_generate": ("dynamo", "generate"),
    "test_onnx_export_generate": ("onnx", "generate"),
    "test_executorch_export_generate": ("executorch", "generate"),
}
_SHAPES = {"dynamic": ("dynamic",), "static": ("static",), "both": ("dynamic", "static")}
_MARK = "export_check"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options are all that a run without ``--export-checks`` notices of this plugin."""
    group = parser.getgroup("hfexport-bot")
    said = "test that the models of each model tester export, and that the numbers are eager's"
    group.addoption("--export-checks", action="store_true", help=said)
    group.addoption(
        "--export-shapes", choices=tuple(_SHAPES), default="dynamic", help="sizes of the graphs (default: dynamic)"
    )
    parser.addini("export_checks", said, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, which exists also where nothing is asked for: ``-m "not export_check"``."""
    config.addinivalue_line("markers", f"{_MARK}: exports a model and compares the numbers (hfexport-bot)")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> Generator[None, Any, Any]:
    """Give a collected test class the export checks: its collector works on a subclass that has them besides."""
    found = yield
    if isinstance(found, pytest.Class) and _asked_for(collector.config) and _has_tester(obj):
        own = found.obj  # read first: pytest then takes the class's own marks
        shapes = _SHAPES[collector.config.getoption("--export-shapes")]
        found.obj = with_export_checks(own, shapes, root=str(collector.config.rootpath))
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leave out what torch logged during a check, which is long and says less than the check's message. ``-s`` shows
    it."""
    report = yield
    if item.get_closest_marker(_MARK):
        noise = ("Captured stderr", "Captured log")
        report.sections = [(title, text) for title, text in report.sections if not title.startswith(noise)]
    return report


def _asked_for(config: pytest.Config) -> bool:
    return bool(config.getoption("--export-checks") or config.getini("export_checks"))


def _has_tester(test_class: object) -> bool:
    is_test_case = isinstance(test_class, type) and issubclass(test_class, unittest.TestCase)
    return is_test_case and hasattr(test_class, "all_model_classes") and getattr(test_class, "__test__", True)


def with_export_checks(test_class: type[unittest.TestCase], shapes: tuple[str, ...], root: str) -> type:
    """A subclass of the same name that has the tests of ``FAMILIES``, for each class and for each of ``shapes``.

    ``root``: the repository's folder; files are told relative to it.
    """
    checks = dict(_checks(test_class, shapes, root))
    same = {name: getattr(test_class, name) for name in ("__module__", "__qualname__", "__doc__")}
    return types.new_class(test_class.__name__, (test_class,), exec_body=lambda own: own.update(same | checks))


def _checks(
    test_class: type[unittest.TestCase], shapes: tuple[str, ...], root: str
) -> Iterator[tuple[str, Callable[[Any], None]]]:
    from hfexport_bot.runner.model_tests import classes_to_check

    example = _set_up(test_class)
    for name, (backend, task) in FAMILIES.items():
        if example is None:
            yield name, _check_all(name, [(backend, shape, task) for shape in shapes], root)
            continue
        for model_class in classes_to_check(example, task):
            for shape in shapes:
                full_name = f"{name}[{model_class.__name__}-{shape}]"
                yield full_name, _check_one(full_name, model_class, (backend, shape, task), root)


def _set_up(test_class: type[unittest.TestCase]) -> unittest.TestCase | None:
    """An instance as its tests find it, since some make ``all_model_classes`` in ``setUp``; ``None`` where that does
    not work yet."""
    example = test_class("runTest")
    try:
        example.setUp()
        example.tearDown()
    except (Exception, pytest.skip.Exception):  # a test that runs it tells what is wrong, or that it skips
        return None
    finally:
        example.doCleanups()
    return example


def _check_one(name: str, model_class: type, case: tuple[str, str, str], root: str) -> Callable[[Any], None]:
    def check(self: unittest.TestCase) -> None:
        from hfexport_bot.runner.model_tests import check_model

        passed, skipped, message = check_model(self, model_class, *case, root=root)
        if skipped:
            self.skipTest(message)
        if not passed:
            pytest.fail(message, pytrace=False)

    return _named(check, name)


def _check_all(name: str, cases: list[tuple[str, str, str]], root: str) -> Callable[[Any], None]:
    """The check of all model classes in one test, for a class that tells them only when its tests run."""

    def check(self: unittest.TestCase) -> None:
        from hfexport_bot.runner.model_tests import classes_to_check

        for case in cases:
            for model_class in classes_to_check(self, case[-1]):
                with self.subTest(model_class.__name__, shapes=case[1]):
                    _check_one(name, model_class, case, root)(self)

    return _named(check, name)


def _named(check: Callable[[Any], None], name: str) -> Callable[[Any], None]:
    check.__name__ = check.__qualname__ = name
    marked: Callable[[Any], None] = getattr(pytest.mark, _MARK)(check)
    return marked
