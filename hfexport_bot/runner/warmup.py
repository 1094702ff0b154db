"""What the runner's parent pays once, so that the cases it forks do not."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from hfexport_bot.schema import Engine, Layout, RunnerSetup, Source

#: What nearly every model imports. Not onnxruntime: it starts a thread, and takes a case only 0.1 s.
_TRANSFORMERS_MODULES = (
    "transformers.modeling_utils",
    "transformers.cache_utils",
    "transformers.masking_utils",
    "transformers.generation.utils",
)
#: What the engine repo imports, which brings every backend's packages with it.
_EXPORTERS = "transformers.exporters"


def warm_up(setup: RunnerSetup, backends: Iterable[str]) -> dict[str, str]:
    """Import the revision's transformers, with its exporters where they are to export, and export something to each
    backend; returns versions by package.

    What fails to warm up is left to the cases that need it, which then say so. Raises ``TreeError`` where the tree's
    transformers cannot be used at all.
    """
    import torch

    from exporters.warmup import warm_up as export_once
    from hfexport_bot.runner.tree import prepare_tree

    torch.set_num_threads(1)
    versions = prepare_tree(setup)
    for name in (*_TRANSFORMERS_MODULES, *([_EXPORTERS] if Engine.REPO in setup.engines else [])):
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"not warm: {name}: {type(error).__name__}: {error}", file=sys.stderr)
    if setup.layout is Layout.TRANSFORMERS and (not setup.sources or Source.MODEL_TESTS in setup.sources):
        _import_tests(Path(str(setup.tree)))
    try:
        export_once(sorted(backends))
    except Exception:
        traceback.print_exc()
    if len(os.listdir("/proc/self/task") if sys.platform == "linux" else ()) > 1:
        print("warming up has started threads, which forked cases will be without", file=sys.stderr)
    gc.collect()
    gc.freeze()  # or the children's first collection touches, and so copies, every object
    gc.set_threshold(20_000)  # what an export makes mostly lasts as long as it: looking for garbage more often is waste
    return versions


def _import_tests(root: Path) -> None:
    """What the checkout's model tests share, which takes many times as long as one model's own test module."""
    from hfexport_bot.runner.sources.cases import Unavailable
    from hfexport_bot.runner.sources.checkout_tests import import_shared_tests

    try:
        import_shared_tests(root)
    except Unavailable as error:
        print(f"not warm: {error.message}", file=sys.stderr)
