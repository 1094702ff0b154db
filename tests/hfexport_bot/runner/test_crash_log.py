"""What the log of a dead process tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hfexport_bot
from hfexport_bot.runner.crash_log import read_crash

BOT = Path(hfexport_bot.__file__).parent

TITLES = {"Stack (most recent call first):": "a", "Fatal Python error: Aborted": "b"}

#: Crashes at the bottom of a deep recursion, beside another thread.
CRASH = """
import ctypes, faulthandler, threading, time, numpy
faulthandler.enable()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("about to", flush=True)
def innermost(): ctypes.string_at(0)
def deep(n): deep(n - 1) if n else innermost()
deep(60)
"""


def test_the_innermost_frames_stay_of_a_real_dump() -> None:
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, check=False)
    crash = read_crash(done.stdout + done.stderr)
    assert crash.before.strip() == "about to"
    assert crash.title == "Fatal Python error: Segmentation fault"
    assert [frame.function for frame in crash.frames[:3]] == ["string_at", "innermost", "deep"]
    text = crash.text(lambda file: False)
    assert text.splitlines()[:2] == ["about to", "Fatal Python error: Segmentation fault"]
    assert text.splitlines()[-1] == "  ... and 52 more"
    assert "Extension modules" not in text
    assert "threading.py" not in text


def test_the_bots_frames_go_and_what_was_written_before_is_cut_first() -> None:
    model = '  File "/tree/modeling_x.py", line 7 in forward\n'
    bot = f'  File "{BOT}/runner/case.py", line 1 in run\n' * 80 + '  File "<frozen runpy>", line 88 in _run_code\n'
    dump = f"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n{model}{bot}"
    crash = read_crash("x" * 5_000 + f"\n{dump}\nExtension modules: torch._C (total: 1)\nterminate called\n")
    assert crash.text(lambda file: True) == "x" * 800 + f"\nFatal Python error: Aborted\n{model}terminate called"


def test_what_called_the_code_under_test_is_left_out() -> None:
    files = ["/torch/a.py", "/tree/modeling_x.py", "/torch/b.py", "/tree/modeling_y.py", "/torch/c.py"]
    frames = [f'  File "{file}", line 7 in forward' for file in files]
    crash = read_crash("\n".join(["Stack (most recent call first):", *frames, ""]))
    assert crash.text(lambda file: file.startswith("/tree/")).splitlines() == [
        "Stack (most recent call first):",
        frames[0],
        frames[1],
        frames[3],
        "  ... and 2 more",
    ]
    assert crash.text(lambda file: False).splitlines()[1:] == frames


def test_the_last_of_several_dumps_counts() -> None:
    asked, fatal = (f'{title}\n  File "/tree/{name}.py", line 1 in f\n' for title, name in TITLES.items())
    assert [frame.file for frame in read_crash(asked + fatal).frames] == ["/tree/b.py"]
    assert [frame.file for frame in read_crash(fatal + asked).frames] == ["/tree/a.py"]


def test_a_log_without_a_dump_is_told_by_its_end() -> None:
    def told(log: str) -> str:
        return read_crash(log).text(lambda file: False)

    assert told("first\n" + "y" * 4_000 + "\nlast\n") == ("y" * 4_000 + "\nlast")[-3_000:]
    assert told("\n") == ""
    assert told("what is said of a Fatal Python error: x") == "what is said of a Fatal Python error: x"
