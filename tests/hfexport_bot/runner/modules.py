"""Trees that come and go within one process, as no runner has them."""

from __future__ import annotations

import sys
from pathlib import Path

from hfexport_bot.runner.tree import TREE_PACKAGE


def forget_modules(folder: Path) -> None:
    """Remove what was imported from files below ``folder``, and the package made up for its tree."""
    for name, module in list(sys.modules.items()):
        below = str(folder) in str(getattr(module, "__file__", None))
        if below or name.partition(".")[0] == TREE_PACKAGE:
            del sys.modules[name]
