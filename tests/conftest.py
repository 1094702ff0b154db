"""What every test runs under."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Our own warnings fail the test; what third parties warn of is not ours to mend."""
    for line in ("ignore", r"error:::(exporters|hfexport_bot)\b"):
        config.addinivalue_line("filterwarnings", line)
