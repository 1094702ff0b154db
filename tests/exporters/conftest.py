from __future__ import annotations

from collections.abc import Iterator

import pytest

import exporters.executorch.exporter
import exporters.onnx.exporter  # noqa: F401  all of our own is registered before the first test
from exporters import registry


@pytest.fixture(autouse=True)
def _clean_registry() -> Iterator[None]:
    """What a test registers, or removes, is undone after it."""
    before = dict(registry._WORKAROUNDS)
    yield
    registry._WORKAROUNDS.clear()
    registry._WORKAROUNDS.update(before)
