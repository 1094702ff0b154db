"""A plan on disk, and its shards: what one job decides and other jobs run, a part each."""

from __future__ import annotations

import hashlib
import heapq
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from hfexport_bot.changes.workarounds import EditedWorkarounds
from hfexport_bot.errors import UsageError
from hfexport_bot.plan import PlannedCase
from hfexport_bot.sample import case_seconds, key_of
from hfexport_bot.schema import CaseId, Layout, NotRun, Record, Rerun, Revision, Said, Sample, Shard
from hfexport_bot.settings import Settings

#: GitHub runs no larger matrix.
MAX_SHARDS = 256
_MAX_BYTES = 128 << 20
_FORM: Final = 1


class Plan(Record):
    """Everything that a shard needs to know: what is compared, with which settings, which cases, in which shards, and
    what the report will say of the rest. ``version`` is this program's own. ``modules`` are the dotted names of the
    affected modeling files, from which the sample may have taken only some. ``whole``: a sweep is of every model.
    ``edited``: the workarounds that the change is about."""

    form: Literal[1] = _FORM
    version: str
    command: Literal["run", "check", "sweep"]
    base: Revision | None = None
    head: Revision
    layout: Layout
    settings: Settings
    cases: tuple[PlannedCase, ...] = ()
    shards: tuple[tuple[CaseId, ...], ...] = ()
    not_run: tuple[NotRun, ...] = ()
    notes: tuple[Said, ...] = ()
    sample: Sample | None = None
    rerun: Rerun = Rerun()
    modules: tuple[str, ...] = ()
    whole: bool = True
    edited: EditedWorkarounds = EditedWorkarounds()

    @property
    def digest(self) -> str:
        """Tells this plan from any other."""
        return hashlib.sha256(self.dump().encode()).hexdigest()

    def dump(self) -> str:
        """The plan as a file has it."""
        return self.model_dump_json(indent=1, by_alias=True) + "\n"

    def cases_of(self, shard: Shard) -> tuple[PlannedCase, ...]:
        """The cases of one shard, in the plan's order."""
        asked = set(self.shards[shard.number - 1])
        return tuple(case for case in self.cases if case.id in asked)

    def shard(self, number: int, of: int) -> Shard:
        """One of the plan's shards. Raises `UsageError` where it has no such one."""
        if of != len(self.shards) or not 1 <= number <= of:
            known = f"1/{len(self.shards)} to {len(self.shards)}/{len(self.shards)}" if self.shards else "none"
            raise UsageError(f"--shard {number}/{of}: this plan's shards are {known}")
        return Shard(number=number, of=of, plan=self.digest)


def own_version() -> str:
    """The version of this program."""
    return importlib.metadata.version("hfexport-bot")


def read_plan(file: Path) -> Plan:
    """Read what `Plan.dump` wrote. Raises `UsageError` for what is none, or is one of another version."""
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--plan: {file} cannot be read: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise UsageError(f"--plan: {file} is longer than {_MAX_BYTES >> 20} MiB and was not read")
    _require_version(content, file)
    try:
        plan = Plan.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:200]
        raise UsageError(f"--plan: {file} is no plan: {f'{where}: ' if where else ''}{first['msg']}") from None
    packed = [case for shard in plan.shards for case in shard]
    if len(packed) != len(set(packed)) or set(packed) != {case.id for case in plan.cases}:
        raise UsageError(f"--plan: {file} is damaged: its shards don't have each of its cases once; plan again")
    return plan


def _require_version(content: bytes, file: Path) -> None:
    """A plan of another version may have other fields, of which nobody wants to read."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"--plan: {file} is no JSON; make it with `hfexport-bot plan`") from None
    version = found.get("version") if isinstance(found, dict) else None
    if isinstance(version, str) and version != own_version():
        raise UsageError(
            f"--plan: {file} was made by hfexport-bot {version[:40]!r} and this is {own_version()}; "
            "use the same one in all jobs"
        )


@dataclass(frozen=True)
class _Parcel:
    """Cases that stay together, and how many seconds they take."""

    seconds: float
    first: int
    cases: tuple[PlannedCase, ...]


def pack(
    planned: Sequence[PlannedCase], recorded: Mapping[CaseId, float], shards: int
) -> tuple[tuple[CaseId, ...], ...]:
    """Share cases out among at most ``shards`` jobs, so that all take about as long; fewer where there is too little.

    The longest goes first, to the job that has least. A class's cases stay together, since its model is the same,
    unless they take longer than a job should.
    """
    if not 1 <= shards <= MAX_SHARDS:
        raise UsageError(f"--shards: {shards} is not between 1 and {MAX_SHARDS}")
    total = sum(case_seconds(case, recorded) for case in planned)
    by_class: dict[tuple[str, str], list[tuple[int, PlannedCase]]] = {}
    for place, case in enumerate(planned):
        by_class.setdefault(key_of(case), []).append((place, case))
    parcels: list[_Parcel] = []
    for numbered in by_class.values():
        seconds = sum(case_seconds(case, recorded) for _, case in numbered)
        if seconds > total / shards:
            parcels += [_Parcel(case_seconds(case, recorded), place, (case,)) for place, case in numbered]
        else:
            parcels.append(_Parcel(seconds, numbered[0][0], tuple(case for _, case in numbered)))
    loads = [(0.0, number) for number in range(min(shards, len(parcels)))]
    found: list[list[_Parcel]] = [[] for _ in loads]
    for parcel in sorted(parcels, key=lambda each: (-each.seconds, each.first)):
        load, number = heapq.heappop(loads)
        found[number].append(parcel)
        heapq.heappush(loads, (load + parcel.seconds, number))
    order = {case.id: place for place, case in enumerate(planned)}
    return tuple(
        tuple(sorted((case.id for parcel in each for case in parcel.cases), key=order.__getitem__)) for each in found
    )
