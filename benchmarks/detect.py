"""Compare ``hfexport-bot detect`` with transformers' own ``utils/tests_fetcher.py``, commit by commit: the CPU seconds
of each, and how many models each selects.

    python benchmarks/detect.py PATH/TO/transformers COMMIT...

The repository is not modified: commits are checked out in a temporary clone that shares its objects. Cold is a run
with an empty cache, warm the next one. Seconds are those of the process and what it starts: compare them within one
run only.
The fetcher needs GitPython (``pip install gitpython``), which is no dependency of ours: where it is missing, its
columns say so. A row is printed as soon as it is there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Characters of a commit that are shown.
_WIDTH = 10
_TESTED_MODEL = re.compile(r"\btests/models/(\w+)/")


@dataclass(frozen=True)
class Measured:
    """CPU seconds of a command, and the models that it selects; None where it failed."""

    seconds: float
    models: int | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    given = parser.parse_args()
    columns = ("Models", "Theirs", "Cold", "Warm", "Theirs, s", "Theirs / cold", "Theirs / warm")
    print("  ".join(["Commit".ljust(_WIDTH), *columns]))
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", given.repository, clone], check=True)
        for commit in given.commits:
            cells = (cell.rjust(len(title)) for cell, title in zip(_row(clone, commit), columns, strict=True))
            print("  ".join([commit[:_WIDTH].ljust(_WIDTH), *cells]), flush=True)
    return 0


def _row(clone: Path, commit: str) -> Sequence[str]:
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = (detect(clone, commit, Path(cache)) for _ in range(2))
    theirs = fetch_tests(clone, commit)
    if theirs.models is None:
        return str(cold.models), "failed", f"{cold.seconds:.1f}", f"{warm.seconds:.1f}", *("-" * 3)
    return (
        str(cold.models),
        str(theirs.models),
        *(f"{each.seconds:.1f}" for each in (cold, warm, theirs)),
        *(f"{theirs.seconds / each.seconds:.1f}" for each in (cold, warm)),
    )


def detect(clone: Path, commit: str, cache: Path) -> Measured:
    """Ours."""
    command = [sys.executable, "-m", "hfexport_bot", "detect", "--repo", str(clone), "--json"]
    output, seconds = _run([*command, "--base", f"{commit}~1", "--head", commit], clone, {"XDG_CACHE_HOME": str(cache)})
    return Measured(
        seconds, None if output is None else len({each["model"] for each in json.loads(output)["affected"]})
    )


def fetch_tests(clone: Path, commit: str) -> Measured:
    """The checkout's own, at that commit."""
    subprocess.run(["git", "-C", clone, "checkout", "-q", "--force", "--detach", commit], check=True)
    command = [sys.executable, "utils/tests_fetcher.py", "--diff_with_last_commit"]
    output, seconds = _run(command, clone, {"PYTHONPATH": os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")])})
    found = (output or "").rpartition("### TEST TO RUN ###")[2]
    return Measured(seconds, None if output is None else len(set(_TESTED_MODEL.findall(found))))


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[str | None, float]:
    """What a command prints, None where it fails, and its CPU seconds."""
    before = _children()
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{' '.join(command)} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return (None if done.returncode else done.stdout), _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
