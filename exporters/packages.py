"""Packages that only some exporters need, and the extras that bring them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

Extra = Literal["onnx", "executorch"]

#: What each extra of the distribution installs.
EXTRAS: dict[Extra, tuple[str, ...]] = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "executorch": ("executorch",)}


def require(extra: Extra, user: str, *packages: str) -> None:
    """Raise ``ImportError`` where one of ``packages`` (all of the extra's by default) is not installed; it says what
    ``user`` lacks and which extra to install. The plain distribution brings all of them."""
    missing = [package for package in packages or EXTRAS[extra] if find_spec(package) is None]
    if missing:
        raise ImportError(
            f"{user} needs {' and '.join(missing)}, not installed here: pip install 'hfexport-bot[{extra}]'",
            name=missing[0],
        )
