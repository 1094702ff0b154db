"""The registry of workarounds: small, reversible changes that make a model exportable, each with its reason.

A workaround belongs to a backend and a stage and says either which upstream issue it works around (``upstream``)
or what the model should do instead (``model_change``). It is looked up when an exporter runs, counted when it is hit,
and switched off by its id with ``disabled`` on a config.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import WrapperDescriptorType
from typing import Any, Literal, TypeVar

from torch._ops import OpOverload, OpOverloadPacket

from exporters.stages import STAGES

Kind = Literal[
    "patch", "model_patch", "input_preparer", "node_fix", "program_fix", "translation", "ir_fix", "skip", "no_optimize"
]
F = TypeVar("F", bound=Callable[..., Any])

#: Registered patches whose paths lie under these packages change the backend's own code, not torch or the model.
_BACKEND_PACKAGES = {"onnx": ("torch.onnx", "onnxscript", "onnx_ir"), "executorch": ("executorch",)}

#: Special methods with two slots in a type of C, as a mapping's and as a sequence's: Python fills both when one is
#: replaced, and both stay filled.
_OF_SEQUENCES = ("__getitem__", "__setitem__", "__delitem__", "__len__")


@dataclass(frozen=True)
class Workaround:
    """One registered workaround. Its reason is the first paragraph of its function's docstring.

    Attributes:
        id: ``backend/stage/name``, what ``disabled`` takes and outcomes list.
        targets: dotted paths (patches), names of inputs (input preparers), operators (translations) or names of models
            (skips) that it is for.
        function: a factory ``original -> replacement`` for a patch; ``(model) -> context manager``, which gives an int,
            for a model patch; ``(model, inputs) -> mapping`` of further inputs for an input preparer; ``(graph_module,
            node) -> bool`` for a node fix; ``(exported_program) -> int`` for a program fix; an onnxscript function for
            a translation; ``(ir_model) -> int`` for an IR fix. The counts say how often it changed something. For a
            skip ``(model_class, shapes, task) -> bool``: whether it is for that case.
        upstream: address of the upstream issue. model_change: what the model should do instead. One is needed.
    """

    id: str
    kind: Kind
    backend: str
    stage: str
    reason: str
    function: Callable[..., Any]
    targets: tuple[Any, ...] = ()
    upstream: str | None = None
    model_change: str | None = None


@dataclass
class Hits:
    """How often each workaround changed something during one export, by id."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, workaround: Workaround, times: int = 1) -> None:
        """Count ``times`` hits; zero leaves no trace."""
        if times:
            self.counts[workaround.id] += times


_WORKAROUNDS: dict[str, Workaround] = {}

#: Stage of the skips, which act before an export begins: the one in which a model is found.
SKIP_STAGE = "source"


def workarounds(
    backend: str | None = None, stage: str | None = None, *, kind: Kind | None = None, disabled: Iterable[str] = ()
) -> tuple[Workaround, ...]:
    """Registered workarounds in order of registration, of one backend, stage and kind where given, without those
    whose ids are in ``disabled``."""
    return tuple(
        w
        for w in _WORKAROUNDS.values()
        if backend in (None, w.backend) and stage in (None, w.stage) and kind in (None, w.kind) and w.id not in disabled
    )


def unregister(workaround_id: str) -> None:
    """Remove a workaround. Raises ``KeyError`` for an unknown id."""
    del _WORKAROUNDS[workaround_id]


def _register(
    kind: Kind,
    backend: str,
    stage: str,
    targets: tuple[Any, ...],
    upstream: str | None,
    model_change: str | None,
) -> Callable[[F], F]:
    require_reasons(backend, stage, upstream, model_change)

    def decorate(function: F) -> F:
        name = function.__name__.lstrip("_")
        reason = " ".join(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].split())
        if not reason:
            raise ValueError(f"workaround {name} needs a docstring that gives its reason")
        add_workaround(
            Workaround(
                id=f"{backend}/{stage}/{name}",
                kind=kind,
                backend=backend,
                stage=stage,
                reason=reason,
                function=function,
                targets=targets,
                upstream=upstream,
                model_change=model_change,
            )
        )
        return function

    return decorate


def require_reasons(backend: str, stage: str, upstream: str | None, model_change: str | None) -> None:
    """Raise ``ValueError`` for a stage that the backend does not have, or without a reason to end the workaround."""
    if stage not in (SKIP_STAGE, *STAGES.get(backend, ())) or backend not in STAGES:
        raise ValueError(f"{backend!r} has no stage {stage!r}; stages by backend: {dict(STAGES)}")
    if not upstream and not model_change:
        raise ValueError("a workaround needs upstream= (an issue's address) or model_change= (what to do instead)")


def add_workaround(workaround: Workaround) -> None:
    """Enter a workaround under its id. Raises ``ValueError`` where the id is taken."""
    if workaround.id in _WORKAROUNDS:
        raise ValueError(f"workaround {workaround.id} is registered already")
    _WORKAROUNDS[workaround.id] = workaround


def register_patch(
    backend: str, *paths: str, upstream: str | None = None, model_change: str | None = None
) -> Callable[[F], F]:
    """Register ``factory(original) -> replacement`` for the attributes at ``paths`` while a model is exported.

    The factory is called once for each path. A path leads to a function of a module, a torch op (``torch.where``,
    ``torch.ops.aten.gelu``; the factory gets the real op) or an attribute of a class:

    - a method, also one of ``torch.Tensor``: original and replacement take ``self`` first;
    - a classmethod: both take ``cls`` first; a staticmethod: neither;
    - a property: both are its getter and take ``self``.

    What is replaced is the attribute, for those who look it up when they call it. Out of reach are a name that another
    module imported before (``from torch.nn.functional import gelu``: patch it there too), and operators called from
    C++.

    Patches of torch or model code run in stage ``model_patches`` (dynamo) or ``torch_patches``; patches of a
    backend's own packages in ``onnx_patches`` and ``executorch_patches``.
    """
    if not paths or not all(isinstance(path, str) for path in paths):
        raise ValueError("register_patch needs at least one dotted path, such as 'torch.where'")
    own = all(path.startswith(_BACKEND_PACKAGES.get(backend, ())) for path in paths)
    stage = "model_patches" if backend == "dynamo" else f"{backend}_patches" if own else "torch_patches"
    return _register("patch", backend, stage, paths, upstream, model_change)


def register_model_patch(
    backend: str, *, upstream: str | None = None, model_change: str | None = None
) -> Callable[[F], F]:
    """Register ``patch(model) -> context manager`` for what hangs on the model at hand: which of its modules, methods
    or settings are replaced while it is exported. The context manager gives the number of places that it changes, and
    undoes all on leaving. Of ``contextlib.contextmanager``, write the decorator below this one."""
    return _register("model_patch", backend, "model_patches", (), upstream, model_change)


def register_export_input_preparer(
    *markers: str,
    upstream: str | None = None,
    model_change: str | None = "compute it outside forward, and let forward take it as an argument",
) -> Callable[[F], F]:
    """Register ``prepare(model, inputs) -> mapping`` of inputs that a graph cannot compute.

    It runs where every one of ``markers`` is among the inputs, before a trace and again before each call of the
    artifact; what it returns is added to the inputs. It must depend on nothing but the inputs and the model's settings,
    for the model may be one without weights (on the meta device).
    """
    if not markers or not all(isinstance(marker, str) for marker in markers):
        raise ValueError("register_export_input_preparer needs at least one name of an input, such as 'grid_thw'")
    return _register("input_preparer", "dynamo", "signature", markers, upstream, model_change)


def register_fx_node_fix(
    backend: str, *, upstream: str | None = None, model_change: str | None = None
) -> Callable[[F], F]:
    """Register ``fix(graph_module, node) -> bool``: true where it rewrote the node."""
    return _register("node_fix", backend, "node_fixes", (), upstream, model_change)


def register_fx_program_fix(
    backend: str, *, upstream: str | None = None, model_change: str | None = None
) -> Callable[[F], F]:
    """Register ``fix(exported_program) -> int``: how many places it changed."""
    return _register("program_fix", backend, "program_fixes", (), upstream, model_change)


def register_translation(
    *operators: Any, upstream: str | None = None, model_change: str | None = None
) -> Callable[[F], F]:
    """Register an onnxscript function that translates ``operators``, such as ``torch.ops.aten.gelu.default``, to ONNX
    in place of torchlib's. Of two for one operator the later counts."""
    if not operators or not all(callable(operator) for operator in operators):
        raise ValueError("register_translation needs at least one operator, such as torch.ops.aten.gelu.default")
    return _register("translation", "onnx", "translate", operators, upstream, model_change)


def register_ir_fix(*, upstream: str | None = None, model_change: str | None = None) -> Callable[[F], F]:
    """Register ``fix(onnx_ir.Model) -> int``: how many places it changed."""
    return _register("ir_fix", "onnx", "ir_fixes", (), upstream, model_change)


def resolve(path: str, *, import_models: bool = True) -> tuple[Any, str] | None:
    """The owner and the attribute's name for a dotted path; ``None`` where it does not resolve.

    Without ``import_models`` a path into a model that is not imported does not resolve: its code cannot be running, and
    importing it takes seconds.
    """
    parts = path.split(".")
    if path.startswith("transformers.models.") and not import_models and ".".join(parts[:4]) not in sys.modules:
        return None
    for split in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            continue
        for part in parts[split:-1]:
            owner = getattr(owner, part, None)
        return (owner, parts[-1]) if hasattr(owner, parts[-1]) else None
    return None


def unresolved(backend: str | None = None) -> tuple[tuple[Workaround, str], ...]:
    """Patches with the paths that lead nowhere in the installed versions."""
    patches = (w for w in workarounds(backend) if w.kind == "patch")
    return tuple((w, path) for w in patches for path in w.targets if resolve(path) is None)


@contextmanager
def apply_patches(backend: str, stage: str, hits: Hits, disabled: Iterable[str] = ()) -> Iterator[None]:
    """Install a stage's patches; the originals come back on leaving, also when something was raised.

    A path that does not resolve is passed over, and so is a workaround whose id is in ``disabled``. A call of a
    replacement counts as a hit.

    Raises:
        RuntimeError: a factory failed, or what it is for or what it returned cannot be called. Nothing stays patched.
    """
    with ExitStack() as stack:
        for workaround in workarounds(backend, stage, kind="patch", disabled=disabled):
            for path in workaround.targets:
                if (place := resolve(path, import_models=False)) is None:
                    continue
                try:
                    replacement = _replacement(*place, workaround, hits)
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    raise RuntimeError(f"patch {workaround.id} cannot be made for {path}: {reason}") from error
                stack.enter_context(replaced(*place, replacement))
        yield


@contextmanager
def apply_model_patches(backend: str, model: Any, hits: Hits, disabled: Iterable[str] = ()) -> Iterator[None]:
    """Enter the backend's model patches, and leave them in the opposite order, however it ends."""
    with ExitStack() as stack:
        for patch in workarounds(backend, kind="model_patch", disabled=disabled):
            hits.add(patch, times_of(patch, stack.enter_context(patch.function(model))))
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute while inside. What ``owner`` held comes back as it was stored; what it inherited, too."""
    owned = name in vars(owner)
    stored = vars(owner).get(name)  # a staticmethod or classmethod object, not what getattr binds
    setattr(owner, name, value)
    try:
        yield
    finally:
        if owned:
            setattr(owner, name, stored)
        else:
            delattr(owner, name)


def _replacement(owner: Any, name: str, workaround: Workaround, hits: Hits) -> Any:
    """What a patch puts in the place of ``owner.name``: the same kind of attribute, counted."""
    if not inspect.isclass(owner):
        return _counted(workaround, getattr(owner, name), hits)
    stored = inspect.getattr_static(owner, name)  # as it is kept, also where it is inherited
    if isinstance(stored, property):
        getter = _counted(workaround, stored.fget, hits)
        return property(getter, stored.fset, stored.fdel, stored.__doc__)
    if inspect.isgetsetdescriptor(stored):  # torch.Tensor.shape
        return property(_counted(workaround, stored.__get__, hits), stored.__set__, stored.__delete__)
    if isinstance(stored, classmethod):
        return classmethod(_counted(workaround, stored.__func__, hits))
    counted = _counted(workaround, getattr(owner, name), hits)
    # A callable that is no function is not bound to an instance, and its replacement must not be.
    return (
        counted if hasattr(type(stored), "__get__") and not isinstance(stored, staticmethod) else staticmethod(counted)
    )


def _counted(workaround: Workaround, original: Any, hits: Hits) -> Callable[..., Any]:
    """The workaround's replacement for ``original``; a call of it counts as a hit."""
    if isinstance(original, OpOverload):
        raise TypeError(
            "torch's dispatcher needs the overload itself; name the function that models call, such as "
            f"torch.ops.aten.{original._opname}, or register a node fix or a translation"
        )
    if isinstance(original, WrapperDescriptorType) and original.__name__ in _OF_SEQUENCES:
        raise TypeError(
            f"a type written in C stays a sequence once its {original.__name__} was replaced, and then torch.tensor "
            "fails; patch what calls it, and enter a torch.overrides.TorchFunctionMode there"
        )
    if not callable(original) or inspect.isclass(original):
        raise TypeError("a patch is for something that is called and is no class")
    replacement = workaround.function(original)
    if not callable(replacement) or inspect.isclass(replacement):
        raise TypeError(f"the factory returned {replacement!r}, not a function")

    @functools.wraps(replacement)
    def counted(*args: Any, **kwargs: Any) -> Any:
        hits.add(workaround)
        return replacement(*args, **kwargs)

    return _ReplacedOp(counted, original) if isinstance(original, OpOverloadPacket) else counted


class _ReplacedOp:
    """A replacement for a torch op, whose overloads and tags stay within reach."""

    def __init__(self, function: Callable[..., Any], op: OpOverloadPacket[..., Any]) -> None:
        self._function = function
        self._op = op

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def apply_fx_node_fixes(backend: str, graph_module: Any, hits: Hits, disabled: Iterable[str] = ()) -> None:
    """Offer every node of a ``torch.fx.GraphModule``, subgraphs included, to the backend's node fixes, in place."""
    fixes = workarounds(backend, "node_fixes", kind="node_fix", disabled=disabled)
    for module in graph_module.modules():
        graph = getattr(module, "graph", None)
        if graph is None:
            continue
        rewritten = 0
        for node in list(graph.nodes):
            for fix in fixes:
                if fix.function(module, node):
                    hits.add(fix)
                    rewritten += 1
                    break
        if rewritten:
            graph.lint()
            module.recompile()


def times_of(fix: Workaround, returned: Any) -> int:
    """How often a fix changed something, as it returned it. Raises ``TypeError`` for what is no number."""
    if not isinstance(returned, int):
        raise TypeError(f"{fix.id} returned {returned!r}; a fix returns how many places it changed")
    return int(returned)


def apply_fx_program_fixes(backend: str, program: Any, hits: Hits, disabled: Iterable[str] = ()) -> None:
    """Run the backend's program fixes on a ``torch.export.ExportedProgram``, in place."""
    for fix in workarounds(backend, "program_fixes", kind="program_fix", disabled=disabled):
        hits.add(fix, times_of(fix, fix.function(program)))
