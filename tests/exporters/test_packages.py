from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from exporters.packages import EXTRAS, require

ROOT = Path(__file__).parents[2]


@pytest.mark.process
@pytest.mark.parametrize(
    ("missing", "statement", "user", "extra"),
    [
        ("onnxscript", "from exporters import OnnxExporter", "OnnxExporter", "onnx"),
        ("onnxruntime", "exporters.OnnxExporter", "OnnxExporter", "onnx"),
        ("onnx", "import exporters.onnx.exporter", "OnnxExporter", "onnx"),
        ("onnxruntime", "exporters.Artifact('onnx', None, (), ()).session", "an ONNX artifact", "onnx"),
        ("executorch", "exporters.ExecutorchExporter", "ExecutorchExporter", "executorch"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(missing: str, statement: str, user: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import exporters; exporters.DynamoExporter\n"
        f"try: {statement}\n"
        "except ImportError as error: print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert run.stdout == f"{user} needs {missing}, not installed here: pip install 'hfexport-bot[{extra}]'\n"


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
