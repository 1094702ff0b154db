"""Reports for the tests of publishing."""

from __future__ import annotations

from hfexport_bot.schema import (
    CaseId,
    CaseReport,
    Component,
    Location,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    VerdictKind,
)

PASS = Outcome(kind=OutcomeKind.PASS, components=(Component(name="model", max_abs=1e-7),), seconds=1.0)


def broken(
    line: int = 31, file: str = "models/modeling_tiny.py", message: str = "Could not guard on Eq(u0, 1)"
) -> Outcome:
    """An outcome that fails at a place."""
    place = Location(file=file, line=line, function="forward")
    return Outcome(kind=OutcomeKind.ERROR, stage="trace", error_type="GuardError", message=message, location=place)


def case(
    name: str, verdict: VerdictKind, head: Outcome, base: Outcome | None = PASS, signature: str = ""
) -> CaseReport:
    """One case of a report."""
    return CaseReport(
        id=CaseId.parse(f"tiny/{name}/onnx/dynamic/forward"),
        verdict=verdict,
        outcome=head.kind,
        stage=head.stage,
        message=head.message,
        seconds=head.seconds,
        components=head.components,
        signature=signature or name,
        base=base,
        head=head,
    )


def report(*cases: CaseReport, failure: str = "", seconds: float = 60.0) -> Report:
    """A report of a run."""
    return Report(
        command="run",
        base=Revision(name="main", sha="c" * 40),
        head=Revision(name="topic", sha="b" * 40),
        cases=cases,
        failure=failure,
        seconds=seconds,
    )


def clean() -> Report:
    """Nothing to act on."""
    return report(case("Calm", VerdictKind.OK, PASS))


def red(count: int = 1) -> Report:
    """Regressions, each with a cause and a line of its own."""
    message = "Broken{}: could not guard on Eq(u0, 1)"
    heads = [broken(line=n + 1, message=message.format(n)) for n in range(count)]
    return report(*(case(f"Broken{n}", VerdictKind.REGRESSION, head) for n, head in enumerate(heads)))
