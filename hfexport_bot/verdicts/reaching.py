"""Cases that reach changed lines which the planned ones did not: the models' own switches, tried in eager first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hfexport_bot.changes.layout import is_modeling_file
from hfexport_bot.changes.targets import ASKED_FOR
from hfexport_bot.execution.session import SessionResult
from hfexport_bot.plan import PlannedCase
from hfexport_bot.sample import key_of
from hfexport_bot.schema import Backend, CaseId, Engine, Layout, NotRun, Outcome, OutcomeKind, Shapes, Task, Variant
from hfexport_bot.verdicts.unreached import ChangedCode

#: Classes of one file that are tried with every switch.
MAX_CLASSES = 3

#: Begins what is said of changed lines of which no case could tell.
UNTOLD = "not known whether a case ran"

#: What is said of cases that had an end without telling what they ran: of errors, those that sent no result.
_MUTE = {
    OutcomeKind.CRASH: "died",
    OutcomeKind.OOM: "died",
    OutcomeKind.TIMEOUT: "died",
    OutcomeKind.ERROR: "gave no result",
}

#: Runs cases: head's in eager only where asked for, otherwise both sides whole.
Run = Callable[[Sequence[PlannedCase], bool], SessionResult]


def reach_more(
    code: ChangedCode, planned: tuple[PlannedCase, ...], result: SessionResult, run: Run, layout: Layout
) -> tuple[tuple[PlannedCase, ...], SessionResult]:
    """The cases and what they came to, with those of the variants that reach lines which no case did."""
    if result.interrupted:
        return planned, result
    told = [outcome for outcome in result.head.values() if outcome.executed is not None]
    tried = _to_try(code.left(told), planned, layout) if told else ()
    if not tried:
        return planned, result
    surveyed = run(tried, True)
    if surveyed.interrupted:
        return planned, replace(result, interrupted=True)
    reaching = _reaching(code, told, surveyed.head)
    more = tuple(_with_variant(case, each.variant) for each in reaching for case in planned if _is_plain(case.id, each))
    if not more:
        return planned, result
    added = run(more, False)
    both = replace(
        result,
        base=result.base | added.base,
        head=result.head | added.head,
        eager=result.eager | added.eager,
        tries=result.tries | added.tries,
        late=(*result.late, *added.late),
        written=added.written | result.written,
        interrupted=added.interrupted,
    )
    return (*planned, *more), both


def share_of(
    code: ChangedCode, every: Sequence[PlannedCase], mine: Sequence[PlannedCase], first: bool, layout: Layout
) -> ChangedCode:
    """What one of several jobs tries to reach: the files of its own classes, the ``first`` also those of no class."""
    planned, own = ({file_of(case, layout) for case in cases} for cases in (every, mine))
    kept = {file: each for file, each in code.statements.items() if file in own or (first and file not in planned)}
    return replace(code, statements=kept)


def without_untold(
    code: ChangedCode, planned: Sequence[PlannedCase], outcomes: Mapping[CaseId, Outcome], layout: Layout
) -> tuple[ChangedCode, tuple[NotRun, ...]]:
    """The code without the files of classes none of whose cases could tell what they ran, and what is said of the lines
    there: one that died, sent no result, never began or has no model leaves unknown whether it would have run them."""
    told_by = [case for case in planned if case.id in outcomes and outcomes[case.id].executed is not None]
    telling = {key_of(case) for case in told_by}
    built = {file_of(case, layout) for case in told_by if outcomes[case.id].kind is not OutcomeKind.UNAVAILABLE}
    why: dict[str, str] = {}
    for case in planned:
        outcome, file = outcomes.get(case.id), file_of(case, layout)
        said = _MUTE.get(outcome.kind) if outcome else "never began"
        if case.head_module and key_of(case) not in telling and said:
            why.setdefault(file, said)
        elif outcome is not None and outcome.kind is OutcomeKind.UNAVAILABLE and file and file not in built:
            why.setdefault(file, "are unavailable: no model, or no inputs for it, could be made")
    told = [outcome for outcome in outcomes.values() if outcome.executed is not None or outcome.frames]
    unknown = code.lines_of({file: own for file, own in code.left(told).items() if file in why})
    entries = tuple(
        NotRun(
            kind="symbol",
            name=f"{each.file}:{each.function}".rstrip(":"),
            reason=f"{UNTOLD} {_lines(each.lines)}: the cases of this file's classes {why[each.file]}",
        )
        for each in unknown
    )
    return replace(code, statements={file: own for file, own in code.statements.items() if file not in why}), entries


def is_untold(entry: NotRun) -> bool:
    """Whether an entry is of `without_untold`, which each shard says of its own cases."""
    return entry.reason.startswith(UNTOLD)


def _lines(ranges: Iterable[tuple[int, int]]) -> str:
    spans = [f"{first}-{last}" if last > first else str(first) for first, last in ranges]
    return f"line{'s' if len(spans) > 1 or '-' in spans[0] else ''} {', '.join(spans)}"


def of_models(code: ChangedCode, planned: Sequence[PlannedCase], layout: Layout) -> ChangedCode:
    """The code without the modeling files of models that nobody asked for, where the user named some."""
    if any(case.reason != ASKED_FOR for case in planned):
        return code
    own = {file_of(case, layout) for case in planned}
    kept = {file: each for file, each in code.statements.items() if file in own or not is_modeling_file(file, layout)}
    return replace(code, statements=kept)


def _to_try(files: Mapping[str, object], planned: Sequence[PlannedCase], layout: Layout) -> tuple[PlannedCase, ...]:
    """The classes of each file with every switch that was not turned yet; where no class is of a file, some that the
    change affects."""
    plain: dict[tuple[str, str], PlannedCase] = {}
    for case in planned:
        if case.head_module and case.id.variant is None and case.id.task is Task.FORWARD:
            plain.setdefault((case.id.model, case.id.class_name), case)
    chosen: dict[CaseId, PlannedCase] = {}
    for file in files:
        own = [case for case in plain.values() if file_of(case, layout) == file]
        chosen |= {case.id: case for case in (own or [*plain.values()])[:MAX_CLASSES]}
    there = {(case.id.model, case.id.class_name, case.id.variant) for case in planned}
    settled = {"backend": Backend.DYNAMO, "shapes": Shapes.DYNAMIC, "engine": Engine.OWN}
    return tuple(
        replace(case, id=case.id.model_copy(update={**settled, "variant": variant}), base_module=None)
        for case in chosen.values()
        for variant in Variant
        if (case.id.model, case.id.class_name, variant) not in there
    )


def file_of(case: PlannedCase, layout: Layout) -> str:
    """The path of the modeling file that head has a case's class in; empty where it has none."""
    module = case.head_module or ""
    if not module:
        return ""
    return f"src/{module.replace('.', '/')}.py" if layout is Layout.TRANSFORMERS else module


def _reaching(code: ChangedCode, before: list[Outcome], surveyed: Mapping[CaseId, Outcome]) -> list[CaseId]:
    """Those of the surveyed cases that execute something which none before did. What cannot be built or fed runs
    lines too, and would come to nothing again."""
    found = []
    for case_id, outcome in surveyed.items():
        if outcome.kind in (OutcomeKind.UNAVAILABLE, OutcomeKind.SKIPPED):
            continue
        left = code.left(before)
        if any(each.first in (outcome.executed or {}).get(file, ()) for file, own in left.items() for each in own):
            found.append(case_id)
            before.append(outcome)
    return found


def _is_plain(case: CaseId, other: CaseId) -> bool:
    """Whether a case is the other one's class without its variant, in the same task."""
    same = (case.model, case.class_name, case.task) == (other.model, other.class_name, other.task)
    return same and case.variant is None


def _with_variant(case: PlannedCase, variant: Variant | None) -> PlannedCase:
    return replace(case, id=case.id.model_copy(update={"variant": variant}))
