"""What the log of a dead process tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hfexport_bot
from hfexport_bot.runner.crash_log import crash_text

BOT = Path(hfexport_bot.__file__).parent

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
    text = crash_text(done.stdout + done.stderr)
    lines = text.splitlines()
    assert lines[0] == "about to"
    assert "Fatal Python error: Segmentation fault" in lines
    frames = [line for line in lines if line.startswith("  File")]
    assert "in string_at" in frames[0]
    assert frames[1].endswith("in innermost")
    assert "Extension modules" not in text
    assert "threading.py" not in text


def test_the_bots_frames_go_and_what_was_written_before_is_cut_first() -> None:
    model = '  File "/tree/modeling_x.py", line 7 in forward\n'
    bot = f'  File "{BOT}/runner/case.py", line 1 in run\n' * 80 + '  File "<frozen runpy>", line 88 in _run_code\n'
    dump = f"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n{model}{bot}"
    text = crash_text("x" * 5_000 + f"\n{dump}\nExtension modules: torch._C (total: 1)\nterminate called\n")
    assert text == "x" * 800 + "\n" + dump.replace(bot, "").replace("\n\n", "\n") + "terminate called"


def test_a_log_without_a_dump_is_told_by_its_end() -> None:
    assert crash_text("first\n" + "y" * 4_000 + "\nlast\n") == ("y" * 4_000 + "\nlast")[-3_000:]
    assert crash_text("\n") == ""
