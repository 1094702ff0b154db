from __future__ import annotations

import io

from rich.console import Console

from hfexport_bot.reporting.progress import Progress
from hfexport_bot.schema import CaseFinished, CaseId, Component, Fatal, Outcome, OutcomeKind, Ready, StageBegan

CASE = CaseId.parse("bert/BertModel/onnx/dynamic/forward")
PASS = Outcome(kind=OutcomeKind.PASS, seconds=3.0, components=(Component(name="model", max_abs=3e-7),))
ERROR = Outcome(kind=OutcomeKind.ERROR, stage="trace", message="::error::x", seconds=12.0)


def test_a_log_gets_one_plain_line_for_each_finished_case() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, width=40), 3) as progress:
        progress.event("head", Ready())
        progress.event("head", StageBegan(id=CASE, stage="trace"))
        progress.event("head", CaseFinished(id=CASE, outcome=PASS))
        progress.event("base", CaseFinished(id=CASE, outcome=ERROR))
    assert stream.getvalue() == (
        "head: runner ready\n"
        "[1/3] head bert/BertModel/onnx/dynamic/forward: pass 3e-7, 3.0s\n"
        "[2/3] base bert/BertModel/onnx/dynamic/forward: error at trace, 12s\n"
    )


def test_untrusted_text_gives_no_commands_and_no_controls() -> None:
    stream = io.StringIO()
    hostile = Outcome(kind=OutcomeKind.ERROR, stage="x\n::add-mask::y\x1b[2J")
    with Progress(Console(file=stream, width=20), 3) as progress:
        progress.event("head", CaseFinished(id=CASE, outcome=hostile))
        progress.event("head", Fatal(message="a\n::error::b\n##[add-mask]c"))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line or "\x1b" in line]


def test_a_terminal_shows_what_runs_and_for_how_long() -> None:
    stream = io.StringIO()
    now = [100.0]
    console = Console(file=stream, width=100, force_terminal=True, color_system=None)
    with Progress(console, 3, clock=lambda: now[0]) as progress:
        progress.event("head", StageBegan(id=CASE, stage="trace"))
        now[0] = 107.5
        progress.event("head", StageBegan(id=CASE, stage="lower", component="decode"))
        shown = progress._render().plain
        progress.event("head", CaseFinished(id=CASE, outcome=PASS))
        after = progress._render().plain
    assert shown == "0 of 3 done\n  head bert/BertModel/onnx/dynamic/forward: decode lower, 7.5s"
    assert after == "1 of 3 done"
    assert "[1/3] head bert/BertModel/onnx/dynamic/forward: pass 3e-7, 3.0s" in stream.getvalue()


def test_later_runs_say_what_they_are() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, width=40), 2, "again") as progress:
        progress.event("head", CaseFinished(id=CASE, outcome=PASS))
        assert progress._render().plain == "again, 1 of 2 done"
    assert stream.getvalue() == "[1/2] again, head bert/BertModel/onnx/dynamic/forward: pass 3e-7, 3.0s\n"


def test_many_running_cases_are_counted() -> None:
    progress = Progress(Console(file=io.StringIO()), 3)
    for number in range(12):
        case = CASE.model_copy(update={"class_name": f"M{number}"})
        progress.event("head", StageBegan(id=case, stage="trace"))
    lines = progress._render().plain.splitlines()
    assert len(lines) == 1 + 8 + 1
    assert lines[-1] == "  and 4 more"
