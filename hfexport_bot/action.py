"""The whole of a GitHub Actions job as one command: inputs and event in, the other commands one after the other."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hfexport_bot.changes.git import Git
from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.inputs import OPTIONS, PUBLISH_OPTIONS, RUN_OPTIONS, Inputs, in_words_of_inputs
from hfexport_bot.process import CLEAN, FAILED, FINDINGS, INTERRUPTED, USAGE, Process
from hfexport_bot.schema import NotRun, Report, Revision

if TYPE_CHECKING:
    from hfexport_bot.github.event import Event, Step

#: The folder for reports where the inputs name none.
DEFAULT_OUT = "hfexport-out"

#: Runs a command line of this program and returns its exit code.
Call = Callable[[Sequence[str]], int]


def run_line(inputs: Inputs, out: Path, base: str, head: str) -> list[str]:
    """The command line that runs what this job is for: a change where there is a base, otherwise the models named."""
    where, models = ["--out", str(out)], inputs.words("models")
    if base:
        named = [f"--model={name}" for name in models]
        options = inputs.options({**OPTIONS, **RUN_OPTIONS})
        return ["run", "--repo", ".", "--base", base, "--head", head or "HEAD", *where, *named, *options]
    if models:
        return ["check", "--tree", ".", *where, *inputs.options(OPTIONS), "--", *models]
    raise UsageError(
        "this event names no revision to compare with; give the input base, or models to check without one"
    )


def publish_line(inputs: Inputs, folder: Path) -> list[str]:
    """The command line that publishes the report in a folder."""
    acceptance = inputs.acceptance()
    accept = ["--accept", *acceptance] if acceptance else []
    return ["publish", "--out", str(folder), *inputs.options(PUBLISH_OPTIONS), *accept, "--", str(folder)]


def act(
    environment: MutableMapping[str, str], call: Call, commands: Mapping[str, click.Command], reasons: list[str]
) -> int:
    """Do what this job is for, as the event and the input ``mode`` have it; the exit code of the job.

    ``commands`` are those that ``call`` runs, which says in ``reasons`` why one has failed. A finding makes ``run``
    alone no failure: the stage that publishes has the check that is red. So has what else goes wrong, wrong inputs too,
    with the reason; a job that only runs has it in its summary and outputs. ``environment`` has the token only once
    nothing of the change runs any more. Raises `UsageError` for an event that there is no use for.
    """
    from hfexport_bot.github.event import Step

    inputs = Inputs.read(environment)
    token = inputs["token"] or environment.get("GITHUB_TOKEN", "")
    for name in ("INPUT_TOKEN", "GITHUB_TOKEN"):
        environment.pop(name, None)
    if inputs["cache"]:
        environment["XDG_CACHE_HOME"] = str(Path(inputs["cache"]).absolute())
    event = _event(environment)
    steps, problem = _steps(event, inputs["mode"])
    if not steps:
        click.echo(f"Nothing to do: {event.nothing}.")
    job = _Job(inputs, event, Path(inputs["out"] or DEFAULT_OUT), call, reasons, runs=Step.RUN in steps)
    worst = job.check(commands, problem) if steps else CLEAN
    if problem and Step.COMMAND in steps:  # an order must not be carried out by guesswork
        _tell_problem(problem, environment)
        return worst
    for step in steps:
        if step is Step.RUN:
            code = USAGE if job.problem else job.run()
            if code == INTERRUPTED:
                if Step.PUBLISH in steps:
                    _conclude_cancelled(environment, token, inputs)
                return code
            if Step.PUBLISH not in steps:
                _tell(job.out, environment)
            worst = max(worst, CLEAN if code == FINDINGS else code)
        else:
            line = ["command"] if step is Step.COMMAND else job.publish_line()
            if token:  # only now: what runs a change's code must not see it
                environment["GITHUB_TOKEN"] = token
            code = call(line)
            if code == USAGE:
                _tell_problem(in_words_of_inputs("; ".join(reasons[-1:])), environment)
            worst = max(worst, code)
    return worst


def _event(environment: Mapping[str, str]) -> Event:
    from hfexport_bot.github.event import read_event

    try:
        return read_event(environment)
    except UsageError as error:
        _tell_problem(str(error), environment)
        raise


def _steps(event: Event, mode: str) -> tuple[tuple[Step, ...], str]:
    """What to do, and why it is not what the input ``mode`` asks for; empty where it is. No code of a change may run
    where that is refused, but whoever waits for the check is told."""
    from hfexport_bot.github.event import Mode

    problem, wanted = "", Mode.AUTO
    try:
        wanted = Mode(mode or Mode.AUTO)
    except ValueError:
        problem = f"input mode: {mode!r} is none of {', '.join(Mode)}"
    try:
        return event.steps(wanted), problem
    except UsageError as error:
        return event.steps(Mode.PUBLISH), problem or str(error)


@dataclass
class _Job:
    """A job's steps. ``out`` has the report; ``runs``: it is this job that makes it. ``problem`` is why it cannot do
    what it is for, and ``told`` the folder with the report that says so."""

    inputs: Inputs
    event: Event
    out: Path
    call: Call
    reasons: list[str]
    runs: bool
    problem: str = ""
    told: Path = Path()

    def check(self, commands: Mapping[str, click.Command], problem: str = "") -> int:
        """Look at all inputs before anything is done; wrong ones count as not given from then on."""
        wrong = list(self.inputs.problems(commands))
        self.inputs = self.inputs.without({name for name, _ in wrong})
        problems = [problem] * bool(problem) + [f"input {name}: {said}" for name, said in wrong]
        return self._refuse("; ".join(problems)) if problems else CLEAN

    def run(self) -> int:
        """Run the change; the exit code. There is a report then, whatever happens, unless it was interrupted."""
        try:
            _clear(self.out)
            base = self.inputs["base"] or known_base(self.event, Git)
            if not base and self.event.name == "push":
                click.echo("There is no commit to compare this push with.")
                _leave(_nothing_before(self.event), self.out)
                return CLEAN
            if self.event.base and base not in (self.event.base, self.inputs["base"]):
                click.echo(f"{self.event.base[:12]} is not in this clone: compared with {base}.")
            line = run_line(self.inputs, self.out, base, self.event.head)
        except UsageError as error:
            return self._refuse(str(error))
        code = self.call(line)
        if code in (USAGE, FAILED) and not (self.out / "report.json").exists():
            _leave(failed(self.event, in_words_of_inputs("; ".join(self.reasons))), self.out)
        return code

    def publish_line(self) -> list[str]:
        """The command line that publishes what there is to tell: a problem is no part of the report that was made."""
        if not self.problem:
            return publish_line(self.inputs, self.out)
        return publish_line(self.inputs.without({"accept"}), self.told)

    def _refuse(self, problem: str) -> int:
        click.echo(f"error: {problem}", err=True)
        self.problem = problem
        if self.runs and _is_own(self.out):  # one that is there is none of this run's
            with contextlib.suppress(OSError):
                (self.out / "report.json").unlink(missing_ok=True)
        kept = (self.out / "report.json").exists()  # of the stage before: it stays, beside what is told of this one
        report = failed(self.event, problem)
        wanted = (self.out / "failed" if kept else self.out, Path(DEFAULT_OUT))
        self.told = next((folder for folder in wanted if _leave(report, folder)), Path())
        if self.told == Path():  # the last that may be written to
            self.told = Path(tempfile.mkdtemp(prefix="hfexport-failed-"))
            _leave(report, self.told)
        if self.runs:
            self.out = self.told
        return USAGE


def known_base(event: Event, git: Callable[[Path], Git]) -> str:
    """The revision to compare with: the first of those that suit the event which is in this clone. After a forced push
    the commit before it may be nowhere, and a new branch has none."""
    if not event.others:
        return event.base
    repository = git(Path())
    for revision in filter(None, (event.base, *event.others)):
        try:
            if repository.has_commit(repository.resolve(revision)):
                return revision
        except UsageError:
            continue
    return ""


def failed(event: Event, reason: str) -> Report:
    """The report of a run that failed before it could write one."""
    base = Revision(name=event.base) if event.base else None
    head = Revision(name=event.head or event.sha, sha=event.sha)
    return Report(command="run", base=base, head=head, failure=reason or "the run ended before it could write a report")


def _nothing_before(event: Event) -> Report:
    reason = "this push has no commit before it that is in the clone (actions/checkout: fetch-depth: 0)"
    left = NotRun(kind="file", name="every file", reason=reason)
    return Report(command="run", head=Revision(name=event.head, sha=event.sha), not_run=(left,))


def _leave(report: Report, folder: Path) -> bool:
    """Leave a report for the stage that publishes; where even that cannot be, the log has its reason."""
    from hfexport_bot.reporting.writing import write_reports

    try:
        if _is_own(folder):
            write_reports(report, folder)
            return True
    except OSError as error:
        click.echo(f"{folder} cannot be written: {error.strerror}", err=True)
    return False


def _conclude_cancelled(environment: MutableMapping[str, str], token: str, inputs: Inputs) -> None:
    from hfexport_bot.github.job import conclude_cancelled

    if token:
        environment["GITHUB_TOKEN"] = token
    try:
        conclude_cancelled(environment, inputs["check-name"] or "Export check")
    except (UsageError, RunError) as error:
        click.echo(f"No check: {error}.", err=True)


def _is_own(out: Path) -> bool:
    """Whether a folder is where it says it is, through no link."""
    return out.resolve() == Path.cwd().resolve() / out


def _clear(out: Path) -> None:
    """No report but this run's may be there in the end: the change could have brought one, or a link to elsewhere."""
    if not _is_own(out):
        raise UsageError(f"input out: {out} leads through a link to {out.resolve()}; give a folder that is none")
    try:
        (out / "report.json").unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"input out: {out} cannot be written: {error.strerror}; give another folder") from None


def _tell_problem(problem: str, environment: Mapping[str, str]) -> None:
    """The outputs and the page of a job that could not even begin."""
    from hfexport_bot.github.outputs import append_outputs, append_summary
    from hfexport_bot.github.publish import Result, problem_text
    from hfexport_bot.reporting.text import one_line

    append_outputs(environment.get("GITHUB_OUTPUT", ""), {"problem": one_line(problem, 400)})
    append_summary(environment.get("GITHUB_STEP_SUMMARY", ""), problem_text(Result(None, problem)))


def _tell(out: Path, environment: Mapping[str, str]) -> None:
    """The outputs and the page of a job that only runs; another one publishes."""
    from hfexport_bot.github.outputs import append_outputs, append_summary, full_summary, values_of
    from hfexport_bot.github.report_file import read_report
    from hfexport_bot.reporting.text import one_line

    try:
        report = read_report(out)
    except UsageError as error:
        _tell_problem(str(error), environment)
        return
    paths = {name.replace(".", "-"): str(out / name) for name in ("report.json", "report.md", "junit.xml")}
    why = {"problem": one_line(report.failure, 400)}
    append_outputs(environment.get("GITHUB_OUTPUT", ""), {**values_of(report), **paths, **why})
    append_summary(environment.get("GITHUB_STEP_SUMMARY", ""), full_summary(report))


@click.command()
@click.pass_obj
def action(process: Process) -> int:
    """Do what a job of GitHub Actions is for: run, publish, or read a comment, by its event and the INPUT_ variables.

    The inputs are those of action.yml, such as INPUT_MODELS and INPUT_FAIL_ON.
    """
    commands = click.get_current_context().find_root().command
    assert isinstance(commands, click.Group)
    return act(os.environ, process.call, commands.commands, process.reasons)
