from __future__ import annotations

import os
import subprocess
import sys

import pytest


def _run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_importing_the_package_leaves_transformers_and_the_backends_out() -> None:
    _run(
        "import sys, exporters\n"
        "loaded = {'transformers', 'onnxscript', 'onnxruntime', 'executorch'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )


def test_unknown_names_are_attribute_errors() -> None:
    import exporters

    with pytest.raises(AttributeError, match="no attribute 'CoreMlExporter'"):
        _ = exporters.CoreMlExporter


@pytest.mark.export
def test_warming_up_starts_no_thread() -> None:
    _run(
        "import os, torch; torch.set_num_threads(1)\n"
        "from exporters.warmup import warm_up\n"
        "warm_up(['dynamo', 'onnx', 'executorch'])\n"
        "threads = os.listdir('/proc/self/task') if os.path.isdir('/proc/self/task') else ['main']\n"
        "assert len(threads) == 1, threads"
    )
