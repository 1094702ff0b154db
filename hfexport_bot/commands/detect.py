"""``hfexport-bot detect``: what a change affects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.expectations import with_expectations
from hfexport_bot.changes.exporters import recorded_hits
from hfexport_bot.changes.git import Git
from hfexport_bot.changes.layout import detect_layout
from hfexport_bot.changes.named import Asked
from hfexport_bot.changes.recorded import recorded_builds
from hfexport_bot.changes.revisions import Pair, find_pair, listed_changes
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import why_no_model
from hfexport_bot.changes.tree import GitTree
from hfexport_bot.plan import Engines, engines_of
from hfexport_bot.reporting.reading import read_reports
from hfexport_bot.schema import Engine, Layout, Report
from hfexport_bot.settings import SETTINGS_PATH, Overrides, combine, concerning, read_both


def detect_affected(
    repo: Path,
    base: str,
    head: str,
    records: Sequence[Path] = (),
    files: Path | None = None,
    settings_file: str = SETTINGS_PATH,
) -> Selection:
    """What a change between the merge base of two revisions and ``head`` affects; nothing is run.

    Raises `UsageError` for a folder that is no repository, an unknown revision and wrong settings.
    """
    git = Git(repo)
    pair = find_pair(git, base, head)
    base_tree, head_tree = GitTree(git, pair.base), GitTree(git, pair.head)
    names = f"base, {pair.base[:12]}", f"head, {pair.head[:12]}"
    both = read_both(base_tree.read, head_tree.read, names, settings_file)
    settings = combine(both.base, both.head, Overrides())
    layout = detect_layout(head_tree)
    engines = engines_of(settings, layout, base_tree, head_tree)
    reports = tuple(read_reports("--record", records))
    found = select_changes(git, pair, layout, engines, reports, files, concerning(both, settings_file))
    return replace(found, notes=(*both.notes, *found.notes))


def select_changes(
    git: Git, pair: Pair, layout: Layout, engines: Engines, reports: Sequence[Report], files: Path | None, asked: Asked
) -> Selection:
    """What a change affects; ``asked`` is what the settings have to do with it."""
    runs_theirs = Engine.REPO in (*engines.base, *engines.head)
    recorded = recorded_hits(reports)
    changes, notes = listed_changes(git, pair, files)
    trees = GitTree(git, pair.base), GitTree(git, pair.head)
    asked = with_expectations(asked, *trees) if runs_theirs and layout is Layout.TRANSFORMERS else asked
    found = select(changes, *trees, layout, recorded if runs_theirs else None, asked, recorded_builds(reports))
    lacking = "" if found.affected else why_no_model(reversed(trees), layout)
    return replace(found, notes=(*pair.notes, *notes, *([lacking] if lacking else ())))
