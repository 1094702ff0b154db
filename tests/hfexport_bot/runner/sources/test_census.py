"""How far the synthesised source reaches on the installed transformers: every class of four mappings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CENSUS = Path(__file__).with_name("census.py")
ROOT = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.process
def test_four_of_five_classes_run_with_all_that_they_can_be_fed() -> None:
    """In a process of its own: it forks for each class from one that has imported them all. Ten minutes."""
    ran = subprocess.run(
        [sys.executable, CENSUS], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    reached, _, total, *_ = ran.stdout.split()
    assert int(reached) >= 0.8 * int(total), ran.stdout
    most = float(ran.stdout.split("at most ")[1].split()[0])
    assert most <= 5
