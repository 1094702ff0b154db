"""From the outcomes of two revisions to the cases of a report. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hfexport_bot.execution.one_source import differ
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import (
    Blame,
    CaseId,
    CaseReport,
    EagerChange,
    Expected,
    Outcome,
    OutcomeKind,
    Report,
    Tried,
    UnavailableCause,
    VerdictKind,
)
from hfexport_bot.settings import AcceptedEntry, DriftSettings
from hfexport_bot.verdicts.expectations import NONE_EXPECTED, is_accepted, must_pass, said_of
from hfexport_bot.verdicts.likeness import alike, told_of, worse
from hfexport_bot.verdicts.moved import DEFAULT_DRIFT, drifts, interface_changes
from hfexport_bot.verdicts.signatures import signature
from hfexport_bot.verdicts.stability import how_often, is_stable
from hfexport_bot.verdicts.table import ABSENT, NOT_RUN, Facts, Missing, Side, judge

#: Inputs that a detail names.
_FED_SHOWN = 8
#: Outputs and probes that are told to be worse than before.
_WORSE_SHOWN = 3

#: What stands in for a head outcome that never came, so that no planned case can vanish from a report.
NO_RESULT = Outcome(kind=OutcomeKind.CRASH, message="The runner gave no result for this case.")

#: Outcomes that ``hfexport-bot check`` lets through: a skip is the author's decision.
CLEAN = frozenset({OutcomeKind.PASS, OutcomeKind.SKIPPED})


def make_cases(
    planned: Sequence[PlannedCase],
    base: Mapping[CaseId, Outcome] | None,
    head: Mapping[CaseId, Outcome],
    accepted: Sequence[AcceptedEntry] = (),
    drift: DriftSettings = DEFAULT_DRIFT,
    tried: Mapping[CaseId, Tried] | None = None,
    eager: Mapping[CaseId, EagerChange] | None = None,
    expected_of: Callable[[CaseId], Expected | None] = NONE_EXPECTED.of,
) -> tuple[CaseReport, ...]:
    """Compare both sides of every planned case, in the order of the plan.

    ``base`` is None when there is no baseline at all (``check``). A case whose class exists on base but has
    no outcome there is ``no-baseline``; one that has none on head counts as a crash. ``accepted`` are the
    entries in force today, see :func:`hfexport_bot.settings.in_force`; ``drift`` says what is one;
    ``tried`` are all runs of the cases that were run again, ``eager`` tells how eager's outputs moved. ``expected_of``
    finds the entry, of either side's own, by which a case is expected to fail; accepted findings are among them.
    """
    again, moved = tried or {}, eager or {}
    cases = [
        _case(case, base, head, _accepting(case.id, accepted), drift, again.get(case.id), expected_of(case.id))
        for case in planned
    ]
    return tuple(case.model_copy(update={"eager": moved.get(case.id) or _same_eager(case)}) for case in cases)


def _case(
    case: PlannedCase,
    base: Mapping[CaseId, Outcome] | None,
    head: Mapping[CaseId, Outcome],
    entry: AcceptedEntry | None,
    drift: DriftSettings,
    tried: Tried | None,
    expected: Expected | None,
) -> CaseReport:
    before = _base_side(case, base)
    after: Side = ABSENT if case.head_module is None else head.get(case.id, NO_RESULT)
    old = None if isinstance(before, Missing) else before
    new = None if isinstance(after, Missing) else after
    shown = new or old or NO_RESULT  # a removed case that base has no outcome of has nothing to show

    interface: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    same = same_graph = False
    if old and new:
        same = alike(told_of(old), told_of(new), drift)
        same_graph = _graphs(old) is not None and _graphs(old) == _graphs(new)
        if old.kind is OutcomeKind.PASS and new.components and not differ(old, new):
            interface = interface_changes(old, new)  # of what fails on head it may tell why
            drifted = drifts(old, new, drift) if new.kind is OutcomeKind.PASS else ()

    facts = Facts(
        accepted=is_accepted(entry is not None, expected),
        must_pass=must_pass(expected, new),
        stable=tried is None or is_stable(tried, drift),
        interface_moved=bool(interface),
        drifted=bool(drifted),
        same_graph=same_graph,
        alike=same,
    )
    verdict = judge(before, after, facts)
    details = [*interface, *drifted]
    if tried is not None:
        details += how_often(tried)
    if old and (verdict is VerdictKind.CHANGED or (verdict is VerdictKind.FLAKY and old.kind is not OutcomeKind.PASS)):
        details.append(f"before: {describe(old)}")
    if old and new and verdict is VerdictKind.CHANGED:
        details += itertools.islice(worse(told_of(old), told_of(new), drift), _WORSE_SHOWN)
    if verdict is VerdictKind.REGRESSION and old and new and new.cause is UnavailableCause.UNKNOWN_INPUTS:
        details += _unfed(old)
    if expected and not (entry and expected.change == "in force"):
        details += said_of(expected, new)
    elif entry and judge(before, after, Facts(alike=same)) in (VerdictKind.REGRESSION, VerdictKind.CHANGED):
        details.append(_why_accepted(entry))
    return CaseReport(
        id=case.id,
        verdict=verdict,
        outcome=shown.kind,
        stage=shown.stage,
        message=shown.message,
        seconds=shown.seconds,
        components=shown.components,
        signature=signature(shown),
        reason=case.reason,
        base=old,
        head=new,
        details=tuple(details),
        expected=expected,
        tried=tried,
    )


def _unfed(base: Outcome) -> Iterator[str]:
    """What to do about inputs that nothing can guess any more."""
    if base.fed:
        yield f"base was fed {', '.join(base.fed[:_FED_SHOWN])}: an input that is new or renamed moves the interface"
    yield "if it is meant so, give its values by a function that `cases` in the settings names"


def _same_eager(case: CaseReport) -> EagerChange | None:
    """No change, where both sides had the same weights, inputs and numbers; None where that is unknown."""
    prints = [side.fingerprint for side in (case.base, case.head) if side is not None and side.fingerprint is not None]
    return EagerChange() if len(prints) == 2 and prints[0].eager == prints[1].eager else None


def _graphs(outcome: Outcome) -> tuple[str, ...] | None:
    """The graphs an outcome came of, None where that is unknown."""
    return outcome.fingerprint.graphs or None if outcome.fingerprint else None


def _base_side(case: PlannedCase, base: Mapping[CaseId, Outcome] | None) -> Side:
    if base is None:
        return NOT_RUN
    if case.base_module is None:
        return ABSENT
    return base.get(case.id, NOT_RUN)


def _accepting(case_id: CaseId, accepted: Sequence[AcceptedEntry]) -> AcceptedEntry | None:
    return next((entry for entry in accepted if fnmatchcase(str(case_id), entry.id)), None)


def describe(outcome: Outcome) -> str:
    """One line on a failing outcome: ``error at trace: Could not guard on ...``, ``error at decode trace: ...``."""
    where = f" at {place(outcome)}" if outcome.stage else ""
    message = first_line(outcome.message)
    return f"{outcome.kind.value}{where}" + (f": {message}" if message else "")


def place(outcome: Outcome) -> str:
    """The stage with the component it belongs to, where there are several."""
    return f"{outcome.component} {outcome.stage}".strip()


def first_line(message: str) -> str:
    """The first line of a message that says anything, stripped."""
    return next((line.strip() for line in message.splitlines() if line.strip()), "")


@dataclass(frozen=True)
class Counts:
    """A report in numbers. ``causes`` counts those of the regressions, see `cause_of`."""

    cases: int
    classes: int
    passing: int
    causes: int
    verdicts: Mapping[VerdictKind, int]
    outcomes: Mapping[OutcomeKind, int]


def counts(report: Report) -> Counts:
    """Count a report's cases, classes, verdicts and outcomes."""
    regressions = [case for case in report.cases if case.verdict is VerdictKind.REGRESSION]
    outcomes = Counter(case.outcome for case in report.cases)
    return Counts(
        cases=len(report.cases),
        classes=len({(case.id.model, case.id.class_name) for case in report.cases}),
        passing=outcomes[OutcomeKind.PASS],
        causes=len({cause_of(case) for case in regressions}),
        verdicts=Counter(case.verdict for case in report.cases),
        outcomes=outcomes,
    )


#: Stages of a case that are alike on every backend.
_BEFORE_BACKENDS = ("source", "eager")


def cause_of(case: CaseReport) -> tuple[str, str, str]:
    """What cases with one cause have in common: their signature. An error names its place in the code, so
    that one on three backends is one, as what ends before any backend has its turn; wrong numbers, crashes and
    limits in later stages don't, so that each backend has its own. What is blamed on the change has the place there
    too: two that look alike and come of two functions have two causes."""
    placed = case.outcome in {OutcomeKind.ERROR, OutcomeKind.UNAVAILABLE, OutcomeKind.SKIPPED}
    placed = placed or case.stage in _BEFORE_BACKENDS
    return case.signature or str(case.id), "" if placed else case.id.backend.value, _changed_place(case.blame)


def _changed_place(blame: Blame | None) -> str:
    if blame is None or not blame.changed:
        return ""
    # Of a suspect the line is the first of a function; forward is one of every class of a file.
    return f"{blame.location.file}:{blame.location.line if blame.suspected else blame.location.function}"


def failing(report: Report) -> bool:
    """Whether the command should fail: when the run itself did, or any case is red."""
    return bool(report.failure or red_cases(report))


def red_cases(report: Report) -> tuple[CaseReport, ...]:
    """The cases that fail the command: of ``run`` those with a verdict in ``fail_on``, of ``check`` those that neither
    pass nor are skipped."""
    if report.command == "check":
        return tuple(case for case in report.cases if case.outcome not in CLEAN)
    return tuple(case for case in report.cases if case.verdict in report.fail_on)


def cases_to_act_on(report: Report) -> tuple[CaseReport, ...]:
    """The red cases, then what a change's author should look at all the same: an artifact's interface that moved, and
    new cases that do not pass."""
    red = red_cases(report)
    ids = {case.id for case in red}
    return (*red, *(case for case in report.cases if case.id not in ids and _is_worth_a_look(case)))


def is_accepted_change(case: CaseReport) -> bool:
    """Whether a case regressed, or fails otherwise than on base, and an entry of base's settings or an order accepts
    it."""
    if case.verdict is not VerdictKind.KNOWN or case.base is None or case.head is None:
        return False
    return not alike(told_of(case.base), told_of(case.head))


def accept(report: Report, entries: Sequence[AcceptedEntry]) -> Report:
    """The report with the regressions that ``entries`` are about accepted, as those of the settings are. Raises
    ``ValueError`` for an entry that is about none, since it would change nothing."""
    regressions = [case for case in report.cases if case.verdict is VerdictKind.REGRESSION]
    for entry in entries:
        if not any(_accepting(case.id, (entry,)) for case in regressions):
            raise ValueError(f"no regression of this report has an id like {entry.id}")
    return report.model_copy(update={"cases": tuple(_accepted(case, entries) for case in report.cases)})


def _accepted(case: CaseReport, entries: Sequence[AcceptedEntry]) -> CaseReport:
    entry = _accepting(case.id, entries)
    if case.verdict is not VerdictKind.REGRESSION or entry is None:
        return case
    details = (*case.details, _why_accepted(entry))
    return case.model_copy(update={"verdict": VerdictKind.KNOWN, "details": details})


def _why_accepted(entry: AcceptedEntry) -> str:
    until = f" until {entry.expires}" if entry.expires else ""
    return f"accepted{until}: {entry.reason}"


def _is_worth_a_look(case: CaseReport) -> bool:
    new = case.verdict is VerdictKind.NEW and case.outcome not in CLEAN
    return new or case.verdict is VerdictKind.INTERFACE
