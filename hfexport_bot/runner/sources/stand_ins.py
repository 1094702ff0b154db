"""Stand-ins for what test modules import and what making a model does not need.

Test modules import far more than their testers use: packages for integration tests, which are not installed here, and
mixins that add tests alone. An import statement in a test module gets a `StandIn` for those; one in transformers itself
never does, nor does anything that looks for a package by its name, so that transformers' own idea of what is installed
stays true.
"""

from __future__ import annotations

import builtins
import importlib.util
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Third-party packages that tests use beside the model: to mark, repeat and time tests, to fetch and read samples.
EXTRAS = frozenset(
    {
        *("PIL", "_pytest", "accelerate", "datasets", "evaluate", "faiss", "librosa", "pandas", "parameterized"),
        *("pyctcdecode", "pytest", "requests", "scipy", "soundfile", "timeout_decorator"),
        *("torchaudio", "torchcodec", "torchvision"),
    }
)

#: Whose test modules are being imported.
_importing: list[Path] = []


class StandIn:
    """Stands for a module, and for everything in it.

    It can be a decorator, which leaves alone what it decorates, and a base class, which adds nothing. A call that would
    have to do something raises ``ModuleNotFoundError``, once the test modules are imported.
    """

    def __init__(self, name: str, missing: str) -> None:
        self._name = name
        self._missing = missing

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(f"{self._name} stands for {self._missing} and has no {name}")
        return StandIn(f"{self._name}.{name}", self._missing)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if not _importing:
            raise ModuleNotFoundError(f"{self._name} is called, and {self._missing}", name=self._name)
        decorated = len(arguments) == 1 and not keywords and callable(arguments[0])
        return arguments[0] if decorated else self

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __or__(self, other: Any) -> StandIn:  # in annotations
        return self

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


@contextmanager
def stand_ins(root: Path, left_out: Collection[str] = ()) -> Iterator[None]:
    """While it lasts, files below ``root``, but for its ``src``, get stand-ins for `EXTRAS` that are not installed, and
    for the modules ``left_out``, by their dotted names. Nothing is put into ``sys.modules``.
    """
    original = builtins.__import__

    def import_(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        asking = _lies_in_tests(globals, root)
        if asking and fromlist and (full := _absolute(name, globals, level)) in left_out:
            return StandIn(full, f"{full} is left out, since it only adds tests")
        try:
            return original(name, globals, locals, fromlist, level)
        except ModuleNotFoundError as error:
            top = name.partition(".")[0]
            if not asking or level or top not in EXTRAS or error.name != top:
                raise
            return StandIn(name if fromlist else top, f"{top} is not installed")

    builtins.__import__ = import_
    _importing.append(root)
    try:
        yield
    finally:
        _importing.pop()
        builtins.__import__ = original


def _lies_in_tests(importer: Mapping[str, object] | None, root: Path) -> bool:
    file = str((importer or {}).get("__file__") or "")
    return file.startswith(f"{root}/") and not file.startswith(f"{root}/src/")


def _absolute(name: str, importer: Mapping[str, object] | None, level: int) -> str:
    if not level:
        return name
    return importlib.util.resolve_name("." * level + name, str((importer or {}).get("__package__") or ""))
