"""A runner imports from its overlay, but not what it reads its cases with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hfexport_bot.schema import Layout, RunnerSetup


@pytest.mark.process
def test_the_overlay_goes_before_what_is_installed_and_after_python_and_the_bot(tmp_path: Path) -> None:
    """Its torch is the first thing that the runner takes from it, and says so."""
    for name in ("pydantic", "pydantic_core", "psutil", "enum", "torch"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('the {name} of the overlay')")
    read_end, write_end = os.pipe()
    setup = RunnerSetup(layout=Layout.INSTALLED, search_path=(str(tmp_path),))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hfexport_bot.runner", "--events-fd", str(write_end)],
        input=setup.model_dump_json() + "\n",
        pass_fds=[write_end],
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(write_end)
    with os.fdopen(read_end) as events:
        (event,) = map(json.loads, events)
    assert event == {"type": "fatal", "message": "the runner cannot start: ImportError: the torch of the overlay"}
    assert done.returncode == 1
