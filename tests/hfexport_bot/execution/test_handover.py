"""Only what was asked for leaves a runner's home, and only as regular files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hfexport_bot.execution.handover import Handover
from hfexport_bot.schema import (
    Backend,
    CaseFinished,
    CaseId,
    CaseRequest,
    Layout,
    Outcome,
    OutcomeKind,
    RunnerSetup,
    StageBegan,
)

CASE = CaseId(model="tiny", class_name="A", backend=Backend.ONNX)
OTHER = CaseId(model="tiny", class_name="B", backend=Backend.ONNX)
LOG = "tiny--A--onnx--dynamic--forward.log"


class Places:
    """A runner's home, the user's folders, and what is between them."""

    def __init__(self, folder: Path) -> None:
        self.home, self.logs, self.kept, self.exchange = (folder / name for name in ("h", "l", "k", "e"))
        for place in (self.home, self.logs, self.exchange):
            place.mkdir()
        setup = RunnerSetup(layout=Layout.INSTALLED, log_dir=str(self.logs), keep=str(self.kept))
        self.handover = Handover(self.home, setup)
        eager = str(self.exchange / "0.safetensors")
        (self.request,) = self.handover.requests([CaseRequest(id=CASE, module="m", eager_to=eager)])
        self.log = Path(str(self.handover.setup.log_dir)) / LOG

    def stage(self, id_: CaseId = CASE) -> None:
        self.handover.take(StageBegan(id=id_, stage="trace"))

    def finish(self, id_: CaseId = CASE) -> None:
        self.handover.take(CaseFinished(id=id_, outcome=Outcome(kind=OutcomeKind.PASS)))


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    made = Places(tmp_path)
    yield made
    made.handover.close()


def test_a_runner_is_told_places_in_its_home(places: Places) -> None:
    told = [places.handover.setup.log_dir, places.handover.setup.keep, places.request.eager_to]
    assert [str(Path(str(each)).relative_to(places.home)) for each in told] == ["logs", "kept", "eager/0.safetensors"]


def test_without_places_nothing_is_told(tmp_path: Path) -> None:
    handover = Handover(tmp_path, RunnerSetup(layout=Layout.INSTALLED))
    (request,) = handover.requests([CaseRequest(id=CASE, module="m")])
    assert (handover.setup.log_dir, handover.setup.keep, request.eager_to) == (None, None, None)
    handover.close()


def test_a_log_comes_as_it_grows_and_anew_when_it_was_cut(places: Places) -> None:
    copy = places.logs / LOG
    for written, expected in (("one\n", "one\n"), ("one\ntwo\n", "one\ntwo\n"), ("3\n", "3\n")):
        places.log.write_text(written)
        places.stage()
        assert copy.read_text() == expected
    places.log.write_text("3\nend\n")
    places.finish()
    assert copy.read_text() == "3\nend\n"
    places.handover.requests([CaseRequest(id=CASE, module="m")])  # it is run again
    places.log.write_text("another, longer log\n")
    places.stage()
    assert copy.read_text() == "another, longer log\n"


def test_the_log_of_a_case_that_never_ended_comes_at_the_end(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.log.write_text("one\n")
    places.stage()
    places.log.write_text("one\nlast words\n")
    places.handover.close()
    assert (places.logs / LOG).read_text() == "one\nlast words\n"


def test_logs_of_cases_that_nobody_asked_stay(places: Places) -> None:
    (places.log.parent / OTHER.log_name).write_text("x")
    places.stage(OTHER)
    places.finish(OTHER)
    assert list(places.logs.iterdir()) == []


def test_no_link_no_pipe_and_no_folder_comes_out(places: Places, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    places.log.symlink_to(tmp_path / "secret")
    places.stage()
    places.log.unlink()
    os.mkfifo(places.log)
    places.stage()
    places.log.unlink()
    places.log.mkdir()
    Path(str(places.request.eager_to)).symlink_to(tmp_path / "secret")
    places.finish()
    assert list(places.logs.iterdir()) == []
    assert list(places.exchange.iterdir()) == []


def test_no_place_of_the_users_is_written_through_a_link(places: Places, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (places.logs / LOG).symlink_to(tmp_path / "theirs")
    places.log.write_text("x")
    places.stage()
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_place_that_is_swapped_leads_nowhere(places: Places, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / LOG).write_text("secret")
    places.log.parent.rename(places.home / "moved")
    places.log.parent.symlink_to(tmp_path / "secrets")
    places.stage()
    assert list(places.logs.iterdir()) == []


def test_what_eager_ran_on_comes_when_the_case_ends(places: Places) -> None:
    Path(str(places.request.eager_to)).write_bytes(b"tensors")
    places.stage()
    assert list(places.exchange.iterdir()) == []
    places.finish()
    (moved,) = places.exchange.iterdir()
    assert (moved.name, moved.read_bytes(), moved.stat().st_uid) == ("0.safetensors", b"tensors", os.geteuid())
    assert moved.stat().st_mode & 0o777 == 0o644


def test_what_stages_made_comes_at_the_end(tmp_path: Path) -> None:
    places = Places(tmp_path)
    kept = Path(str(places.handover.setup.keep))
    (kept / "model").mkdir()
    (kept / "inputs.safetensors").write_text("inputs")
    (kept / "model" / "artifact.json").write_text("{}")
    (kept / "model" / "link").symlink_to("/etc/passwd")
    (kept / "elsewhere").symlink_to("/etc")
    places.handover.close()
    found = sorted(str(path.relative_to(places.kept)) for path in places.kept.rglob("*"))
    assert found == ["inputs.safetensors", "model", "model/artifact.json"]
    assert (places.kept / "model" / "artifact.json").read_text() == "{}"
