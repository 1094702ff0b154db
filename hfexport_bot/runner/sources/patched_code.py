"""Code of torch, transformers and Python that a module replaces for the whole process: found, and put back.

Functions, classes and constants are found by identity, as attributes of modules and of the classes defined there, and
in the registries of transformers (activations, attention functions). What is added is no matter, as long as it hides
nothing: packages import lazily. Code that is changed in place (a function's ``__code__``) is not seen.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType, WrapperDescriptorType
from typing import Any, NamedTuple

import torch

#: What eager runs, by the beginnings of modules' names; of the last, registries too.
_WATCHED = ("builtins", "copy", "functools", "inspect", "math", "torch", "transformers")
_WITH_REGISTRIES = "transformers"

#: Of torch: not its compilers and exporters, half of its modules.
_OF_TORCH = (
    "",
    "_C",
    "_ops",
    "_tensor",
    "_VF",
    "autograd",
    "fft",
    "functional",
    "linalg",
    "nn",
    "overrides",
    "special",
)

#: Change others of torch's modules as they are imported, sooner or later.
_CHANGING = ("torch._dynamo", "torch.distributed.tensor")

#: Told of what is new in torch's table of operators, which has no way back.
_OPERATORS = "operators of torch"

_MISSING = object()


class _Owner(NamedTuple):
    """What holds attributes (a module, a class) or entries (a registry), a name to tell it by, and where names are
    looked up that it does not hold."""

    name: str
    value: Any
    behind: tuple[Mapping[str, Any], ...] = ()

    def held(self) -> Any:
        return self.value if isinstance(self.value, dict) else vars(self.value)


class CodeSnapshot:
    """What the watched modules, classes and registries hold.

    To take one of all that transformers imports takes some 50 ms, to compare with it a few; so a process keeps one, and
    those that it forks `refresh` it.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[_Owner, dict[str, Any]]] = {}
        self._modules: set[tuple[str, int]] = set()
        self._operators: set[str] = set()
        for module in _CHANGING:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        self.refresh()

    def refresh(self) -> None:
        """Take in what has come or changed since."""
        for key, (owner, _) in self._differing():
            self._known[key] = (owner, _copied(owner.held()))
        new = {(name, id(module)) for name, module in list(sys.modules.items())} - self._modules
        self._modules |= new
        for name, _ in sorted(new):
            if _is_watched(name) and isinstance(module := sys.modules[name], ModuleType):
                for owner in _owners(name, module):
                    self._known.setdefault(id(owner.value), (owner, _copied(owner.held())))
        self._operators = set(torch.library._impls)

    def put_back(self) -> tuple[list[str], list[str]]:
        """Put back what was replaced; returns the names of that, and of what cannot be put back."""
        changed: list[str] = []
        left: list[str] = []
        for _, (owner, before) in self._differing():
            for name in _replaced(owner, before):
                full = f"{owner.name}[{name!r}]" if isinstance(owner.value, dict) else f"{owner.name}.{name}"
                (changed if _restore(owner, name, before.get(name, _MISSING)) else left).append(full)
        new = sorted(each for each in set(torch.library._impls) - self._operators if each.startswith("aten/"))
        return sorted(changed), sorted(left) + ([f"{_OPERATORS}: {', '.join(new)}"] if new else [])

    def _differing(self) -> list[tuple[int, tuple[_Owner, dict[str, Any]]]]:
        return [item for item in self._known.items() if not _same(item[1][0].held(), item[1][1])]


def _is_watched(module: str) -> bool:
    package, _, rest = module.partition(".")
    return package in _WATCHED and (package != "torch" or rest.partition(".")[0] in _OF_TORCH)


def _owners(name: str, module: ModuleType) -> Iterator[_Owner]:
    """The module, the classes that it defines, and the registries of both."""
    yield _Owner(name, module, (vars(builtins),) if module is not builtins else ())
    for key, value in list(vars(module).items()):
        if isinstance(value, type) and vars(value).get("__module__") == name:
            yield _Owner(f"{name}.{key}", value, tuple(vars(base) for base in value.__mro__[1:]))
            yield from _registries(f"{name}.{key}", value)
    yield from _registries(name, module)


def _registries(name: str, owner: Any) -> Iterator[_Owner]:
    if name.partition(".")[0] != _WITH_REGISTRIES:
        return
    for key, value in list(vars(owner).items()):
        if key.startswith("__"):
            continue
        if isinstance(value, dict):
            yield _Owner(f"{name}.{key}", value)
        elif hasattr(type(value), "_global_mapping"):  # of attention functions, whose own entries come first
            yield _Owner(f"{name}.{key}", value._local_mapping, (type(value)._global_mapping,))


def _copied(held: Any) -> dict[str, Any]:
    """Not by methods of its own: some registries import what is asked for."""
    return dict(dict.items(held)) if isinstance(held, dict) else dict(held)


def _same(held: Any, before: dict[str, Any]) -> bool:
    """Whether both hold the very same; at the speed of C where they do."""
    try:
        return bool(dict.__eq__(held, before) if isinstance(held, dict) else held == before)
    except Exception:  # values that cannot be compared are others
        return False


def _replaced(owner: _Owner, before: dict[str, Any]) -> list[str]:
    """The names that hold something else now, are gone, or hide what was found elsewhere before."""
    now = _copied(owner.held())
    changed = [
        name
        for name, value in before.items()
        if (new := now.get(name, _MISSING)) is not value and not _is_counted(owner, value, new)
    ]
    hiding = [name for name in now if name not in before and any(name in names for names in owner.behind)]
    return changed + [name for name in hiding if callable(now[name])]


def _is_counted(owner: _Owner, before: Any, now: Any) -> bool:
    """Whether it is one of torch's own counters, as that of its hooks."""
    return owner.name.startswith("torch") and type(before) is type(now) is int


def _restore(owner: _Owner, name: str, value: Any) -> bool:
    """Whether the attribute or entry is as it was: not where the type forbids it, and not where a slot of a type in C
    stays filled (see `exporters.registry`)."""
    try:
        if isinstance(owner.value, dict):
            if value is _MISSING:
                dict.__delitem__(owner.value, name)
            else:
                dict.__setitem__(owner.value, name, value)
        elif value is _MISSING:
            delattr(owner.value, name)
            return owner.value is not torch.Tensor or not isinstance(getattr(owner.value, name), WrapperDescriptorType)
        else:
            setattr(owner.value, name, value)
    except (AttributeError, TypeError):
        return False
    return True
