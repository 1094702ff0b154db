from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from exporters.packages import EXTRAS, require

ROOT = Path(__file__).parents[2]


#: What is missing, the statement that needs it, who needs it by the error's words, and the extra that has it.
NEEDED = [
    ("onnxscript", "from exporters import OnnxExporter", "OnnxExporter", "onnx"),
    ("onnxruntime", "exporters.OnnxExporter", "OnnxExporter", "onnx"),
    ("onnx", "import exporters.onnx.exporter", "OnnxExporter", "onnx"),
    ("onnxruntime", "exporters.Artifact('onnx', None, (), ()).session", "an ONNX artifact", "onnx"),
    ("executorch", "exporters.ExecutorchExporter", "ExecutorchExporter", "executorch"),
]
#: Has none of the packages until it has named the exporter that needs none; then each statement runs in a fork that
#: lacks its own only.
LACKING = """
import json, os, sys
needed = json.loads(sys.argv[1])
absent = dict.fromkeys(missing for missing, *_ in needed)
sys.modules.update(absent)
import exporters; exporters.DynamoExporter
for name in absent: del sys.modules[name]
for missing, statement, *_ in needed:
    if (pid := os.fork()) == 0:
        sys.modules[missing] = None
        try: exec(statement)
        except ImportError as error: print(error, flush=True)
        else: print("nothing is missing", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module")
def told() -> dict[tuple[str, ...], str]:
    """What each statement of `NEEDED` says."""
    run = subprocess.run(
        [sys.executable, "-c", LACKING, json.dumps(NEEDED)],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    return dict(zip(NEEDED, run.stdout.splitlines(), strict=True))


@pytest.mark.process
@pytest.mark.parametrize("needed", NEEDED)
def test_a_missing_package_is_named_with_its_extra(
    told: dict[tuple[str, ...], str], needed: tuple[str, str, str, str]
) -> None:
    missing, _, user, extra = needed
    assert told[needed] == f"{user} needs {missing}, not installed here: pip install 'hfexport-bot[{extra}]'"


def test_several_missing_packages_are_told_at_once() -> None:
    with pytest.raises(ImportError, match="x needs no_such_a and no_such_b, not installed here") as caught:
        require("onnx", "x", "no_such_a", "torch", "no_such_b")
    assert caught.value.name == "no_such_a"


def test_the_extras_are_parts_of_the_plain_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, packages in EXTRAS.items():
        pins = project["optional-dependencies"][extra]
        assert set(pins) <= set(project["dependencies"])
        assert sorted(pin.partition("==")[0] for pin in pins) == sorted(packages)
