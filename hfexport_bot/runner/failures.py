"""From an exception to the outcome of a case: its stage, its lines of code, and a message that may cross."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import exporters
from exporters import StageError
from exporters.stages import Frame, frames_of, is_modeling
from hfexport_bot.runner.checks import said
from hfexport_bot.runner.crash_log import read_crash
from hfexport_bot.runner.sources import HookError
from hfexport_bot.schema import (
    MAX_FRAMES,
    MAX_MESSAGE_CHARS,
    MAX_NAME_CHARS,
    Location,
    Outcome,
    OutcomeKind,
    RunnerSetup,
)


class CaseEnded(Exception):
    """A case is over before it was exported, with an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


def failed(error: BaseException, stage: str, setup: RunnerSetup, component: str = "") -> Outcome:
    """The outcome of an exception in ``stage`` of a component; a `StageError` names its own stage."""
    reason = error
    if isinstance(error, StageError):
        stage, reason = error.stage, error.reason
    return Outcome(
        kind=OutcomeKind.OOM if isinstance(reason, MemoryError) else OutcomeKind.ERROR,
        stage=stage,
        component=component,
        message=clean(said(reason), setup),
        error_type=type(reason).__name__[:MAX_NAME_CHARS],
        **_places(error, setup),
        workarounds=dict(getattr(error, "workarounds", {})),  # those of a foreign exporter that acted before
    )


def died(outcome: Outcome, log: str, setup: RunnerSetup) -> Outcome:
    """The outcome of a process that died, with what its log tells of that: the text, and the lines of code."""
    crash = read_crash(log)
    text = clean(crash.text(lambda file: _is_under_test(file, setup)), setup)
    message = f"{outcome.message}\n{text}".strip()[:MAX_MESSAGE_CHARS]
    return outcome.model_copy(update={"message": message, **_placed(crash.frames, setup)})


def _is_under_test(file: str, setup: RunnerSetup) -> bool:
    return root_of(file, setup) in tree_roots(setup) or is_modeling((file, 0, ""))


def _places(error: BaseException, setup: RunnerSetup) -> dict[str, Any]:
    """Where an error was raised, see `_placed`."""
    if isinstance(error, SyntaxError) and error.filename:
        return _placed(frames_of(error), setup, [(error.filename, error.lineno or 0, "")])
    return _placed(frames_of(error), setup, hook=isinstance(error, HookError))


def _placed(
    known: Sequence[Frame], setup: RunnerSetup, modeling: Sequence[Frame] = (), hook: bool = False
) -> dict[str, Any]:
    """``location``, the innermost modeling line of some frames, or for the tree's own files, unless a ``hook`` failed,
    the innermost line there, and the ``frames`` of code under test on the way to it."""
    own = [f for f in known if root_of(f[0], setup) in tree_roots(setup)]
    modeling = modeling or [f for f in known if is_modeling(f)]
    found = modeling or ([] if hook else own)
    if not found:
        return {}
    places = {f: _place(f, setup) for f in (*found, *known)}
    frames = [places[f] for f in known if f in own or f in modeling or places[f].file.startswith("transformers/")]
    return {"location": places[found[0]], "frames": tuple(dict.fromkeys(frames))[:MAX_FRAMES]}


def _place(frame: Frame, setup: RunnerSetup) -> Location:
    file = frame[0].removeprefix(f"{root_of(frame[0], setup)}/")
    return Location(file=file[-MAX_NAME_CHARS:], line=frame[1], function=frame[2][:MAX_NAME_CHARS])


def tree_roots(setup: RunnerSetup) -> set[str]:
    """The tree's folder as it was named and as Python names it, without links."""
    return {str(Path(setup.tree)), str(Path(setup.tree).resolve())} if setup.tree else set()


def _roots(setup: RunnerSetup) -> list[str]:
    """Folders of this machine that files may lie in, inner ones first: an environment can lie inside the tree."""
    paths = sysconfig.get_paths()
    ours = str(Path(exporters.__file__).parents[1])
    roots = {paths["purelib"], paths["platlib"], paths["stdlib"], ours, *setup.search_path} | tree_roots(setup)
    return sorted(roots, key=len, reverse=True)


def root_of(file: str, setup: RunnerSetup) -> str | None:
    """The innermost folder of `_roots` that a file lies in."""
    return next((root for root in _roots(setup) if file.startswith(f"{root}/")), None)


def clean(text: str, setup: RunnerSetup) -> str:
    """A message without this machine's folders, at a length and in characters that cross to the trusted side."""
    text = text.encode(errors="replace").decode()
    for root in _roots(setup):
        text = re.sub(rf"{re.escape(root)}(/|(?![\w.-]))", lambda found: "" if found[1] else ".", text)
    for tree in map(Path, tree_roots(setup)):
        if tree.parent.name.startswith("hfexport-tree-"):  # of a revision; torch names files without what is above
            text = text.replace(f"{tree.parent.name}/{tree.name}/", "")
    if len(text) > MAX_MESSAGE_CHARS:
        half = MAX_MESSAGE_CHARS // 2 - 20
        text = f"{text[:half]}\n[... cut ...]\n{text[-half:]}"
    return text
