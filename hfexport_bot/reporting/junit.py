"""A report as JUnit XML, which CI systems and editors read as test results. Pure."""

from __future__ import annotations

from xml.etree import ElementTree

from hfexport_bot.reporting.failures import blamed_line, error_name, largest_error_line, whose
from hfexport_bot.reporting.reproduce import reproduce
from hfexport_bot.reporting.summary import NEITHER, cell, headline
from hfexport_bot.reporting.text import clean, command_line, one_line
from hfexport_bot.reporting.upstream import what_to_do
from hfexport_bot.schema import CaseReport, Report
from hfexport_bot.verdicts.compare import CLEAN, red_cases

#: XML 1.0 has no way to write these two, not even escaped; `clean` takes the others out.
_NO_XML = str.maketrans("", "", "\ufffe\uffff")


def render_junit(report: Report) -> str:
    """A suite for each model and class, a test for each case. What fails the command is a ``failure``; what was not
    judged, is flaky, or fails on both sides, is ``skipped`` and tells as much; a run that failed as a whole is an
    ``error``."""
    red = {case.id for case in red_cases(report)}
    suites: dict[str, list[ElementTree.Element]] = {}
    for case in report.cases:
        name = f"{case.id.model}/{case.id.class_name}"
        suites.setdefault(name, []).append(_test(name, case, case.id in red, report))
    if report.failure:
        test = ElementTree.Element("testcase", classname="hfexport-bot", name="the run", time="0.000")
        ElementTree.SubElement(test, "error", message=_line(report.failure)).text = _text(report.failure)
        suites["hfexport-bot"] = [test]
    every = [test for tests in suites.values() for test in tests]
    root = ElementTree.Element("testsuites", _counted(every, f"Export check: {headline(report)}"))
    for name, tests in suites.items():
        ElementTree.SubElement(root, "testsuite", _counted(tests, name)).extend(tests)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _test(suite: str, case: CaseReport, red: bool, report: Report) -> ElementTree.Element:
    seconds = f"{max(case.seconds, 0.0):.3f}"
    test = ElementTree.Element("testcase", classname=_line(suite), name=_line(str(case.id)), time=seconds)
    said = _line(f"{case.verdict.value}: {cell(case)}")
    if red:
        failure = ElementTree.SubElement(test, "failure", message=said, type=_line(case.outcome.value))
        failure.text = _text(_told(case, report))
    elif case.outcome not in CLEAN or case.outcome in NEITHER:
        ElementTree.SubElement(test, "skipped", message=said).text = _text(_told(case, report))
    return test


def _told(case: CaseReport, report: Report) -> str:
    """The error, its line, what else is known, and the command that runs the case again. Untrusted text."""
    error, place = error_name(case), blamed_line(case)
    parts = [f"{error}: {case.message}" if error and case.message else case.message or error]
    if place is not None:
        function = f" in {place.function}" if place.function else ""
        parts.append(f"at {place}{function}{whose(case.blame) if case.blame else ''}")
    advice = what_to_do(case, report.versions)
    parts += [
        largest_error_line(case),
        *case.details,
        f"what to do: {advice}" if advice else "",
        f"reproduce: {command_line(reproduce(case.id, report.rerun))}",
    ]
    return "\n".join(part for part in parts if part)


def _counted(tests: list[ElementTree.Element], name: str) -> dict[str, str]:
    def having(kind: str) -> str:
        return str(sum(test.find(kind) is not None for test in tests))

    time = sum(float(test.get("time", "0")) for test in tests)
    return {
        "name": _line(name),
        "tests": str(len(tests)),
        "failures": having("failure"),
        "errors": having("error"),
        "skipped": having("skipped"),
        "time": f"{time:.3f}",
    }


def _line(text: str) -> str:
    return one_line(text, 400).translate(_NO_XML)


def _text(text: str) -> str:
    return clean(text).translate(_NO_XML)
