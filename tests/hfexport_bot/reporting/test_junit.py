"""A report as other tools read test results."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from hfexport_bot.reporting.junit import render_junit
from hfexport_bot.schema import Blame, Component, Location, ProbeResult, Report, Revision


def read(report: Report) -> ElementTree.Element:
    return ElementTree.fromstring(render_junit(report))


def by_name(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    return {test.get("name", ""): test for test in root.iter("testcase")}


def test_every_case_is_a_test_and_only_what_is_red_fails(run_report: Report) -> None:
    root = read(run_report)
    found = by_name(root)
    assert len(found) == len(run_report.cases) == 12
    failed = [name for name, test in found.items() if test.find("failure") is not None]
    assert failed == [
        "models/modeling_tiny/Branch/dynamo/dynamic/forward",
        "models/modeling_tiny/Branch/onnx/dynamic/forward",
        "models/modeling_tiny/Branch/executorch/dynamic/forward",
        "models/modeling_tiny/Gelu/executorch/dynamic/forward",
    ]
    assert root.attrib["tests"] == "12"
    assert root.attrib["failures"] == "4"
    assert root.attrib["name"].startswith("Export check: 4 regressions in 2 causes")


def test_a_failure_says_what_and_how_to_see_it_again(run_report: Report) -> None:
    failure = by_name(read(run_report))["models/modeling_tiny/Branch/onnx/dynamic/forward"].find("failure")
    assert failure is not None
    assert failure.attrib == {"message": "regression: ❌ trace", "type": "error"}
    text = (failure.text or "").splitlines()
    assert text[0] == "GuardOnDataDependentSymNode: Could not guard on data-dependent expression Eq(u0, 1)"
    assert "at models/modeling_tiny.py:31 in forward" in text
    assert text[-1] == "reproduce: hfexport-bot reproduce models/modeling_tiny/Branch/onnx/dynamic/forward"


def test_what_fails_on_both_sides_is_skipped_with_its_reason_and_its_error(run_report: Report) -> None:
    skipped = by_name(read(run_report))["models/modeling_tiny/Broken/dynamo/dynamic/forward"].find("skipped")
    assert skipped is not None
    assert skipped.attrib == {"message": "known: ❌ trace · known"}
    text = (skipped.text or "").splitlines()
    assert text[0] == "GuardOnDataDependentSymNode: Could not guard on data-dependent expression Eq(u0, 1)"
    assert text[-1] == "reproduce: hfexport-bot reproduce models/modeling_tiny/Broken/dynamo/dynamic/forward"


def test_a_line_of_the_change_is_told_as_one(run_report: Report) -> None:
    blame = Blame(location=Location(file="zoo/modeling_a.py", line=7, function="forward"), changed=True)
    first = run_report.cases[0].model_copy(update={"blame": blame})
    failure = by_name(read(run_report.model_copy(update={"cases": (first,)})))[str(first.id)].find("failure")
    assert failure is not None
    assert "at zoo/modeling_a.py:7 in forward, a line of this change" in (failure.text or "").splitlines()


def test_wrong_numbers_tell_the_largest_error_of_all_probes(run_report: Report) -> None:
    probes = (
        ProbeResult(name="batch_1", status="parity", max_abs=0.0691, message="differs"),
        ProbeResult(name="batch_3", status="parity", max_abs=0.082, message="differs"),
    )
    first = next(case for case in run_report.cases if case.outcome == "parity")
    components = (Component(name="model", max_abs=1e-7, probes=probes),)
    first = first.model_copy(update={"components": components, "message": "probe batch_1: by up to 0.0691"})
    failure = by_name(read(run_report.model_copy(update={"cases": (first,)})))[str(first.id)].find("failure")
    assert failure is not None
    assert (failure.text or "").splitlines()[:2] == [
        "probe batch_1: by up to 0.0691",
        "largest error: 0.082, probe batch_3",
    ]


def test_a_suite_is_a_class_with_its_own_counts(run_report: Report) -> None:
    suites = {suite.get("name"): suite.attrib for suite in read(run_report).iter("testsuite")}
    assert list(suites)[:2] == ["models/modeling_tiny/Branch", "models/modeling_tiny/Gelu"]
    gelu = suites["models/modeling_tiny/Gelu"]
    assert (gelu["tests"], gelu["failures"], gelu["errors"], gelu["skipped"]) == ("3", "1", "0", "0")


def test_of_a_check_every_case_that_does_not_pass_fails(check_report: Report) -> None:
    root = read(check_report)
    assert int(root.attrib["failures"]) == sum(case.outcome != "pass" for case in check_report.cases)


def test_a_run_that_failed_is_an_error() -> None:
    report = Report(command="run", head=Revision(name="topic"), failure="transformers does not import")
    error = by_name(read(report))["the run"].find("error")
    assert error is not None
    assert error.attrib["message"] == "transformers does not import"


def test_nothing_to_run_is_an_empty_file() -> None:
    assert read(Report(command="run", head=Revision(name="topic"))).attrib["tests"] == "0"


@pytest.mark.parametrize(
    "text", ["]]></failure><x/>", "\x00\x08\x1b[31m", "\ufffe\uffff", "\ud800", "\"><&'", "\u2028"]
)
def test_no_text_breaks_the_file(run_report: Report, text: str) -> None:
    cases = tuple(case.model_copy(update={"message": text, "details": (text,)}) for case in run_report.cases)
    report = run_report.model_copy(update={"cases": cases, "failure": text + "x"})
    assert len(by_name(read(report))) == 13
