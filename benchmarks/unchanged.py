"""Judge a change that changes no model: every verdict should be ok, known or unchanged.

    python benchmarks/unchanged.py CHECKOUT [option of `hfexport-bot run` ...] --model bert/BertModel [...]

Copies the source of a transformers checkout into a git repository of two commits, of which the second adds a note, runs
the named models on both, and prints how often each verdict came. Exits with 1 for any other verdict.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

EXPECTED = {"ok", "known", "unchanged"}
COPIED = ("src", "pyproject.toml", "setup.py")


def main(checkout: Path, options: list[str]) -> int:
    """Run, print the counts and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        repository, out = Path(folder) / "repository", Path(folder) / "out"
        repository.mkdir()
        for name in COPIED:
            source = checkout / name
            if source.is_dir():
                shutil.copytree(source, repository / name)
            elif source.exists():
                shutil.copy(source, repository / name)
        git = ("git", "-C", str(repository), "-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org")
        subprocess.run((*git, "init", "-q"), check=True)
        for message in ("base", "head"):
            (repository / "NOTES.txt").write_text(message)
            subprocess.run((*git, "add", "-A"), check=True)
            subprocess.run((*git, "commit", "-q", "-m", message), check=True)
        bot = (sys.executable, "-m", "hfexport_bot", "run", "--repo", str(repository), "--base", "HEAD~1")
        subprocess.run((*bot, "--max-models", "0", "--budget-minutes", "0", "--out", str(out), *options), check=False)
        cases = json.loads((out / "report.json").read_text())["cases"]
    verdicts = Counter(case["verdict"] for case in cases)
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))
    for case in cases:
        if case["verdict"] not in EXPECTED:
            print(f"{case['id']}: {case['verdict']} {case['details']}")
    return 0 if cases and set(verdicts) <= EXPECTED else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
