"""The ``transformers.exporters`` of the revision under test, and what it has.

Its shape differs from version to version: classes move, results are wrapped, registries hold objects or paths. So
everything is looked for by name and nothing is told by a version.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hfexport_bot.schema import Backend

PACKAGE = "transformers.exporters"

#: Names of the exporter and of its config, by backend.
_CLASSES = {
    Backend.DYNAMO: ("DynamoExporter", "DynamoConfig"),
    Backend.ONNX: ("OnnxExporter", "OnnxConfig"),
    Backend.EXECUTORCH: ("ExecutorchExporter", "ExecutorchConfig"),
}


class NoEngine(RuntimeError):
    """The revision's transformers has no exporters, or none for a backend; the message says what to do."""


@dataclass(frozen=True)
class ExportersPackage:
    """``transformers.exporters``, or a package of the same kind under another ``name``."""

    name: str
    module: ModuleType

    @classmethod
    def find(cls, name: str = PACKAGE) -> ExportersPackage:
        """Import it. Raises `NoEngine` where there is none, or one that cannot be imported."""
        try:
            return cls(name, importlib.import_module(name))
        except ModuleNotFoundError as error:
            if error.name != name:
                raise NoEngine(
                    f"{name} cannot be imported: {error}; install what it needs, or use engine own"
                ) from error
            version = getattr(sys.modules.get("transformers"), "__version__", "of this revision")
            raise NoEngine(f"transformers {version} has no exporters of its own; use engine own") from error

    def exporter(self, backend: Backend) -> Any:
        """A new exporter. Raises `NoEngine` where there is none for the backend."""
        return self._class(_CLASSES[backend][0])()

    def config(self, backend: Backend, exporter: Any, *, dynamic: bool) -> Any:
        """The exporter's config with its own defaults but for ``dynamic``."""
        config_class = getattr(exporter, "config_class", None) or self._class(_CLASSES[backend][1])
        if dynamic and "dynamic" not in {field.name for field in dataclasses.fields(config_class)}:
            raise NoEngine(f"{config_class.__name__} of {self.name} knows no dynamic shapes; run with --shapes static")
        return config_class(dynamic=dynamic) if dynamic else config_class()

    def registries(self, attribute: str) -> list[Any]:
        """What its modules hold under a name, each once, without what is empty."""
        found = {id(value): value for module in self._modules() if (value := vars(module).get(attribute))}
        return list(found.values())

    def function(self, name: str) -> Callable[..., Any] | None:
        """A function of one of its modules."""
        return next((vars(module)[name] for module in self._modules() if callable(vars(module).get(name))), None)

    def bindings(self, value: Any) -> Iterator[tuple[ModuleType, str]]:
        """Where its modules hold ``value`` under a name of their own."""
        for module in self._modules():
            for name, held in list(vars(module).items()):
                if held is value:
                    yield module, name

    def is_own(self, error: BaseException) -> bool:
        """Whether an error was raised by its own code, not by something that it called."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        raised_in = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
        return bool(raised_in == self.name or raised_in.startswith(f"{self.name}."))

    def reason(self, error: BaseException) -> BaseException:
        """The error that its own code wrapped to say where it was, or the error itself."""
        while type(error) is RuntimeError and error.__cause__ is not None and self.is_own(error):
            error = error.__cause__
        return error

    def _class(self, name: str) -> Any:
        try:
            return getattr(self.module, name)
        except (AttributeError, ImportError) as error:
            raise NoEngine(f"{self.name} has no {name} that can be imported ({error}); use engine own") from error

    def _modules(self) -> list[ModuleType]:
        return [
            module
            for name, module in sorted(sys.modules.items())
            if isinstance(module, ModuleType) and (name == self.name or name.startswith(f"{self.name}."))
        ]
