"""Reports as a whole: a folder a case, with what both revisions came to and the Markdown that it makes.

``base.json`` and ``head.json`` hold outcomes by case id; null is a class that is there and has no outcome. Without
``base.json`` it is a check. Optional are ``again.json``, the outcomes of further runs of a case by side,
``blames.json``, the line that each case is blamed on, and ``about.json``, fields of the report and ``accepted`` of the
settings.
``make golden`` writes every ``expected.md`` anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.execution.reruns import Tries
from hfexport_bot.plan import PlannedCase
from hfexport_bot.reporting.markdown import render
from hfexport_bot.schema import Blame, CaseId, Outcome, Report, VerdictKind
from hfexport_bot.settings import AcceptedEntry
from hfexport_bot.verdicts.compare import make_cases
from hfexport_bot.verdicts.stability import told

FOLDER = Path(__file__).with_name("golden")
FOLDERS = sorted(path.parent for path in FOLDER.glob("*/head.json"))

BASE = {"name": "main", "sha": "b" * 40}
HEAD = {"name": "topic", "sha": "a" * 40}
VERSIONS = {"torch": "2.13.0", "transformers": "5.24.0", "onnxscript": "0.7.2"}


def report_of(folder: Path) -> Report:
    """The report of a case folder, made as a run makes it."""
    base, head, about = (_read(folder / f"{name}.json") for name in ("base", "head", "about"))
    about = about or {}
    accepted = [AcceptedEntry.model_validate(entry) for entry in about.pop("accepted", [])]
    before, after = ({path: _outcome(value) for path, value in (side or {}).items()} for side in (base, head))
    planned = [
        PlannedCase(
            CaseId.parse(path),
            "modeling_tiny.py" if path in before or base is None else None,
            "modeling_tiny.py" if path in after else None,
            "modeling_tiny.py changed",
        )
        for path in dict.fromkeys([*after, *before])
    ]
    sides = [{CaseId.parse(path): each for path, each in side.items() if each} for side in (before, after)]
    tried = {id_: told(_tries(sides, id_, runs)) for id_, runs in _parsed(_read(folder / "again.json")).items()}
    cases = make_cases(planned, None if base is None else sides[0], sides[1], accepted=accepted, tried=tried)
    blames = {id_: Blame.model_validate(each) for id_, each in _parsed(_read(folder / "blames.json")).items()}
    cases = tuple(case.model_copy(update={"blame": blames.get(case.id)}) for case in cases)
    fields = {
        "command": "check" if base is None else "run",
        "base": None if base is None else BASE,
        "head": HEAD,
        "seconds": 112.0,
        "versions": VERSIONS,
        **about,
    }
    return Report.model_validate(fields).model_copy(update={"cases": cases})


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _parsed(again: dict[str, Any] | None) -> dict[CaseId, Any]:
    return {CaseId.parse(path): runs for path, runs in (again or {}).items()}


def _tries(sides: list[dict[CaseId, Outcome]], case: CaseId, runs: dict[str, list[Any]]) -> Tries:
    further = (map(Outcome.model_validate, runs[name]) for name in ("base", "head"))
    base, head = ((side[case], *more) for side, more in zip(sides, further, strict=True))
    return Tries(base, head)


def _outcome(value: dict[str, Any] | None) -> Outcome | None:
    return None if value is None else Outcome.model_validate(value)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_report_is_the_one_that_was_read_and_found_good(folder: Path) -> None:
    expected = (folder / "expected.md").read_text(encoding="utf-8")
    assert render(report_of(folder)) == expected, "if it should look so, run `make golden` and read the difference"


def test_every_verdict_is_there() -> None:
    shown = {case.verdict for folder in FOLDERS for case in report_of(folder).cases}
    assert shown == set(VerdictKind)


if __name__ == "__main__":
    for each in FOLDERS:
        (each / "expected.md").write_text(render(report_of(each)), encoding="utf-8")
    print(f"{len(FOLDERS)} reports written below {FOLDER.relative_to(Path.cwd())}")
