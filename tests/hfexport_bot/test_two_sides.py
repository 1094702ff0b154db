"""A change judged by the real runners: what is the same runs once, eager moves on its own, and chance is flaky."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hfexport_bot.cli import main
from hfexport_bot.schema import Report
from tests.hfexport_bot.small_models import SOUND, repository_of

pytestmark = [pytest.mark.export, pytest.mark.process]

#: Fails while a file is missing. It cannot make one itself: a case writes to its own folder only.
CHANCE = """
        if torch.compiler.is_exporting() and not Path("PLACE").exists():
            print("this time")
            raise ValueError("this time")
        y = torch.tanh(self.inner(x))
"""
CHANCE_LOG = "head/modeling_chance--ChanceModel--dynamo--dynamic--forward.log"


def files(**bodies: str) -> dict[str, str]:
    return repository_of(bodies, dict.fromkeys(bodies, "from pathlib import Path"))


@contextmanager
def touched_after(log: Path, place: Path) -> Iterator[None]:
    """Make ``place`` as soon as the log of a case tells that it has failed."""
    over = threading.Event()

    def wait() -> None:
        while not over.wait(0.05):
            if log.is_file() and "this time" in log.read_text():
                place.touch()
                break

    watching = threading.Thread(target=wait)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def test_a_refactoring_a_move_in_eager_chance_and_a_regression(repository: Any, tmp_path: Path) -> None:
    repository.commit(files(Comment=SOUND, Same=SOUND, Moved=f"{SOUND} + 0.5", Chance=SOUND, Broken=SOUND))
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit(
        files(
            Comment=f"{SOUND}  # as before",
            Same="inside = self.inner(x)\n        y = torch.tanh(inside)",
            Moved=f"{SOUND} + 0.75",
            Chance=CHANCE.replace("PLACE", str(tmp_path / "been")),
            Broken=f"{SOUND} * int(x.sum())",
        )
    )
    names = ("Comment", "Same", "Moved", "Chance", "Broken")
    asked = [word for name in names for word in ("--model", f"modeling_{name.lower()}")]
    out = tmp_path / "out"
    run = ["run", "--repo", str(repository.path), "--base", "main", "--backend", "dynamo", "--out", str(out), "-q"]
    with touched_after(out / "logs" / CHANCE_LOG, tmp_path / "been"):
        assert main([*run, *asked]) == 1
    report = Report.model_validate_json((out / "report.json").read_text())
    cases = {case.id.class_name.removesuffix("Model"): case for case in report.cases}
    assert {name: case.verdict.value for name, case in cases.items()} == {
        "Comment": "unchanged",
        "Same": "unchanged",
        "Moved": "ok",
        "Chance": "flaky",
        "Broken": "regression",
    }
    assert cases["Chance"].details == ("head failed 1 of 3 runs",)
    assert "head failed 3 of 3 runs" in cases["Broken"].details
    eager = {name: case.eager for name, case in cases.items()}
    assert eager["Moved"] is not None
    (output,) = eager["Moved"].moved
    assert (output.name, output.note, output.share, output.max_abs) == ("y", "moved", 1.0, pytest.approx(0.25))
    assert all(
        change is not None and not change.moved for name, change in eager.items() if name not in ("Moved", "Broken")
    )
    assert cases["Same"].base is not None
    assert "load" not in cases["Same"].base.stage_seconds, "base ended after its trace"
    markdown = (out / "report.md").read_text()
    assert "| moved 0.25 |" in markdown
    assert "- `MovedModel`: `y moved by up to 0.25, 100% of it`" in markdown
