"""What the commands do, from inputs to a report: the only place where all parts meet. A module a command."""

from hfexport_bot.commands.census import survey_models
from hfexport_bot.commands.check import check_models, plan_sweep
from hfexport_bot.commands.compare import compare_revisions, plan_change
from hfexport_bot.commands.detect import detect_affected
from hfexport_bot.commands.finished import Finished
from hfexport_bot.commands.sharded import merge_shards, run_shard

__all__ = [
    "Finished",
    "check_models",
    "compare_revisions",
    "detect_affected",
    "merge_shards",
    "plan_change",
    "plan_sweep",
    "run_shard",
    "survey_models",
]
