"""One case in the foreground: its stages as they begin, its log as it is written, and what its stages made."""

from __future__ import annotations

import difflib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hfexport_bot.changes.git import Git
from hfexport_bot.changes.place import find_place
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import resolve_targets
from hfexport_bot.changes.tree import FolderTree
from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.execution.trees import revision_tree
from hfexport_bot.plan import PlannedCase, engines_of
from hfexport_bot.preparation import (
    Surroundings,
    check_disabled,
    one_revision,
    plan,
    prepare,
    private_setup,
)
from hfexport_bot.reporting.reproduce import is_of_a_file
from hfexport_bot.reporting.text import plain
from hfexport_bot.schema import (
    Backend,
    CaseFinished,
    CaseId,
    CaseRequest,
    Engine,
    Outcome,
    RunnerEvent,
    Shapes,
    StageBegan,
    Task,
    Variant,
)
from hfexport_bot.settings import Overrides

#: Prints one line.
Say = Callable[[str], None]

_LINE_CHARS = 10_000
#: A full commit id, as the commands of reports have it.
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def parse_case(text: str) -> CaseId:
    """Read a case id. Raises `UsageError` that names the nearest word for one that there is not."""
    try:
        return CaseId.parse(text)
    except ValueError as error:
        path, _, engine = text.partition("@")
        path, _, variant = path.partition("+")
        words = [(Backend, -3), (Shapes, -2), (Task, -1)]
        parts = path.split("/")
        if len(parts) >= 4 and parts[-2] in {*Backend} and parts[-1] in {*Shapes}:
            tasks = " or ".join(f"{text}/{task.value}" for task in Task)
            raise UsageError(f"{text}: the task is missing; did you mean {tasks}?") from None
        checked = [(kind, parts[position]) for kind, position in words] if len(parts) >= 5 else []
        checked += [(kind, word) for kind, word in ((Variant, variant), (Engine, engine)) if word]
        for kind, word in checked:
            known = [each.value for each in kind]
            if word not in known:
                near = difflib.get_close_matches(word, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
                raise UsageError(f"{text}: there is no {kind.__name__.lower()} {word!r}; {hint}") from None
        raise UsageError(f"{error}, as the report names it") from None


def reproduce_case(
    case_id: CaseId,
    folder: Path | None,
    revision: tuple[Path, str] | None,
    overrides: Overrides,
    around: Surroundings,
    keep: Path | None,
    say: Say,
) -> Outcome:
    """Run one case of a folder, of a ``revision`` of a repository, or of the installed transformers.

    ``keep`` is a new folder that gets what each stage made, and the logs. Raises `UsageError` for what is not there,
    and `RunError` where the runner could not work.
    """
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"--keep: {keep} exists and is not an empty folder; give a new one")
    with ExitStack() as stack:
        if revision is not None:
            git = Git(revision[0])
            folder = stack.enter_context(revision_tree(git, _commit(git, revision[1])))
            stack.enter_context(_naming(folder, f"revision {revision[1]}"))
        logs = keep / "logs" if keep else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hfexport-log-")))
        named = is_of_a_file(case_id)
        name = f"{case_id.model}.py:{case_id.class_name}" if named else f"{case_id.model}/{case_id.class_name}"
        place = find_place([name] if folder or not named else [f"{case_id.model}.py"], folder)
        tree = FolderTree(place.root)
        settings, setup = one_revision(place, overrides, around)
        engines = engines_of(settings, place.layout, tree, tree)
        check_disabled(settings, around, place.layout, engines, tree)
        planned = plan(Selection(affected=resolve_targets([name], tree, place.layout)), settings, engines)
        case = _planned(case_id, planned)
        ready = prepare({"head": setup}, {"head": tree}, [case], settings, around)
        for note in ready.notes:
            say(f"note: {plain(note, 400)}")
        if ready.failure:
            raise RunError(ready.failure)
        kept = {"keep": str(keep.resolve())} if keep else {}
        update = {"log_dir": str(logs), "jobs": 1, "backends": (case_id.backend,), **kept}
        setup = ready.setups["head"].model_copy(update=update)
        setup = setup if revision else private_setup(setup, stack)
        told = _Told(logs, say, f"{folder}/" if revision else "")
        run_cases = stack.enter_context(around.open_runners())
        result = run_cases(setup, [CaseRequest(id=case_id, module=str(case.head_module))], on_event=told.event)
        told.log()
    if result.fatal:
        raise RunError(result.fatal)
    return result.outcomes[case_id]


def _commit(git: Git, revision: str) -> str:
    """The commit that a revision names. One of a report on a pull request may be in no clone yet, its merge least."""
    try:
        return git.resolve(revision)
    except UsageError as error:
        if not _SHA.fullmatch(revision):
            raise
        raise UsageError(
            f"{error}; a pull request's commit comes by its id from the repository that the pull request is for: "
            f"git fetch URL {revision}"
        ) from None


@contextmanager
def _naming(folder: Path, name: str) -> Iterator[None]:
    """Call a folder that will be gone by what is in it, in what is said of wrong usage."""
    try:
        yield
    except UsageError as error:
        said = str(error)
        for path in {str(folder), str(folder.resolve())}:
            said = said.replace(path, name)
        raise UsageError(said) from None


def _planned(case_id: CaseId, planned: Sequence[PlannedCase]) -> PlannedCase:
    found = next((case for case in planned if case.id == case_id and case.head_module), None)
    if found is None:
        near = difflib.get_close_matches(str(case_id), [str(case.id) for case in planned], n=1, cutoff=0)
        hint = f"; the nearest that there is: {near[0]}" if near else ""
        raise UsageError(f"there is no case {case_id} here{hint}")
    return found


class _Told:
    """Says each stage as it begins, after what was written to the logs until then."""

    def __init__(self, logs: Path, say: Say, passing: str = "") -> None:
        """``passing``: a folder that will be gone, which no line names."""
        self._logs = logs
        self._passing = passing
        self._say = say
        self._read: dict[Path, int] = {}

    def event(self, event: RunnerEvent) -> None:
        self.log()
        if isinstance(event, StageBegan):
            self._say(f"stage: {plain(f'{event.component} {event.stage}'.strip())}")
        elif isinstance(event, CaseFinished):
            _say_outcome(event.outcome, self._say)

    def log(self) -> None:
        for path in sorted(self._logs.glob("*.log")) if self._logs.is_dir() else ():
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read().decode(errors="replace")
                text = text.replace(self._passing, "") if self._passing else text
                self._read[path] = file.tell()
            for line in text.splitlines():
                indent = " " * min(20, len(line) - len(line.lstrip()))
                self._say(f"  {indent}{plain(line, _LINE_CHARS)}")


def _say_outcome(outcome: Outcome, say: Say) -> None:
    for line in outcome.message.splitlines():
        say(f"  {plain(line, _LINE_CHARS)}")
    for frame in outcome.frames:
        say(f"  at {plain(str(frame))} in {plain(frame.function)}")
    for component in outcome.components:
        for output in component.outputs:
            say(f"  {plain(component.name)} {plain(output.name)}: max abs error {output.max_abs}")
        for probe in component.probes:
            say(f"  probe {plain(probe.name)}: {probe.status} {plain(probe.message, 400)}".rstrip())
    where = f" at {plain(f'{outcome.component} {outcome.stage}'.strip())}" if outcome.stage else ""
    # A process that died past its source did not say which that was.
    source = plain(outcome.source) or ("no source" if outcome.stage == "source" else "")
    say(f"outcome: {outcome.kind.value}{where} in {outcome.seconds:.1f}s" + (f", from {source}" if source else ""))
