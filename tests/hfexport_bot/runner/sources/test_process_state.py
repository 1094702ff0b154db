"""What changes for the whole process is put back."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hfexport_bot.runner.sources.process_state import unchanged_state


def _numpys_keys() -> list[int]:
    state: Any = np.random.get_state()
    return list(state[1])


def _some_handler(number: int, frame: Any) -> None: ...


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "default dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float16)),
    "default device": (torch.get_default_device, lambda: torch.set_default_device("meta")),
    "grad mode": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(not torch.is_grad_enabled())),
    "deterministic algorithms": (
        torch.is_deterministic_algorithms_warn_only_enabled,
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    ),
    "cudnn flags": (
        lambda: torch.backends.cudnn.benchmark,
        lambda: setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark),
    ),
    "float32 matmul precision": (
        torch.get_float32_matmul_precision,
        lambda: torch.set_float32_matmul_precision("medium"),
    ),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    "torch's seed": (torch.initial_seed, lambda: torch.manual_seed(1234)),
    "numpy's random state": (_numpys_keys, lambda: np.random.seed(3)),
    "Python's random state": (random.getstate, lambda: random.seed(3)),
    "environment variables": (lambda: dict(os.environ), lambda: os.environ.update(HFEXPORT_ADDED="1")),
    "recursion limit": (sys.getrecursionlimit, lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1)),
    "garbage collection": (gc.isenabled, gc.disable),
    "trace function": (sys.gettrace, lambda: sys.settrace(lambda frame, event, value: None)),
    "profile function": (sys.getprofile, lambda: sys.setprofile(lambda frame, event, value: None)),
    "attention kernels": (torch.backends.cuda.math_sdp_enabled, lambda: torch.backends.cuda.enable_math_sdp(False)),
    "anomaly detection": (torch.is_anomaly_enabled, lambda: torch.autograd.set_detect_anomaly(True)),
    "timers": (lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0, lambda: signal.alarm(600)),
    "blocked signals": (
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, set()),
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}),
    ),
    "signal handlers": (
        lambda: signal.getsignal(signal.SIGUSR1),
        lambda: signal.signal(signal.SIGUSR1, _some_handler),
    ),
    "working folder": (Path.cwd, lambda: os.chdir("/")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_state_comes_back_and_is_named(name: str) -> None:
    read, change = CHANGES[name]
    before = read()
    with unchanged_state() as changes:
        change()
        assert read() != before
    assert changes.put_back == [name]
    assert read() == before


def test_a_timer_that_ran_before_runs_on() -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 600)
    try:
        with unchanged_state() as changes:
            pass
        assert changes.put_back == []
        with unchanged_state() as changes:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        assert changes.put_back == ["timers"]
        assert 500 < signal.getitimer(signal.ITIMER_VIRTUAL)[0] <= 600
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def test_a_blocked_signal_that_waits_does_not_come_when_it_may() -> None:
    with unchanged_state() as changes:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        signal.raise_signal(signal.SIGUSR1)  # to this thread
    assert changes.put_back == ["blocked signals"]


def test_drawing_random_numbers_comes_back_untold() -> None:
    before = torch.get_rng_state()
    with unchanged_state() as changes:
        torch.rand(3)
    assert changes.put_back == []
    assert torch.equal(torch.get_rng_state(), before)


def test_no_mode_is_left_behind_where_the_cpu_was_set() -> None:
    with unchanged_state():
        torch.set_default_device("cpu")
    assert torch.overrides._get_current_function_mode_stack() == []  # type: ignore[no-untyped-call]


def test_an_error_puts_back_too() -> None:
    def fail() -> None:
        torch.set_default_dtype(torch.float64)
        raise KeyError

    with pytest.raises(KeyError), unchanged_state() as changes:
        fail()
    assert changes.put_back == ["default dtype"]
    assert torch.get_default_dtype() is torch.float32
