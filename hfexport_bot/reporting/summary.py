"""What every rendering says of a report in the same words: cells, causes, counts. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hfexport_bot.changes.selection import is_harmless
from hfexport_bot.schema import (
    COMPONENTS,
    INTERRUPTED,
    STAGES,
    Backend,
    Blame,
    CaseReport,
    Engine,
    NotRun,
    OutcomeKind,
    Report,
    Shapes,
    Source,
    Task,
    Variant,
    VerdictKind,
    largest,
)
from hfexport_bot.verdicts.compare import CLEAN, Counts, cause_of, counts, failing, is_accepted_change, red_cases

BACKENDS = {Backend.DYNAMO: "torch.export", Backend.ONNX: "ONNX", Backend.EXECUTORCH: "ExecuTorch"}

STAGE_NAMES = frozenset(stage for stages in STAGES.values() for stage in stages)

#: Changed symbols and kinds that a sample misses and that are named.
_MISSED_SHOWN = 10
_NOT_BUILT = (OutcomeKind.UNAVAILABLE, OutcomeKind.UNSUPPORTED)

#: How many symbols or files an entry of what was not run names, and how many files have one each.
NAMED = 5
FEW_FILES = 3

#: A package as a report may name it in its title, alone or with a version, and how many it names.
_PLAIN_WISH = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*( [0-9]+(\.[0-9a-z]+)*)?", re.ASCII)
_WISHES_SHOWN = 3

#: Outcomes without a judgement on the export.
NEITHER = frozenset({OutcomeKind.SKIPPED, OutcomeKind.UNAVAILABLE, OutcomeKind.NONDETERMINISTIC})

#: Verdicts that need no word beside the outcome.
_SILENT = frozenset({VerdictKind.OK, VerdictKind.UNCHANGED, VerdictKind.REGRESSION, VerdictKind.NO_BASELINE})


#: Verdicts that the title counts, and what it calls them.
_COUNTED = {VerdictKind.FIXED: "fixed", VerdictKind.CHANGED: "changed", VerdictKind.FLAKY: "flaky"}


def plural(count: int, noun: str) -> str:
    """``1 class``, ``2 classes``, ``3 entries``, ``1,000 cases``."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{count:,} {noun}"


def duration(seconds: float) -> str:
    """``0.4s``, ``12s``, ``1m 52s``, ``2h 05m``."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def error_size(value: float) -> str:
    """An error in two digits, short: ``0``, ``3e-7``, ``0.031``."""
    return f"{value:.2g}".replace("e-0", "e-").replace("e+0", "e")


def largest_error(case: CaseReport) -> float | None:
    """The largest absolute error over a case's components, and where numbers differ over its failing probes; None when
    nothing was compared."""
    errors = [component.max_abs for component in case.components]
    if case.outcome is OutcomeKind.PARITY:
        probes = [probe for component in case.components for probe in component.probes]
        errors += [probe.max_abs for probe in probes if probe.status == "parity"]
    return largest(errors)


def symbol(case: CaseReport) -> str:
    """✅ pass, ❌ failure, ⚪ neither; what passed on base and now has no judgement is a failure too."""
    if case.outcome is OutcomeKind.PASS:
        return "✅"
    return "⚪" if case.outcome in NEITHER and case.verdict is not VerdictKind.REGRESSION else "❌"


def cell(case: CaseReport) -> str:
    """A case in a table: its symbol, the error or the stage that failed, and the verdict where it adds
    something. Holds no untrusted text."""
    error = largest_error(case)
    size = error_size(error) if error is not None else ""
    if case.outcome is OutcomeKind.PASS:
        said = size
    elif case.outcome in NEITHER:
        said = case.outcome.value
    elif case.outcome is OutcomeKind.ERROR:
        said = _place(case) or "error"
    elif case.outcome is OutcomeKind.PARITY:
        # Outputs that differ without an error differ in their shape or type.
        said = f"parity {size}" if error else "parity"
    else:
        said = f"{case.outcome.value} {_place(case)}".strip()
    verdict = "" if case.verdict in _SILENT else f"· {case.verdict.value}"
    return " ".join(part for part in (symbol(case), said, verdict) if part)


def _place(case: CaseReport) -> str:
    """``trace``, ``decode trace``; empty for a stage that nobody knows. Holds no untrusted text."""
    side = case.head or case.base
    component = side.component if side and side.component in COMPONENTS else ""
    return f"{component} {case.stage}".strip() if case.stage in STAGE_NAMES else ""


class Column(NamedTuple):
    """A column of the table: a backend, and who exports to it."""

    backend: Backend
    engine: Engine


def columns(cases: Iterable[CaseReport]) -> tuple[Column, ...]:
    """The columns that some cases fill: backends from the quickest to the slowest, own engine before repository's."""
    used = {Column(case.id.backend, case.id.engine) for case in cases}
    return tuple(column for column in itertools.starmap(Column, itertools.product(BACKENDS, Engine)) if column in used)


def column_title(column: Column) -> str:
    """``ONNX``, or ``ONNX (repo)`` for the repository's own exporters."""
    return BACKENDS[column.backend] + (f" ({column.engine.value})" if column.engine is not Engine.OWN else "")


@dataclass(frozen=True)
class Cause:
    """Failing cases that belong together, see `hfexport_bot.verdicts.compare.cause_of`."""

    cases: tuple[CaseReport, ...]

    @property
    def first(self) -> CaseReport:
        return self.cases[0]

    @property
    def where(self) -> str:
        """``torch.export, ONNX · trace``, ``ONNX · decode trace``. Holds no untrusted text."""
        backends = [column_title(column) for column in columns(self.cases)]
        stage = _place(self.first)
        kind = self.first.outcome
        said = stage if kind is OutcomeKind.ERROR and stage else f"{kind.value} {stage}".strip()
        if kind is OutcomeKind.PARITY:
            said = kind.value
        return f"{', '.join(backends)} · {said}"

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.id.class_name for case in self.cases))


def causes(cases: Iterable[CaseReport]) -> tuple[Cause, ...]:
    """Group cases by their cause, in the order each first appears."""
    groups: dict[tuple[str, ...], list[CaseReport]] = {}
    for case in cases:
        groups.setdefault(cause_of(case), []).append(case)
    return tuple(Cause(tuple(group)) for group in groups.values())


def line_ranges(lines: Sequence[tuple[int, int]]) -> str:
    """``3, 7-9``."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in lines)


def lines_not_run(report: Report) -> str:
    """``3 changed lines not run``; empty where every changed line ran."""
    count = sum(last - first + 1 for item in report.unreached for first, last in item.lines)
    return f"{plural(count, 'changed line')} not run" if count else ""


def not_run_entries(report: Report) -> tuple[NotRun, ...]:
    """What was not run; symbols of one file that have one reason, and many files that have, are one entry."""
    groups: dict[tuple[str, ...], list[NotRun]] = {}
    for number, item in enumerate(report.not_run):
        file = item.name.partition(":")[0] if item.kind == "symbol" else ""
        key = (item.kind, file, item.reason) if item.kind in ("symbol", "file") else (str(number),)
        groups.setdefault(key, []).append(item)
    return tuple(entry for group in groups.values() for entry in _as_one(group))


def _as_one(group: Sequence[NotRun]) -> Sequence[NotRun]:
    first = group[0]
    if len(group) <= (FEW_FILES if first.kind == "file" else 1):
        return group
    head, names = f"{len(group)} files", [item.name for item in group]
    if first.kind == "symbol":
        head, names = first.name.partition(":")[0], [item.name.partition(":")[2] for item in group]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return [first.model_copy(update={"name": f"{head}: {', '.join(names[:NAMED])}{more}"})]


def source_lines(blame: Blame) -> str:
    """The lines around the one that is blamed, numbered, that one marked; empty where there are none. Untrusted
    text."""
    width = len(str(blame.first + len(blame.source)))
    return "\n".join(
        f"{'>' if number == blame.location.line else ' '} {number:>{width}} | {line}"
        for number, line in enumerate(blame.source, start=blame.first)
    )


@dataclass(frozen=True)
class Remark:
    """What a runner noted of its own checks (what they could not see or had to leave out), and the classes it noted it
    of. Untrusted text."""

    text: str
    classes: tuple[str, ...]


def remarks(cases: Iterable[CaseReport]) -> tuple[Remark, ...]:
    """The notes of the outcomes shown (head's, or base's of a removed case), each once: of the most classes first, then
    in the order each first appears."""
    found: dict[str, dict[str, None]] = {}
    for case in cases:
        side = case.head or case.base
        for note in side.notes if side else ():
            found.setdefault(note, {})[case.id.class_name] = None
    told = [Remark(text, tuple(classes)) for text, classes in found.items()]
    return tuple(sorted(told, key=lambda remark: -len(remark.classes)))


@dataclass(frozen=True)
class Row:
    """One line of the table: a class with one kind of shapes, one task and one variant, its case in each column."""

    model: str
    class_name: str
    shapes: Shapes
    task: Task
    variant: Variant | None
    cases: dict[Column, CaseReport]

    @property
    def reason(self) -> str:
        return next((case.reason for case in self.cases.values() if case.reason), "")

    @property
    def worst(self) -> int:
        """0 with a regression, 1 with another failure, 2 otherwise."""
        if any(case.verdict is VerdictKind.REGRESSION for case in self.cases.values()):
            return 0
        return 1 if any(case.outcome not in CLEAN for case in self.cases.values()) else 2


def rows(cases: Iterable[CaseReport]) -> tuple[Row, ...]:
    """The table's lines: those with regressions first, then other failures, each in the order of the
    report."""
    found: dict[tuple[str, str, Shapes, Task, Variant | None], Row] = {}
    for case in cases:
        key = (case.id.model, case.id.class_name, case.id.shapes, case.id.task, case.id.variant)
        found.setdefault(key, Row(*key, cases={})).cases[Column(case.id.backend, case.id.engine)] = case
    return tuple(sorted(found.values(), key=lambda row: row.worst))


def row_labels(table: Sequence[Row]) -> list[str]:
    """What each row is called: its class, with the model where two models have one of that name, and with
    shapes and task where the table has several, and its variant. Untrusted text."""
    several_shapes = len({row.shapes for row in table}) > 1
    several_tasks = len({row.task for row in table}) > 1
    homes: dict[str, set[str]] = {}
    for row in table:
        homes.setdefault(row.class_name, set()).add(row.model)

    labels = []
    for row in table:
        name = f"{row.model}/{row.class_name}" if len(homes[row.class_name]) > 1 else row.class_name
        settings = [row.shapes.value] if several_shapes else []
        settings += [row.task.value] if several_tasks else []
        settings += [row.variant.value] if row.variant else []
        labels.append(f"{name} ({', '.join(settings)})" if settings else name)
    return labels


def why_no_baseline(report: Report) -> str:
    """Why cases of a comparison have no baseline, where that is no fault of theirs."""
    return "the run was interrupted before it ran on base" if report.interrupted else ""


def origins(cases: Iterable[CaseReport]) -> str:
    """``models from model tests (12), synthesised (3)``: the sources of the models, as far as we know them. Holds no
    untrusted text."""
    said = [side.source.partition(":")[0] for case in cases if (side := case.head or case.base)]
    counted = {source: said.count(source.value) for source in Source}
    parts = [f"{source.value} ({count:,})" for source, count in counted.items() if count]
    return f"models from {', '.join(parts)}" if parts else ""


def merge_safety(report: Report) -> Literal["yes", "no", "unknown"]:
    """Whether a ``run`` calls its change safe to merge. A run that failed, or in which no case passed on either side,
    could not have seen a regression: unknown; as is what comes of a requirement that head did not run with. What one
    found before it was interrupted stands."""
    if report.interrupted and red_cases(report):
        return "no"
    if report.failure:
        return "unknown"
    if failing(report):
        return "no"
    if report.cases and report.unmet:
        return "unknown"
    sides = [side for case in report.cases for side in (case.base, case.head) if side]
    passed = any(side.kind is OutcomeKind.PASS for side in sides)
    return "yes" if passed or not (report.cases or report.unreached) else "unknown"


def unjudged(report: Report) -> str:
    """``2 changed files``: what nothing can be said of, not run though more than its text changed; or ``1 affected
    class`` that has no case; or functions with changed lines, where no case ran at all. Empty where there is nothing of
    the kind."""
    files = sum(item.kind == "file" and not is_harmless(item) for item in report.not_run)
    classes = sum(item.kind == "class" for item in report.not_run)
    if not (files or classes or report.cases) and report.unreached:
        return plural(len(report.unreached), "changed function")
    return plural(files, "changed file") if files else plural(classes, "affected class") if classes else ""


def sample_lines(report: Report) -> tuple[str, ...]:
    """What a report says of its sample: how many classes and why no more, what it covers, and what it misses. None
    where all was run."""
    sample = report.sample
    if sample is None:
        return ()
    limits = " and ".join(sample.limits)
    lines = [f"A sample: {sample.classes:,} of {plural(sample.affected, 'affected class')}, by {limits}."]
    if sample.kinds:
        lines.append(f"Kinds of model in it: {', '.join(sample.kinds)}.")
    for what, missed in (("changed symbols", sample.missed_causes), ("kinds of model", sample.missed_kinds)):
        if missed:
            more = f" and {len(missed) - _MISSED_SHOWN:,} more" if len(missed) > _MISSED_SHOWN else ""
            lines.append(f"No class in it for these {what}: {', '.join(missed[:_MISSED_SHOWN])}{more}.")
    if sample.passed_over:
        lines.append(f"Passed over, since they can probably not be built here: {plural(sample.passed_over, 'class')}.")
    if sample.unlikely:
        lines.append(f"In it for want of others, though hardly to be built: {plural(sample.unlikely, 'class')}.")
    if report.cases and all(case.outcome in _NOT_BUILT for case in report.cases):
        lines.append("None of its classes could be built and run, so it tells nothing of the change.")
    return tuple(lines)


def headline(report: Report) -> str:
    """The report in one line."""
    found = counts(report)
    safety = f"safe to merge: {merge_safety(report)}"
    if report.failure:
        said = "the run failed"
        if report.interrupted:
            regressions = found.verdicts.get(VerdictKind.REGRESSION, 0)
            said = INTERRUPTED + (f" · {plural(regressions, 'regression')} so far" if regressions else "")
        return f"{said} · {safety}" if report.command == "run" else said
    if not report.cases:
        if not report.compared:
            return "nothing to run"
        if left := unjudged(report):
            verb = "was" if left.startswith("1 ") else "were"
            return f"nothing was run · {left} {verb} not judged, see what was not run"
        return f"nothing affected · {safety}"
    if not report.compared:
        verb = "passes" if found.cases == 1 else "pass"
        return f"{found.passing:,} of {plural(found.cases, 'case')} {verb}"
    parts = _counted(report, found)
    if report.command != "run":  # a sweep is not of a change
        return " · ".join(parts)
    if merge_safety(report) == "unknown":
        safety += f", {_unmet(report) or 'no case passed on either side'}"
    return " · ".join([*parts, safety])


def _counted(report: Report, found: Counts) -> list[str]:
    """What a title counts of a comparison, the most urgent first."""
    regressions = found.verdicts.get(VerdictKind.REGRESSION, 0)
    parts = [plural(regressions, "regression")]
    if regressions:
        parts[0] += f" in {plural(found.causes, 'cause')}"
    parts += [
        f"{found.verdicts[verdict]:,} {word}" for verdict, word in _COUNTED.items() if found.verdicts.get(verdict)
    ]
    if moved := found.verdicts.get(VerdictKind.INTERFACE):
        parts.append(f"{plural(moved, 'interface')} moved")
    coming = sum(case.verdict is VerdictKind.NEW and case.outcome not in CLEAN for case in report.cases)
    if coming:
        parts.append(f"{plural(coming, 'new case')} {'fails' if coming == 1 else 'fail'}")
    moved_classes = {(case.id.model, case.id.class_name) for case in report.cases if case.eager and case.eager.is_moved}
    if moved_classes:
        parts.append(f"eager moved in {plural(len(moved_classes), 'class')}")
    lacking = sum(case.verdict is VerdictKind.NO_BASELINE and case.outcome not in CLEAN for case in report.cases)
    if lacking:
        parts.append(f"{plural(lacking, 'case')} without a baseline {'fails' if lacking == 1 else 'fail'}")
    if accepted := sum(map(is_accepted_change, report.cases)):
        parts.append(f"{accepted:,} accepted")
    if report.sample is not None:
        parts.append(f"a sample of {report.sample.classes:,} of {plural(report.sample.affected, 'class')}")
    if not_run := lines_not_run(report):
        parts.append(not_run)
    return parts


def _unmet(report: Report) -> str:
    """What of head's requirements it did not run with. Holds no untrusted text: names and versions are plain."""
    named = [text for text in report.unmet if _PLAIN_WISH.fullmatch(text)][:_WISHES_SHOWN]
    left = len(report.unmet) - len(named)
    parts = [*named, *([plural(left, "more requirement" if named else "requirement")] if left else [])]
    return f"head asks for {' and '.join(parts)} that it did not run with, see the notes" if parts else ""


def count_line(found: Counts) -> str:
    """``12 cases: 9 pass, 2 error, 1 timeout``."""
    said = [f"{found.outcomes[kind]:,} {kind.value}" for kind in OutcomeKind if found.outcomes.get(kind)]
    return ": ".join(part for part in (plural(found.cases, "case"), ", ".join(said)) if part)
