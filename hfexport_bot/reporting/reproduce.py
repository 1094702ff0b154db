"""The commands that run one case of a report, or what its sample left out. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from hfexport_bot.schema import REPO_PREFIX, CaseId, Engine, EngineChoice, Report, Rerun, Shapes, Task


def reproduce(case: CaseId, again: Rerun) -> str:
    """The `check` of one case with what it was run with, quoted for a shell; of head for a case of a ``run``.

    What a folder's settings file may decide is written out even where it is the default.
    """
    named = case.model.rpartition("/")[2].startswith("modeling_")
    target = f"{case.model}.py:{case.class_name}" if named else f"{case.model}/{case.class_name}"
    options = list(_options(case, again))
    words = [*options, "--", target] if target.startswith("-") else [target, *options]
    return shlex.join(["hfexport-bot", "check", *words])


def reproduce_rest(report: Report) -> str:
    """The `run` of all classes that a sample left out, with what the sample was run with; quoted for a shell."""
    ids = [case.id for case in report.cases]
    engines = {case.engine for case in ids}
    words = ["--repo", report.rerun.tree or ".", "--base", report.base.sha if report.base else ""]
    words += ["--head", report.head.sha, "--rest", "hfexport-out/report.json", "--out", "hfexport-rest"]
    words += ["--max-models", "0", "--budget-minutes", "0"]
    asked: tuple[tuple[str, Iterable[str]], ...] = (
        ("--backend", (case.backend for case in ids)),
        ("--shapes", (case.shapes for case in ids)),
        ("--task", (case.task for case in ids)),
        ("--variant", (case.variant for case in ids if case.variant)),
        ("--engine", [EngineChoice.BOTH if len(engines) > 1 else engine for engine in engines]),
    )
    for option, values in asked:
        words += [word for value in dict.fromkeys(values) for word in (option, str(value))]
    return shlex.join(["hfexport-bot", "run", *words, *_given(report.rerun)])


def _options(case: CaseId, again: Rerun) -> Iterator[str]:
    has_settings = bool(again.tree)
    if again.tree:
        yield from ("--tree", again.tree)
    yield from ("--backend", case.backend.value)
    if has_settings or case.shapes is not Shapes.DYNAMIC:
        yield from ("--shapes", case.shapes.value)
    if has_settings or case.task is not Task.FORWARD:
        yield from ("--task", case.task.value)
    if case.variant:
        yield from ("--variant", case.variant.value)
    if has_settings or case.engine is not Engine.OWN:
        yield from ("--engine", case.engine.value)
    disabled = again.disabled_workarounds
    if case.engine is Engine.OWN:  # which knows nothing of the other's, and they would be refused
        disabled = tuple(name for name in disabled if not name.startswith(REPO_PREFIX))
    yield from _given(again.model_copy(update={"disabled_workarounds": disabled}))


def _given(again: Rerun) -> Iterator[str]:
    for source in again.sources:
        yield from ("--source", source.value)
    for workaround in again.disabled_workarounds:
        yield from ("--disable-workaround", workaround)
    if again.install:
        yield "--install"
    if again.seconds is not None:
        yield from ("--seconds", f"{again.seconds:g}")
    if again.memory_gb is not None:
        yield from ("--memory-gb", f"{again.memory_gb:g}")
