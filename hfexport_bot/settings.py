"""One frozen object from the command line and the repository's settings file.

What decides the result (gates, limits, accepted findings, what is run) comes from the base revision: a change
can't switch off its own check. What a revision brings along to be run (case functions, workarounds) comes
from itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable
from datetime import date
from pathlib import PurePosixPath
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from hfexport_bot.changes.named import Asked
from hfexport_bot.changes.selection import AFTER_MERGE
from hfexport_bot.errors import UsageError
from hfexport_bot.schema import Backend, EngineChoice, Limits, Shapes, Source, Task, Variant, VerdictKind

SETTINGS_PATH = ".github/hfexport.yml"
#: Most times that a case is run again.
MAX_RERUNS = 10
_MAX_BYTES = 1 << 16


def _like(pattern: str, what: str) -> AfterValidator:
    """Refuses text that is not of a form, in words instead of with the pattern."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError("form", "{text} is not {what}", {"text": repr(text), "what": what})
        return text

    return AfterValidator(check)


NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
RelativePath = Annotated[
    str, _like(r"(\w|\.\w)[^:\\]*\.py", "the path of a Python file from the root, such as tools/export_workarounds.py")
]
CheckpointName = Annotated[
    str,
    _like(
        r"(\w[\w.\-]*/)?\w[\w.\-]*(@\w[\w.\-/]*)?",
        "a repository of the hub, such as hf-internal-testing/tiny-random-BertModel, with @BRANCH or @COMMIT behind it",
    ),
]
CaseFunction = Annotated[
    str,
    _like(
        r"(\w|\.\w)[^:\\]*\.py:[A-Za-z_]\w*",
        "the path of a Python file from the root and a function in it, such as export_cases.py:build",
    ),
]


class _Section(BaseModel):
    """Immutable, with the dashes of the file for the underscores of Python."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))


class AcceptedEntry(_Section):
    """A finding the repository lives with. ``id`` is a glob over case ids; ``expires`` is its last day."""

    id: NonEmpty
    reason: NonEmpty
    expires: date | None = None


class LimitSettings(_Section):
    """What one case may use; None is the default."""

    seconds: float | None = Field(default=None, gt=0, le=86_400)
    cpu_seconds: int | None = Field(default=None, gt=0, le=864_000)
    memory_gb: float | None = Field(default=None, gt=0, le=4_096)


class DriftSettings(_Section):
    """How far the numbers of a passing case may move. ``error_factor`` times the old error, or times ``error_floor``
    where that is more: below it, two runs of one float32 graph differ as much. The others are shares of a count."""

    error_factor: float = Field(default=10.0, ge=1)
    error_floor: float = Field(default=1e-6, ge=0)
    nodes: float = Field(default=0.1, ge=0)
    delegates: float = Field(default=0.1, ge=0)
    bytes: float = Field(default=0.1, ge=0)


class SettingsFile(_Section):
    """``.github/hfexport.yml`` as it is written."""

    cases: CaseFunction | None = None
    workarounds: RelativePath | None = None
    fail_on: tuple[VerdictKind, ...] = (VerdictKind.REGRESSION,)
    accepted: tuple[AcceptedEntry, ...] = ()
    limits: LimitSettings = LimitSettings()
    drift: DriftSettings = DriftSettings()
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    reruns: int = Field(default=2, ge=0, le=MAX_RERUNS)
    backends: Annotated[tuple[Backend, ...], Field(min_length=1)] = tuple(Backend)
    shapes: Annotated[tuple[Shapes, ...], Field(min_length=1)] = (Shapes.DYNAMIC,)
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)] = (Task.FORWARD,)
    variants: tuple[Variant, ...] = ()
    engine: EngineChoice = EngineChoice.AUTO
    install: bool = False
    allow_hub: bool = False
    checkpoints: dict[NonEmpty, CheckpointName] = Field(default_factory=dict)
    max_models: int = Field(default=40, ge=0)
    budget_minutes: float = Field(default=30.0, ge=0, le=100_000)


class Overrides(BaseModel):
    """What the command line asks for; empty or None leaves it to the file. ``memory_gb`` is GiB; ``models`` are run
    instead of what a change affects; ``reruns``: see `hfexport_bot.execution.session.run_session`; ``settings`` is the
    path of the file, from a revision's root."""

    model_config = ConfigDict(frozen=True)

    backends: tuple[Backend, ...] = ()
    shapes: tuple[Shapes, ...] = ()
    tasks: tuple[Task, ...] = ()
    variants: tuple[Variant, ...] = ()
    engine: EngineChoice | None = None
    install: bool = False
    sources: tuple[Source, ...] = ()
    fail_on: tuple[VerdictKind, ...] = ()
    seconds: float | None = None
    memory_gb: float | None = None
    disabled_workarounds: tuple[str, ...] = ()
    max_models: int | None = None
    budget_minutes: float | None = None
    models: tuple[str, ...] = ()
    reruns: int | None = None
    settings: str = SETTINGS_PATH


class Hooks(BaseModel):
    """What a revision brings along: a case function (``path.py:function``) and a file of workarounds."""

    model_config = ConfigDict(frozen=True)

    cases: str | None = None
    workarounds: str | None = None


class Settings(BaseModel):
    """Everything that decides a run, settled. ``max_models`` and ``budget_minutes`` of 0 are no limit."""

    model_config = ConfigDict(frozen=True)

    fail_on: tuple[VerdictKind, ...]
    accepted: tuple[AcceptedEntry, ...]
    head_accepted: tuple[AcceptedEntry, ...] = ()
    limits: Limits
    drift: DriftSettings
    seed: int
    reruns: int
    backends: tuple[Backend, ...]
    shapes: tuple[Shapes, ...]
    tasks: tuple[Task, ...]
    variants: tuple[Variant, ...]
    engine: EngineChoice
    sources: tuple[Source, ...]
    install: bool
    allow_hub: bool
    checkpoints: dict[str, str]
    disabled_workarounds: tuple[str, ...]
    max_models: int
    budget_minutes: float
    base_hooks: Hooks
    head_hooks: Hooks


#: Reads a file of one revision by its path from the root; None when there is no such file.
ReadFile = Callable[[str], bytes | None]


class Both(NamedTuple):
    """The settings of two revisions; ``notes`` say why those of base are only the defaults."""

    base: SettingsFile
    head: SettingsFile
    notes: tuple[str, ...] = ()


def read_both(base: ReadFile, head: ReadFile, names: tuple[str, str], path: str) -> Both:
    """Read the settings of two revisions. Where head's are right and base's are not, base has the defaults, which
    excuse nothing, so that a change can correct them.

    Raises what `read_settings` raises for head, and `UsageError` where neither has a file of a ``path`` that is not the
    usual one.
    """
    if path != SETTINGS_PATH and base(path) is None and head(path) is None:
        raise UsageError(f"--settings: there is no {path} in {' or in '.join(dict.fromkeys(names))}")
    of_head = read_settings(head, names[1], path)
    try:
        return Both(read_settings(base, names[0], path), of_head)
    except UsageError as error:
        why = "the defaults are taken, and what head's file sets takes effect after merge"
        return Both(SettingsFile(), of_head, (f"the base's settings cannot be read: {error}; {why}",))


def read_settings(read: ReadFile, revision: str, file: str = SETTINGS_PATH) -> SettingsFile:
    """Read a revision's settings file; the defaults when it has none. ``revision`` names it in errors.

    Raises `UsageError` when it is no YAML, has an unknown key or a wrong value, or names a missing file.
    """
    source = read(file)
    if source is None:
        return SettingsFile()
    where = f"{file} ({revision})"
    settings = _parse(source, where)
    for key, path in (
        ("cases", (settings.cases or "").partition(":")[0]),
        ("workarounds", settings.workarounds),
    ):
        if path and (".." in PurePosixPath(path).parts or read(path) is None):
            raise UsageError(f"{where}: {key}: {path} is not in that revision; give a path from its root")
    return settings


def combine(base: SettingsFile, head: SettingsFile, overrides: Overrides) -> Settings:
    """Settle the files of both revisions (the same one twice for a single revision) and the command line."""
    return Settings(
        fail_on=overrides.fail_on or base.fail_on,
        accepted=base.accepted,
        head_accepted=head.accepted,
        limits=_limits(base.limits, overrides),
        drift=base.drift,
        seed=base.seed,
        reruns=base.reruns if overrides.reruns is None else overrides.reruns,
        backends=overrides.backends or base.backends,
        shapes=overrides.shapes or base.shapes,
        tasks=overrides.tasks or base.tasks,
        variants=overrides.variants or base.variants,
        engine=overrides.engine or base.engine,
        sources=overrides.sources,
        install=overrides.install or base.install,
        allow_hub=base.allow_hub,
        checkpoints=base.checkpoints,
        disabled_workarounds=overrides.disabled_workarounds,
        max_models=base.max_models if overrides.max_models is None else overrides.max_models,
        budget_minutes=base.budget_minutes if overrides.budget_minutes is None else overrides.budget_minutes,
        base_hooks=Hooks(cases=base.cases, workarounds=base.workarounds),
        head_hooks=Hooks(cases=head.cases, workarounds=head.workarounds),
    )


def postponed(base: SettingsFile, head: SettingsFile) -> tuple[str, ...]:
    """The keys that a change sets anew and that take effect only once it is merged."""
    own = {"cases", "workarounds"}
    return tuple(
        name.replace("_", "-")
        for name in SettingsFile.model_fields
        if name not in own and getattr(base, name) != getattr(head, name)
    )


def concerning(both: Both, path: str = SETTINGS_PATH) -> Asked:
    """What the settings of both revisions have to do with which models a change affects: the files that they name,
    checkpoints that are other ones, and findings that are accepted on one side only."""
    base, head, notes = both
    found = [_named_files(file) for file in (base, head)]
    globs = []
    for key in sorted(base.checkpoints.keys() | head.checkpoints.keys()):
        if base.checkpoints.get(key) != head.checkpoints.get(key):
            globs += [(glob, f"its checkpoint changed in {path}") for glob in (f"{key}/*", f"*/{key}/*")]
    for glob in sorted({entry.id for entry in {*base.accepted} ^ {*head.accepted}}):
        globs.append((glob, f"the accepted finding {glob} changed in {path}"))
    keys = ", ".join(f"`{key}`" for key in postponed(base, head)) or ("it can be read again" if notes else "")
    return Asked(
        hooks=found[0] | found[1],
        renamed=frozenset(found[0].keys() ^ found[1].keys()),
        globs=tuple(globs),
        postponed=f"{AFTER_MERGE}: {keys}" if keys and not globs else "",
        file=path,
    )


def _named_files(file: SettingsFile) -> dict[str, str]:
    """What each file that the settings name holds, by path."""
    files = (((file.cases or "").partition(":")[0], "case functions"), (file.workarounds, "workarounds"))
    return {path: what for path, what in files if path}


def require_known(names: Iterable[str], known: Collection[str], option: str = "--disable-workaround") -> None:
    """Refuse to disable a workaround that there is not: that run would measure something else than was asked for."""
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise UsageError(f"{option}: unknown workaround {name!r}{hint}")


def in_force(
    accepted: Iterable[AcceptedEntry], today: date
) -> tuple[tuple[AcceptedEntry, ...], tuple[AcceptedEntry, ...]]:
    """Split accepted findings into those in force on a day and those whose last day is past."""
    entries = tuple(accepted)
    expired = tuple(entry for entry in entries if entry.expires is not None and entry.expires < today)
    return tuple(entry for entry in entries if entry not in expired), expired


def _limits(file: LimitSettings, overrides: Overrides) -> Limits:
    defaults = Limits()
    wall = overrides.seconds or file.seconds or defaults.wall_seconds
    memory = overrides.memory_gb or file.memory_gb
    return Limits(
        wall_seconds=wall,
        # Two threads' worth, so that wall clock is what normally ends a case.
        cpu_seconds=file.cpu_seconds or max(1, round(2 * wall)),
        memory_bytes=round(memory * (1 << 30)) if memory else defaults.memory_bytes,
    )


def _parse(source: bytes, where: str) -> SettingsFile:
    if len(source) > _MAX_BYTES:
        raise UsageError(f"{where} is longer than {_MAX_BYTES >> 10} KiB; shorten it")
    try:
        content = yaml.safe_load(source)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"{where} is no YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return SettingsFile()
    if not isinstance(content, dict):
        raise UsageError(f"{where} must be a mapping of settings, such as `fail-on: [regression]`")
    try:
        return SettingsFile.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{where}: {_first_problem(error)}") from None


#: What pydantic says of Python's types, in YAML's words.
_IN_WORDS = {
    "tuple_type": "must be a list, such as `[first, second]`",
    "dict_type": "must be a mapping, such as `name: value`",
    "model_type": "must be a mapping, such as `name: value`",
    "too_short": "must not be empty; leave it out for the default",
    "string_type": "must be text",
}
_SECTIONS: dict[str, type[_Section]] = {"limits": LimitSettings, "drift": DriftSettings, "accepted": AcceptedEntry}


def _first_problem(error: ValidationError) -> str:
    """One line for the first thing that is wrong."""
    problem: dict[str, Any] = dict(error.errors(include_url=False, include_context=False)[0])
    path = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        section = _SECTIONS.get(path[0], SettingsFile) if len(path) > 1 else SettingsFile
        known = [name.replace("_", "-") for name in section.model_fields]
        close = difflib.get_close_matches(path[-1].replace("_", "-"), known, n=1, cutoff=0)
        return f"unknown key {'.'.join(path)!r}; did you mean {close[0]!r}?"
    said = _IN_WORDS.get(problem["type"], problem["msg"])
    return f"{'.'.join(path)}: {said[0].lower()}{said[1:]}"
