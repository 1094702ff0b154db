"""What the commands do, from inputs to a report: the only place where all parts meet. A module a command."""

from hfexport_bot.commands.census import survey_models
from hfexport_bot.commands.check import check_models
from hfexport_bot.commands.compare import compare_revisions
from hfexport_bot.commands.detect import detect_affected
from hfexport_bot.commands.finished import Finished

__all__ = ["Finished", "check_models", "compare_revisions", "detect_affected", "survey_models"]
