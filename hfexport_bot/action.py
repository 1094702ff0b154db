"""The whole of a GitHub Actions job as one command: inputs and event in, the other commands one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from hfexport_bot.errors import UsageError
from hfexport_bot.process import CLEAN, FAILED, FINDINGS, INTERRUPTED, Process

#: What each input that is an option of `run` or `check` is called there; lists give it several times.
OPTIONS: Mapping[str, str] = {
    "backends": "--backend",
    "shapes": "--shapes",
    "tasks": "--task",
    "engine": "--engine",
    "install": "--install",
    "seconds": "--seconds",
    "memory-gb": "--memory-gb",
    "settings": "--settings",
}
#: Those of `run` alone.
RUN_OPTIONS: Mapping[str, str] = {
    "fail-on": "--fail-on",
    "budget-minutes": "--budget-minutes",
    "max-models": "--max-models",
}
#: Those of `publish`.
PUBLISH_OPTIONS: Mapping[str, str] = {
    "fail-on": "--fail-on",
    "comment": "--comment",
    "check-name": "--check-name",
    "settings": "--settings",
    "head": "--head",
}
LISTS = frozenset({"models", "backends", "shapes", "tasks", "fail-on"})
SWITCHES = frozenset({"install"})
#: Inputs that are no option of a command.
OWN = frozenset({"models", "base", "out", "mode", "token", "cache", "accept"})
#: Every input of action.yml.
INPUTS = frozenset({*OPTIONS, *RUN_OPTIONS, *PUBLISH_OPTIONS, *OWN})
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"", "false", "no", "off", "0"})

#: Runs a command line of this program and returns its exit code.
Call = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Inputs:
    """An action's inputs by name, as GitHub hands them over: texts, empty where they are not given."""

    values: Mapping[str, str]

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Inputs:
        """Read ``INPUT_FAIL-ON``, as a container gets it, or ``INPUT_FAIL_ON``, which a shell can set too."""
        found = {}
        for name in INPUTS:
            key = f"INPUT_{name.upper()}"
            found[name] = (environment.get(key) or environment.get(key.replace("-", "_")) or "").strip()
        return cls(found)

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def words(self, name: str) -> list[str]:
        """A list, separated by commas, blanks or lines."""
        return self[name].replace(",", " ").split()

    def options(self, names: Mapping[str, str]) -> Iterator[str]:
        """Inputs as options of a command."""
        for name, option in names.items():
            if name in SWITCHES:
                yield from [option] if self._switch(name) else []
                continue
            for value in self.words(name) if name in LISTS else filter(None, [self[name]]):
                yield f"{option}={value}"

    def _switch(self, name: str) -> bool:
        value = self[name].lower()
        if value not in _TRUE | _FALSE:
            raise UsageError(f"input {name}: {self[name]!r} is neither true nor false")
        return value in _TRUE


def run_line(inputs: Inputs, base: str, head: str) -> list[str]:
    """The command line that runs what this job is for: a change where there is a base, otherwise the models named."""
    out, models = ["--out", inputs["out"]], inputs.words("models")
    if base:
        named = [f"--model={name}" for name in models]
        options = inputs.options({**OPTIONS, **RUN_OPTIONS})
        return ["run", "--repo", ".", "--base", base, "--head", head or "HEAD", *out, *named, *options]
    if models:
        return ["check", "--tree", ".", *out, *inputs.options(OPTIONS), "--", *models]
    raise UsageError(
        "this event names no revision to compare with; give the input base, or models to check without one"
    )


def publish_line(inputs: Inputs) -> list[str]:
    """The command line that publishes the report."""
    case, _, reason = inputs["accept"].partition(" ")
    if case and not reason.strip():
        raise UsageError("input accept: give a case and then the reason, such as: bert/* not shipped yet")
    accept = ["--accept", case, reason.strip()] if case else []
    return ["publish", "--out", inputs["out"], *inputs.options(PUBLISH_OPTIONS), *accept, "--", inputs["out"]]


def act(environment: MutableMapping[str, str], call: Call) -> int:
    """Do what this job is for, as the event and the input ``mode`` have it; the exit code of the job.

    A finding makes ``run`` alone no failure: the stage that publishes has the check that is red. ``environment`` has
    the token only once nothing of the change runs any more. Raises `UsageError` for wrong inputs.
    """
    from hfexport_bot.github.event import Mode, Step, read_event

    inputs = Inputs.read(environment)
    token = inputs["token"] or environment.get("GITHUB_TOKEN", "")
    for name in ("INPUT_TOKEN", "GITHUB_TOKEN"):
        environment.pop(name, None)
    try:
        mode = Mode(inputs["mode"] or Mode.AUTO)
    except ValueError:
        raise UsageError(f"input mode: {inputs['mode']!r} is none of {', '.join(Mode)}") from None
    inputs = Inputs({**inputs.values, "out": inputs["out"] or "hfexport-out"})
    if inputs["cache"]:
        environment["XDG_CACHE_HOME"] = str(Path(inputs["cache"]).absolute())
    event = read_event(environment)
    steps = event.steps(mode)
    if not steps:
        click.echo(f"Nothing to do: {event.nothing}.")
    worst = CLEAN
    for step in steps:
        if step is Step.RUN:
            _clear(Path(inputs["out"]))
            code = call(run_line(inputs, inputs["base"] or event.base, event.head))
            if Step.PUBLISH not in steps and code in (CLEAN, FINDINGS, FAILED, INTERRUPTED):
                _tell(Path(inputs["out"]), environment)
            if code == INTERRUPTED:
                return code
            worst = max(worst, CLEAN if code == FINDINGS else code)
        else:
            line = ["command"] if step is Step.COMMAND else publish_line(inputs)
            if token:  # only now: what runs a change's code must not see it
                environment["GITHUB_TOKEN"] = token
            worst = max(worst, call(line))
    return worst


def _clear(out: Path) -> None:
    """No report but this run's may be there in the end: the change could have brought one, or a link to elsewhere."""
    if out.resolve() != Path.cwd().resolve() / out:
        raise UsageError(f"input out: {out} leads through a link to {out.resolve()}; give a folder that is none")
    try:
        (out / "report.json").unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"input out: {out} cannot be written: {error.strerror}; give another folder") from None


def _tell(out: Path, environment: Mapping[str, str]) -> None:
    """The outputs and the page of a job that only runs; another one publishes."""
    from hfexport_bot.github.outputs import append_outputs, append_summary, full_summary, values_of
    from hfexport_bot.github.report_file import read_report

    try:
        report = read_report(out)
    except UsageError:  # the run failed before there was anything to tell
        return
    paths = {name.replace(".", "-"): str(out / name) for name in ("report.json", "report.md", "junit.xml")}
    append_outputs(environment.get("GITHUB_OUTPUT", ""), {**values_of(report), **paths})
    append_summary(environment.get("GITHUB_STEP_SUMMARY", ""), full_summary(report))


@click.command()
@click.pass_obj
def action(process: Process) -> int:
    """Do what a job of GitHub Actions is for: run, publish, or read a comment, by its event and the INPUT_ variables.

    The inputs are those of action.yml, such as INPUT_MODELS and INPUT_FAIL_ON.
    """
    return act(os.environ, process.call)
