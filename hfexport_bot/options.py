"""The options that several commands share, and what they come to."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hfexport_bot.schema import Backend, CaseId, EngineChoice, Shapes, Source, Task, Variant, VerdictKind

if TYPE_CHECKING:
    from hfexport_bot.settings import Overrides

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Amount(click.FloatRange):
    """More than nothing and at most ``largest``, which is the settings file's limit too."""

    def __init__(self, largest: float) -> None:
        super().__init__(0, largest, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):  # neither below nor above any bound
            self.fail(f"{value} is no number.", param, ctx)
        return number


class PathInRepository(click.ParamType[str]):
    """The path of a file from a repository's root, also of a revision that is not checked out."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = posixpath.normpath(str(value))
        if path.startswith("/") or path.split("/")[0] == "..":
            self.fail(f"{value!r} leads out of the repository; give a path from its root.", param, ctx)
        return path


#: Another place of the settings file.
settings_file = click.option(
    "--settings",
    type=PathInRepository(),
    metavar="PATH",
    help="The settings file, by its path from the repository's root. Default: .github/hfexport.yml.",
)


#: Which verdicts are red.
fail_on = click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([each.value for each in VerdictKind]),
    help="Verdict that fails the run; may be repeated. Default: regression.",
)


#: The tree of a command that runs one revision.
tree = click.option(
    "--tree",
    type=click.Path(path_type=Path),
    help="A transformers checkout or a folder of modeling files. Default: the installed transformers.",
)


_disabled = click.option(
    "--disable-workaround",
    "disabled",
    multiple=True,
    metavar="ID",
    help="Run without this workaround; may be repeated.",
)

#: Where models come from and what they run in.
_environment = (
    click.option(
        "--source",
        "sources",
        multiple=True,
        type=click.Choice([each.value for each in Source]),
        help="Where models and inputs may come from; may be repeated. Default: all, in this order.",
    ),
    click.option(
        "--install",
        is_flag=True,
        help="Run in an environment with what the revision's requirements want in other versions than installed.",
    ),
    settings_file,
    click.option("--seconds", type=Amount(86_400), help="Wall time of one case."),
    click.option("--memory-gb", type=Amount(4_096), help="Memory of one case, GiB."),
)


def comparing(command: _Command) -> _Command:
    """The options of every command that compares two revisions."""
    return _with(
        command,
        click.option(
            "--repo",
            type=click.Path(path_type=Path),
            default=".",
            show_default=True,
            help="A folder in the git repository.",
        ),
        click.option(
            "--base",
            metavar="REV",
            help="What to compare with: from the merge base on, or from the first parent of a pull request's merge.",
        ),
        click.option("--head", default="HEAD", show_default=True, metavar="REV", help="The change."),
        click.option(
            "--record",
            "records",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="An earlier report.json: what changed patches of the checkout's exporters act on, what composite "
            "models are built from, how long cases take; may be repeated.",
        ),
        click.option(
            "--files",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The changed files as GitHub's API lists them for a pull request, in place of git's own list.",
        ),
    )


def running(command: _Command) -> _Command:
    """The options of every command that runs models."""
    return _with(
        command,
        click.option(
            "--task",
            "tasks",
            multiple=True,
            type=click.Choice([each.value for each in Task]),
            help="One forward, or prefill and decode of the classes that generate; may be repeated. Default: forward.",
        ),
        click.option(
            "--variant",
            "variants",
            multiple=True,
            type=click.Choice([each.value for each in Variant]),
            help="Run the models also with this switch of theirs turned; may be repeated.",
        ),
        *_environment,
        click.option("--jobs", type=click.IntRange(1), help="Cases at a time over all. Default: the cpus."),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
        click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON and no table."),
    )


def exporting(command: _Command) -> _Command:
    """The options of every command that exports models."""
    return _with(
        command,
        click.option(
            "--backend",
            "backends",
            multiple=True,
            type=click.Choice([each.value for each in Backend]),
            help="What to export to; may be repeated. Default: all.",
        ),
        click.option(
            "--shapes",
            multiple=True,
            type=click.Choice([each.value for each in Shapes]),
            help="Whether other sizes than the traced ones must work; may be repeated. Default: dynamic.",
        ),
        click.option(
            "--engine",
            type=click.Choice([each.value for each in EngineChoice]),
            help="Who exports: ours, the revision's transformers.exporters (repo), or both. Default: auto, both where "
            "a checkout has them.",
        ),
        _disabled,
    )


def reproducing(command: _Command) -> _Command:
    """The options of `reproduce`."""
    return _with(
        command,
        tree,
        click.option("--repo", type=click.Path(path_type=Path), help="A folder in a git repository, with --rev."),
        click.option("--rev", metavar="REV", help="The revision of the repository to run; default HEAD."),
        click.option(
            "--keep",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="A new folder for what each stage made: inputs, traced program, artifact, outputs, logs.",
        ),
        _disabled,
        *_environment,
    )


#: Where reports go.
reporting = click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="hfexport-out",
    show_default=True,
    help="Folder for report.md, report.json and junit.xml.",
)


def required(base: str | None) -> str:
    """The revision to compare with, which this command cannot do without."""
    if not base:
        raise click.UsageError("Missing option '--base': the revision to compare with, such as main.")
    return base


def limiting(command: _Command) -> _Command:
    """How much of what a change affects is run, and how often."""
    return _with(
        command,
        click.option(
            "--model",
            "models",
            multiple=True,
            metavar="MODEL",
            help="Run this model, named as for check, and not what the change affects; may be repeated.",
        ),
        click.option(
            "--reruns",
            type=click.IntRange(0, 10),
            help="How often to run again, on both sides, what came to another end than on base. Default: 2.",
        ),
        click.option(
            "--max-models",
            type=click.IntRange(0),
            help="Run at most so many classes, a sample of those affected; 0: all. Default: 40.",
        ),
        click.option(
            "--budget-minutes",
            type=click.FloatRange(0, 100_000),
            help="Run a sample that takes about so long, both sides together; 0: no limit. Default: 30.",
        ),
        click.option(
            "--rest",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The report.json of a sample of this change: run what it left out.",
        ),
    )


def overrides_of(
    *,
    tasks: tuple[str, ...],
    variants: tuple[str, ...],
    sources: tuple[str, ...],
    install: bool,
    seconds: float | None,
    memory_gb: float | None,
    backends: tuple[str, ...] = (),
    shapes: tuple[str, ...] = (),
    engine: str | None = None,
    fail_on: tuple[str, ...] = (),
    disabled: tuple[str, ...] = (),
    max_models: int | None = None,
    budget_minutes: float | None = None,
    models: tuple[str, ...] = (),
    reruns: int | None = None,
    settings: str | None = None,
) -> Overrides:
    """What the options ask for instead of the settings file's values."""
    from hfexport_bot.settings import SETTINGS_PATH, Overrides

    return Overrides(
        backends=tuple(map(Backend, backends)),
        shapes=tuple(map(Shapes, shapes)),
        tasks=tuple(map(Task, tasks)),
        variants=tuple(map(Variant, variants)),
        engine=EngineChoice(engine) if engine else None,
        sources=tuple(map(Source, sources)),
        install=install,
        fail_on=tuple(map(VerdictKind, fail_on)),
        seconds=seconds,
        memory_gb=memory_gb,
        disabled_workarounds=disabled,
        max_models=max_models,
        budget_minutes=budget_minutes,
        models=models,
        reruns=reruns,
        settings=settings or SETTINGS_PATH,
    )


def _with(command: _Command, *options: Callable[[_Command], _Command]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def overrides_of_case(case: CaseId, **options: Any) -> Overrides:
    """What the options ask for, and that only this case is run."""
    return overrides_of(
        tasks=(case.task,),
        backends=(case.backend,),
        shapes=(case.shapes,),
        engine=case.engine,
        variants=(case.variant,) if case.variant else (),
        **options,
    )
