"""Who exports: ``own`` is this project's ``exporters``, ``repo`` the revision's own ``transformers.exporters``."""

from __future__ import annotations

from hfexport_bot.runner.engines.own import export_generation_own, export_own
from hfexport_bot.runner.engines.package import NoEngine
from hfexport_bot.runner.engines.repo import CannotDrive, export_generation_repo, export_repo

__all__ = [
    "CannotDrive",
    "NoEngine",
    "export_generation_own",
    "export_generation_repo",
    "export_own",
    "export_repo",
]
