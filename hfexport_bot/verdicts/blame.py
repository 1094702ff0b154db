"""Which line of the code a failure is blamed on, inside the change where that is possible. Pure, but for reading files
of a tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from hfexport_bot.changes.counterparts import editable
from hfexport_bot.changes.modeling import SourceError
from hfexport_bot.changes.statements import Statement, statement_at, statements
from hfexport_bot.changes.tree import Tree
from hfexport_bot.schema import (
    MAX_NAME_CHARS,
    Blame,
    CaseReport,
    Location,
    Outcome,
    OutcomeKind,
    UnavailableCause,
    VerdictKind,
)

#: Lines shown on either side of the one that is blamed.
AROUND = 2
#: Longest line shown.
_LINE_CHARS = 200

#: Lines of head's files, by path, that the change wrote.
Changed = Mapping[str, Collection[int]]


#: Statements that the change touches, by file.
Touched = Mapping[str, Sequence[Statement]]


def blamed(
    cases: Iterable[CaseReport],
    head: Tree,
    changed: Changed,
    touched: Touched | None = None,
    workarounds: str | None = None,
) -> tuple[CaseReport, ...]:
    """The cases, those that fail on head with the line that they are blamed on. ``workarounds`` is the file of the
    repository's own."""

    def told(blame: Blame | None) -> dict[str, Blame | None]:
        is_own = blame is not None and blame.location.file == workarounds
        return {"blame": blame.model_copy(update={"workaround": True}) if blame and is_own else blame}

    known: dict[tuple[Location, ...], Blame | None] = {}
    found = []
    for case in cases:
        outcome = case.head
        if outcome is None or outcome.kind is OutcomeKind.PASS:
            found.append(case)
        elif outcome.location is None:
            suspect = _suspect(case, outcome, head, touched or {}) if case.verdict is VerdictKind.REGRESSION else None
            found.append(case.model_copy(update=told(suspect)))
        else:
            key = (outcome.location, *outcome.frames)
            if key not in known:
                known[key] = blame(outcome, head, changed)
            found.append(case.model_copy(update=told(known[key])))
    return tuple(found)


#: Failures that may come of what a case ran though they name no line: numbers, sizes and inputs of another kind.
_OF_WHAT_RAN = frozenset({OutcomeKind.PARITY, OutcomeKind.ERROR, OutcomeKind.UNSUPPORTED, OutcomeKind.NONDETERMINISTIC})


def _suspect(case: CaseReport, outcome: Outcome, tree: Tree, touched: Touched) -> Blame | None:
    """What a regression is blamed on that names no line: the first of the statements that the change touches and the
    case ran, where these are all of one function. Of a class whose inputs are unknown, which ran nothing, the first
    that the change touches of its forward."""
    if outcome.kind in _OF_WHAT_RAN:
        suspects = [
            (file, each)
            for file, firsts in (outcome.executed or {}).items()
            for each in touched.get(file, ())
            if each.first in firsts and not each.at_import
        ]
    elif outcome.cause is UnavailableCause.UNKNOWN_INPUTS:
        forward = f"{case.id.class_name}.forward"
        suspects = [(file, each) for file, own in touched.items() for each in own if each.function == forward]
    else:
        suspects = []
    if len({(file, each.function) for file, each in suspects}) != 1:
        return None
    (file, first), *_ = suspects
    place = Location(file=file[-MAX_NAME_CHARS:], line=first.first, function=first.function.rpartition(".")[2])
    found = blame(Outcome(kind=outcome.kind, location=place), tree, {file: {first.first}})
    return found and found.model_copy(update={"suspected": outcome.kind in _OF_WHAT_RAN})


def blame(outcome: Outcome, tree: Tree, changed: Changed) -> Blame | None:
    """The line to look at for a failure: of the frames on its way the innermost whose statement the change wrote, or
    else the innermost modeling line. For a line that was generated or copied, the one to edit."""
    frames = outcome.frames or ((outcome.location,) if outcome.location else ())
    ours = next((frame for frame in frames if _is_changed(tree, frame.file, frame.line, changed)), None)
    ran = ours or outcome.location
    if ran is None:
        return None
    edit = editable(tree, ran.file, ran.line)
    if edit is None or (ours and not edit.exact and not PurePosixPath(edit.file).name.startswith("modular_")):
        # A copy that was changed by hand: its own line tells more than the header of what it was copied from.
        return _shown(tree, ran, ours is not None)
    function = edit.owner.rpartition(".")[2]
    location = Location(file=edit.file[-MAX_NAME_CHARS:], line=edit.line, function=function[:MAX_NAME_CHARS])
    # A new model may be generated from the code of another one, which the change leaves as it was.
    is_changed = edit.file in changed if ours else _is_changed(tree, edit.file, edit.line, changed)
    return _shown(tree, location, is_changed, ran=ran)


def _is_changed(tree: Tree, file: str, line: int, changed: Changed) -> bool:
    """Whether the change wrote a line, or another one of its statement."""
    lines = changed.get(file)
    if not lines:
        return False
    if line in lines:
        return True
    try:
        statement = statement_at(statements(tree.read(file) or b""), line)
    except SourceError:
        return False
    return statement is not None and statement.touches(lines)


def _shown(tree: Tree, location: Location, is_changed: bool, ran: Location | None = None) -> Blame:
    source = (tree.read(location.file) or b"").decode(errors="replace").splitlines()
    first = max(1, location.line - AROUND)
    lines = source[first - 1 : location.line + AROUND] if 0 < location.line <= len(source) else []
    return Blame(
        location=location,
        changed=is_changed,
        ran=ran,
        first=first,
        source=tuple(line[:_LINE_CHARS] for line in lines),
    )
