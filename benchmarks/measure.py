"""Run a command and print its wall time and the peak memory of all its processes.

    python benchmarks/measure.py hfexport-bot check bert

Memory is the proportional set size (pages that forked processes share count once), summed over the process tree and
sampled five times a second; where the system has no such figure, the resident set size, which counts shared pages in
every process.
"""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

_SECONDS_BETWEEN_SAMPLES = 0.2


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: measure.py COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    started, peak = time.monotonic(), 0
    process = subprocess.Popen(sys.argv[1:])
    while process.poll() is None:
        peak = max(peak, used_bytes(process.pid))
        time.sleep(_SECONDS_BETWEEN_SAMPLES)
    seconds = time.monotonic() - started
    print(f"measured: {seconds:.0f} s, peak memory {peak / 2**30:.1f} GiB", file=sys.stderr)
    return process.returncode


def used_bytes(pid: int) -> int:
    """Memory of a process and everything below it, in bytes; what ends meanwhile counts nothing."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    total = 0
    for process in family:
        try:
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.rss)
        except psutil.Error:
            continue
    return total


if __name__ == "__main__":
    sys.exit(main())
