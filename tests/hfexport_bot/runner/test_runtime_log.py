from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hfexport_bot.runner.runtime_log import MAX_LINES, native_log


@contextmanager
def stderr_in_a_file(*, readable: bool = True) -> Iterator[None]:
    """Descriptor 2 as in a runner's case, which native code writes to past Python."""
    before = os.dup(2)
    with tempfile.NamedTemporaryFile() as file:
        log = os.open(file.name, os.O_RDWR if readable else os.O_WRONLY)
        os.dup2(log, 2)
        os.close(log)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)


def notes(*printed: str, readable: bool = True) -> list[str]:
    with stderr_in_a_file(readable=readable):
        os.write(2, b"[old.cpp:1] from an earlier case\n")
        with pytest.raises(RuntimeError) as caught, native_log():
            for line in printed:
                os.write(2, f"{line}\n".encode())
            raise RuntimeError("method->execute() failed with error 0x14")
    return getattr(caught.value, "__notes__", [])


def test_an_error_is_told_with_what_native_code_printed_meanwhile() -> None:
    found = notes(
        "[cpuinfo_utils.cpp:71] Reading file /sys/devices/soc0/image_version",
        "a warning of Python's",
        "[operator_registry.cpp:256] kernel 'aten::bitwise_right_shift.Tensor_out' not found.",
        "[operator_registry.cpp:256] kernel 'aten::bitwise_right_shift.Tensor_out' not found.",
        "[method.cpp:1493] arg 0 with type id 1",
        "[method.cpp:760] There are 1 instructions don't have corresponding operator registered.",
    )
    assert found == [
        "kernel 'aten::bitwise_right_shift.Tensor_out' not found.\n"
        "There are 1 instructions don't have corresponding operator registered."
    ]


def test_the_first_lines_of_a_long_log_are_told() -> None:
    (note,) = notes(*(f"[XNNCompiler.cpp:635] fault {number}" for number in range(100)))
    assert note.splitlines() == [f"fault {number}" for number in range(MAX_LINES)]


def test_nothing_is_added_where_nothing_was_printed_or_it_cannot_be_read() -> None:
    assert notes("a warning of Python's") == []
    assert notes("[method.cpp:1] no", readable=False) == []
