"""Ask a runner's interpreter which workarounds are registered there, and what a revision's own exporters reach for."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from hfexport_bot.errors import RunError
from hfexport_bot.execution.environment import private_home, runner_environment
from hfexport_bot.execution.isolation import read_by, worker
from hfexport_bot.schema import ExporterTarget, RunnerSetup, WorkaroundInfo

_SECONDS = 300
_MAX_BYTES = 4 << 20

_Line = TypeVar("_Line", bound=BaseModel)


def list_workarounds(command: Sequence[str] | None = None) -> tuple[WorkaroundInfo, ...]:
    """Every registered workaround, in order of registration.

    ``command`` is started in place of the runner's listing, with ``--events-fd N`` appended. Raises `RunError` when it
    fails or writes something else.
    """
    command = command or (sys.executable, "-P", "-m", "hfexport_bot.runner.listing")
    return _listed(command, WorkaroundInfo, "the workarounds")


def list_exporter_targets(
    setup: RunnerSetup, modules: Sequence[str], command: Sequence[str] | None = None
) -> tuple[ExporterTarget, ...]:
    """What the patches and input preparers of a revision's own exporters reach for, and whether it is there: outside of
    models, and in the modeling files whose dotted names are ``modules``.

    ``command`` is as for `list_workarounds`; it is given ``setup`` as a line of JSON. Raises `RunError` as that does,
    also where the revision has no exporters.
    """
    command = command or (sys.executable, "-P", "-m", "hfexport_bot.runner.exporter_targets")
    names = [part for module in modules for part in ("--module", module)]
    given = setup.model_dump_json()
    return _listed([*command, *names], ExporterTarget, "the targets of the exporters", given, read_by(setup))


def _listed(
    command: Sequence[str], kind: type[_Line], what: str, given: str = "", reads: Sequence[str] = ()
) -> tuple[_Line, ...]:
    # Files rather than pipes: nothing it writes can make either side wait.
    with (
        private_home() as home,
        worker(home, reads) as user,
        tempfile.TemporaryFile() as found,
        tempfile.TemporaryFile() as log,
    ):
        try:
            subprocess.run(
                [*command, "--events-fd", str(found.fileno())],
                input=f"{given}\n".encode(),
                stdout=log,
                stderr=log,
                cwd=home,
                env=runner_environment(os.environ, home),
                pass_fds=[found.fileno()],
                check=True,
                timeout=_SECONDS,
                **user.options,
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"{what} could not be listed within {_SECONDS} s") from None
        except subprocess.CalledProcessError as error:
            log.seek(0)
            last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise RunError(f"{what} could not be listed (exit code {error.returncode}): {last}") from None
        found.seek(0)
        try:
            return tuple(kind.model_validate_json(line) for line in found.read(_MAX_BYTES).splitlines())
        except ValidationError as error:
            raise RunError(f"the list of {what.removeprefix('the ')} cannot be read: {error}") from None
