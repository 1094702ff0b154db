"""What every command that runs models says in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hfexport_bot.errors import UsageError
from hfexport_bot.execution.session import SessionResult
from hfexport_bot.plan import PlannedCase
from hfexport_bot.schema import INTERRUPTED, CaseId, NotRun, Outcome, OutcomeKind, Report, Rerun, unfit
from hfexport_bot.settings import SETTINGS_PATH, AcceptedEntry, Overrides, Settings

#: Files, and cases, that a note names.
_SHOWN = 5


@dataclass(frozen=True)
class Finished:
    """A report, and why the run failed as a whole (empty: it did not). ``interrupted``: somebody ended it, and the
    report has what had been run until then."""

    report: Report
    failure: str = ""
    interrupted: bool = False


def notes_of(settings: Settings, expired: Sequence[AcceptedEntry], result: SessionResult) -> tuple[str, ...]:
    """What a report says of any run."""
    return (
        *(f"the workaround `{name}` was disabled" for name in settings.disabled_workarounds),
        *(f"the accepted finding `{entry.id}` expired on {entry.expires}" for entry in expired),
        *(f"{side}'s runner could not work: {message}" for side, message in result.fatal.items()),
        *_not_again(result.late),
        *runner_notes(result),
    )


def runner_notes(result: SessionResult) -> tuple[str, ...]:
    """What is said of code under test that was not confined, or that wrote to its own files: cases that come later read
    what it wrote."""
    lacking = f"code under test ran without {'; without '.join(result.unprotected)}"
    written = (
        f"{side}'s own files were changed while it ran ({_some(files)}): cases that ran after may not be of the code "
        "that was asked for"
        for side, files in result.written.items()
    )
    return (*([lacking] if result.unprotected else []), *written)


def _not_again(late: Sequence[CaseId]) -> Iterator[str]:
    """A note on the cases that came to another end than on base, and that no rerun has confirmed."""
    if late:
        named = _some(list(map(str, late)))
        count = "1 case that" if len(late) == 1 else f"{len(late)} cases that"
        yield f"no time was left within budget-minutes to run again {count} came to another end than on base: {named}"


def failure_of(result: SessionResult) -> str:
    """A run in which no runner worked, no case came past the repository's case function, or base's files were changed
    and its failures with them, says nothing of the change, whatever its verdicts add up to."""
    if result.interrupted:
        return INTERRUPTED
    if result.ran and len(result.fatal) == len(result.ran):
        return next(iter(result.fatal.values()))
    outcomes = [*result.base.values(), *result.head.values()]
    if outcomes and all(each.kind is OutcomeKind.ERROR and each.error_type == "HookError" for each in outcomes):
        return outcomes[0].message
    if files := result.written.get("base"):
        hidden = [id_ for id_ in result.base if id_ in result.head and _hides(result.base[id_], result.head[id_])]
        if hidden:
            return (
                f"base's own files were changed while this ran ({_some(files)}), so that it cannot be told whether the "
                f"change broke {_some(list(map(str, hidden)))}; run it again, and look at what the change's code does "
                "to files that are not its own"
            )
    return ""


def _hides(base: Outcome, head: Outcome) -> bool:
    """Whether a failure of base keeps a failure of head from being a regression, and is another one than head's."""
    failed = OutcomeKind.PASS not in (base.kind, head.kind)
    return failed and (base.kind, base.stage) != (head.kind, head.stage)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def ended(planned: Sequence[PlannedCase], result: SessionResult) -> tuple[list[PlannedCase], list[NotRun]]:
    """The cases that a run got to, and those that it did not get to, or on head only, since it was interrupted."""
    if not result.interrupted:
        return [*planned], []
    ran = [case for case in planned if case.id in (result.head if case.head_module else result.base)]
    missed = {case.id for case in planned} - {case.id for case in ran}
    half = {case.id for case in ran if case.base_module and case.head_module} - result.base.keys()
    reasons = dict.fromkeys(missed, INTERRUPTED) | dict.fromkeys(half, f"{INTERRUPTED} before it ran on base")
    return ran, [NotRun(kind="case", name=str(each), reason=reasons[each]) for each in sorted(reasons, key=str)]


def rerun_of(tree: str, overrides: Overrides, rev: str = "") -> Rerun:
    """What the command that reproduces a case is given."""
    settings = overrides.settings if overrides.settings != SETTINGS_PATH else ""
    asked = overrides.model_dump(include={"sources", "disabled_workarounds", "install", "seconds", "memory_gb"})
    for word in (tree, settings):
        if problem := unfit(word):
            raise UsageError(f"{word!r} cannot be named in a report: {problem}; give it another name, or use a link")
    return Rerun(tree=tree, rev=rev, settings=settings, **asked)


def require_cases(planned: Sequence[PlannedCase], names: Sequence[str]) -> None:
    """Refuse models without a case in the tasks asked for: that forward is missing there is told before."""
    if not planned:
        whose = f" of {', '.join(names)}" if names else ""
        raise UsageError(f"none of the classes{whose} generates; leave out --task to run their forward")
