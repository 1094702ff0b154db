"""What a module or a test can change for the whole process, put back."""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from hfexport_bot.runner.executed_lines import ExecutedLines
from hfexport_bot.runner.sources.patched_code import CodeSnapshot


@dataclass
class Changes:
    """Names of what was changed for the process and is put back, and of what could not be."""

    put_back: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@functools.cache
def _code() -> CodeSnapshot:
    return CodeSnapshot()


@contextmanager
def unchanged_state() -> Iterator[Changes]:
    """Put back, at the end, what was changed of the process's state; yields what is then filled with its names.

    That is torch's defaults and switches, random states, environment variables, the working folder, timers and signals,
    and functions, classes and constants of torch and transformers (`CodeSnapshot`). What packages do as a matter of
    course is untold: drawing random numbers, adding to ``sys.path``, filtering warnings.
    """
    changes = Changes()
    before = [(name, read, write, read()) for name, (read, write) in (_TOLD | _UNTOLD).items()]
    _code().refresh()
    try:
        yield changes
    finally:
        for name, read, write, value in before:
            if not _equal(read(), value):
                changes.put_back += [name] if name in _TOLD else []
                write(value)
        torch.set_default_device(None)  # always: that the CPU was set does not show, and makes a mode of every call
        put_back, changes.left = _code().put_back()
        changes.put_back += put_back


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    return bool(left == right)


def _read_numpy() -> Any:
    state: Any = np.random.get_state()
    return state[0], state[1].tolist(), *state[2:]


def _read_environment() -> dict[str, str]:
    """But for what torch's compiler tells its own processes, as soon as it is loaded."""
    return {name: value for name, value in os.environ.items() if "TORCHINDUCTOR_" not in name}


def _write_environment(before: dict[str, str]) -> None:
    for name in set(_read_environment()) - set(before):
        del os.environ[name]
    os.environ.update(before)


def _write_warnings(before: list[Any]) -> None:
    warnings.filters[:] = before  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _use_deterministic(before: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _set_cudnn(before: tuple[bool, bool]) -> None:
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


def _attention_kernels() -> tuple[bool, ...]:
    """Those that scaled dot product attention may choose from, on a CPU too."""
    cuda = torch.backends.cuda
    return cuda.flash_sdp_enabled(), cuda.math_sdp_enabled(), cuda.mem_efficient_sdp_enabled()


def _allow_kernels(before: tuple[bool, ...]) -> None:
    cuda = torch.backends.cuda
    for allow, value in zip(
        (cuda.enable_flash_sdp, cuda.enable_math_sdp, cuda.enable_mem_efficient_sdp), before, strict=True
    ):
        allow(value)


def _collect_garbage(before: bool) -> None:
    (gc.enable if before else gc.disable)()


def _write_path(before: list[str]) -> None:
    sys.path[:] = before


def _foreign_tracing() -> Any:
    """But for our own, which ends as soon as it has seen everything."""
    function = sys.gettrace()
    return None if isinstance(getattr(function, "__self__", None), ExecutedLines) else function


def _leave(before: Any) -> None:
    """For what comes back with another state."""


_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


@dataclass(frozen=True)
class _Timers:
    """Those that run, equal whatever is left of them; ``left`` are seconds."""

    running: tuple[bool, ...]
    intervals: tuple[float, ...]
    left: tuple[float, ...] = field(compare=False)


def _read_timers() -> _Timers:
    faulthandler.cancel_dump_traceback_later()  # which can end the process too, and cannot be asked for
    values, intervals = zip(*(signal.getitimer(timer) for timer in _TIMERS), strict=True)
    return _Timers(tuple(value > 0 for value in values), intervals, values)


def _set_timers(before: _Timers) -> None:
    for timer, left, interval in zip(_TIMERS, before.left, before.intervals, strict=True):
        signal.setitimer(timer, left, interval)


def _blocked() -> set[Any]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, set())


def _block_only(before: set[Any]) -> None:
    while pending := signal.sigpending() & (_blocked() - before):
        signal.sigwait(pending)  # otherwise it would arrive as soon as it may
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _read_handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _set_handlers(before: dict[int, Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # nor can it have changed one
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


_State = tuple[Callable[[], Any], Callable[[Any], Any]]

_TOLD: dict[str, _State] = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default device": (torch.get_default_device, _leave),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic algorithms": (_deterministic, _use_deterministic),
    "cudnn flags": (lambda: (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark), _set_cudnn),
    "float32 matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "attention kernels": (_attention_kernels, _allow_kernels),
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's seed": (torch.initial_seed, _leave),
    "numpy's random state": (_read_numpy, np.random.set_state),
    "Python's random state": (random.getstate, random.setstate),
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "garbage collection": (gc.isenabled, _collect_garbage),
    "trace function": (_foreign_tracing, _leave),
    "profile function": (sys.getprofile, sys.setprofile),
    "timers": (_read_timers, _set_timers),
    "blocked signals": (_blocked, _block_only),
    "signal handlers": (_read_handlers, _set_handlers),
    "environment variables": (_read_environment, _write_environment),
    "working folder": (os.getcwd, os.chdir),
}

_UNTOLD: dict[str, _State] = {
    "torch's random state": (torch.get_rng_state, torch.set_rng_state),
    "warning filters": (lambda: list(warnings.filters), _write_warnings),
    "any tracing": (sys.gettrace, sys.settrace),
    "sys.path": (lambda: list(sys.path), _write_path),
}
