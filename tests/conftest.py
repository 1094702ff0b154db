"""What every test runs under."""

from __future__ import annotations

import gc

import hypothesis
import pytest

# The same examples on every machine, nothing written, and no limit on the time of one: machines are shared.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("same")

# An export makes so many objects that last as long as it does that to look through them every 700, as Python would,
# takes a tenth of its time.
gc.set_threshold(20_000)


def pytest_configure(config: pytest.Config) -> None:
    """Our own warnings fail the test; what third parties warn of is not ours to mend."""
    for line in ("ignore", r"error:::(exporters|hfexport_bot)\b"):
        config.addinivalue_line("filterwarnings", line)
