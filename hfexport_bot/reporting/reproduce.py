"""The commands that run one case of a report, or what its sample left out. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from hfexport_bot.schema import REPO_PREFIX, CaseId, Engine, EngineChoice, Report, Rerun


def reproduce(case: CaseId, again: Rerun) -> str:
    """The `reproduce` of one case with what it was run with, quoted for a shell: of a commit of the repository that the
    shell is in, or of a folder's files as they are."""
    disabled = again.disabled_workarounds
    if case.engine is Engine.OWN:  # which knows nothing of the other's, and they would be refused
        disabled = tuple(name for name in disabled if not name.startswith(REPO_PREFIX))
    given = _given(again.model_copy(update={"disabled_workarounds": disabled}))
    if again.rev:
        where = [*(["--repo", again.tree] if again.tree not in ("", ".") else []), "--rev", again.rev]
    else:
        where = ["--tree", again.tree] if again.tree else []
    options = [*where, *given]
    words = [*options, "--", str(case)] if str(case).startswith("-") else [str(case), *options]
    return shlex.join(["hfexport-bot", "reproduce", *words])


def check_again(case: CaseId) -> str:
    """The `check` of one case's class by whoever has it, whichever revision: to tell others of. Quoted for a shell."""
    name = f"{case.model}.py:{case.class_name}" if is_of_a_file(case) else f"{case.model}/{case.class_name}"
    words = ["--backend", case.backend.value]
    for field in ("shapes", "task", "variant"):
        value = getattr(case, field)
        if value is not CaseId.model_fields[field].default:
            words += [f"--{field}", value.value]
    words += ["--engine", case.engine.value]
    return shlex.join(["hfexport-bot", "check", *words, *(["--"] if name.startswith("-") else []), name])


def is_of_a_file(case: CaseId) -> bool:
    """Whether a case's model is a file of a repository's own, which it is called by, and none of transformers'."""
    return case.model.rpartition("/")[2].startswith("modeling_")


def reproduce_rest(report: Report) -> str:
    """The `run` of all classes that a sample left out, with what the sample was run with; quoted for a shell."""
    ids = [case.id for case in report.cases]
    engines = {case.engine for case in ids}
    out = report.rerun.out.rstrip("/")
    words = ["--repo", report.rerun.tree or ".", "--base", report.base.sha if report.base else ""]
    words += ["--head", report.head.sha, "--rest", f"{out}/report.json", "--out", f"{out}-rest"]
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


def _given(again: Rerun) -> Iterator[str]:
    for source in again.sources:
        yield from ("--source", source.value)
    for workaround in again.disabled_workarounds:
        yield from ("--disable-workaround", workaround)
    if again.settings:
        yield from ("--settings", again.settings)
    if again.install:
        yield "--install"
    if again.seconds is not None:
        yield from ("--seconds", f"{again.seconds:g}")
    if again.memory_gb is not None:
        yield from ("--memory-gb", f"{again.memory_gb:g}")
