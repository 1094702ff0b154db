from __future__ import annotations

import io

from rich.console import Console

from hfexport_bot.reporting.markdown import render
from hfexport_bot.reporting.terminal import SHOWN, print_report
from hfexport_bot.schema import Blame, Component, Location, NotRun, ProbeResult, Report


def printed(report: Report, width: int = 100) -> str:
    stream = io.StringIO()
    print_report(report, Console(file=stream, width=width, force_terminal=False))
    return stream.getvalue()


def test_the_upstream_issue_of_a_failure_is_told(run_report: Report) -> None:
    first = run_report.cases[0]
    assert first.head is not None
    message = "argument 'is_causal' must be bool, not SymBool"
    failing = first.model_copy(update={"head": first.head.model_copy(update={"message": message})})
    text = printed(run_report.model_copy(update={"cases": (failing,)}))
    what_to_do = "pass an attention mask, so that is_causal does not depend on a length"
    assert f"    may be pytorch/pytorch#154038 (closed): {what_to_do}" in text.splitlines()


def test_a_run(run_report: Report) -> None:
    text = printed(run_report)
    assert "│ Gelu   │ ✅ 0" in text
    assert (
        "models/modeling_tiny/Branch/onnx/dynamic/forward: regression, error at trace\n"
        "    GuardOnDataDependentSymNode: Could not guard on data-dependent expression Eq(u0, 1)\n"
        "    models/modeling_tiny.py:31 in forward\n"
    ) in text
    assert "Gelu/onnx/dynamic/forward: interface, pass\n    input new: y\n" in text
    assert "not run: file models/modeling_doc.py: only docstrings changed\n" in text
    assert text.endswith(
        "12 cases: 6 pass, 2 parity, 4 error in 1m 52s\n"
        "Export check: 4 regressions in 2 causes · 1 fixed · 1 changed · 1 interface moved · safe to merge: no\n"
    )


def test_the_line_that_is_blamed_and_the_largest_error_are_those_of_the_report_file(run_report: Report) -> None:
    wrong = next(case for case in run_report.cases if case.outcome == "parity")
    blame = Blame(location=Location(file="workarounds.py", line=11, function="halve"), changed=True, suspected=True)
    probes = tuple(
        ProbeResult(name=name, status="parity", max_abs=error) for name, error in (("batch_1", 0.07), ("batch_3", 0.08))
    )
    components = (Component(name="model", max_abs=0.0, probes=probes),)
    report = run_report.model_copy(
        update={"cases": (wrong.model_copy(update={"blame": blame, "components": components}),)}
    )
    lines = [line.strip() for line in printed(report).splitlines()]
    assert "workarounds.py:11 in halve, where what this case ran of the change begins" in lines
    assert "largest error: 0.08, probe batch_3" in lines
    assert "- `largest error: 0.08, probe batch_3`" in render(report).splitlines()
    one = components[0].model_copy(update={"max_abs": None, "probes": probes[:1]})
    alone = wrong.model_copy(update={"components": (one,)})
    assert "largest error" not in printed(run_report.model_copy(update={"cases": (alone,)}))


def test_regressions_come_first_and_quiet_passes_are_left_out(run_report: Report) -> None:
    text = printed(run_report)
    assert text.index("Gelu/executorch/dynamic/forward") < text.index("Broken/dynamo/dynamic/forward")
    assert text.index("Broken/dynamo/dynamic/forward") < text.index("Mended/dynamo/dynamic/forward")
    assert "Gelu/dynamo/dynamic/forward" not in text


def test_blind_spots_are_counted(run_report: Report) -> None:
    first = run_report.cases[0]
    assert first.head is not None
    noted = first.model_copy(update={"head": first.head.model_copy(update={"notes": ("blind to x", "no batch_3")})})
    text = printed(run_report.model_copy(update={"cases": (noted, *run_report.cases[1:])}))
    assert "\n2 blind spots of the checks: see the report\n" in text
    assert "blind spot" not in printed(run_report)


def test_a_check(check_report: Report) -> None:
    text = printed(check_report)
    assert "no-baseline" in text
    assert text.endswith("Export check: 5 of 11 cases pass\n")


def test_no_line_is_a_command_to_githubs_runner(run_report: Report) -> None:
    message = "::add-mask::secret\n::error::x"
    cases = tuple(
        case.model_copy(
            update={"message": message, "details": (message, "##[add-mask]x", "w " * 90 + "::stop-commands::x")}
        )
        for case in run_report.cases
    )
    hostile = run_report.model_copy(
        update={
            "cases": cases,
            "notes": (message,),
            "failure": message,
            "not_run": (NotRun(kind="file", name=message, reason="[red]\x1b[2J[/red]"),),
        }
    )
    for width in (20, 80, 200):
        text = printed(hostile, width)
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::") or "##[" in line]
        assert "\x1b" not in text
    assert "[red][/red]" in printed(hostile)


def test_a_long_report_is_cut_and_says_so(run_report: Report) -> None:
    first = run_report.cases[0]
    cases = tuple(
        first.model_copy(update={"id": first.id.model_copy(update={"class_name": f"M{number}"})})
        for number in range(SHOWN + 5)
    )
    text = printed(run_report.model_copy(update={"cases": cases}))
    assert text.count(": regression, error at trace") == SHOWN
    assert "5 more cases: see the report\n" in text
