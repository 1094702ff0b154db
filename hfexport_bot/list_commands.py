"""The commands about what is known: workarounds, whether they are still needed, and issues elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hfexport_bot.errors import RunError, UsageError
from hfexport_bot.options import overrides_of, running, tree
from hfexport_bot.process import CLEAN, FINDINGS, Process, surroundings
from hfexport_bot.schema import Backend, Need


@click.group()
def workarounds() -> None:
    """What the exporters work around, and why."""


@workarounds.command("list")
@click.option("--backend", type=click.Choice([backend.value for backend in Backend]), help="Only those of one backend.")
@click.option("--json", "as_json", is_flag=True, help="Print them as a JSON list.")
@click.option(
    "--update",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Print no list, but write it by stage between the markers of this Markdown file.",
)
def list_workarounds(backend: str | None, as_json: bool, update: Path | None) -> int:
    """List the registered workarounds by backend and stage.

    Exits with 1 when one of them patches something that the installed versions no longer have.
    """
    import json

    from hfexport_bot.execution.listing import list_workarounds as ask
    from hfexport_bot.reporting.workarounds import render_workarounds

    found = sorted(
        (each for each in ask() if backend in (None, each.backend)), key=lambda each: (each.backend, each.stage)
    )
    if update is not None:
        from hfexport_bot.reporting.reference import with_reference

        if backend is not None:
            raise UsageError("--update writes the workarounds of all backends; leave --backend out")
        try:
            update.write_text(with_reference(update.read_text(), found))
        except ValueError as error:
            raise UsageError(f"{update}: {error}") from error
        click.echo(f"{len(found)} workarounds written to {update}")
    elif as_json:
        click.echo(json.dumps([each.model_dump(mode="json") for each in found], indent=2))
    else:
        click.echo(render_workarounds(found))
    return FINDINGS if any(each.unresolved for each in found) else CLEAN


@workarounds.command("audit")
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option(
    "--record",
    "records",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A report.json whose cases hit the workarounds; may be repeated.",
)
@click.option(
    "--case", "cases", multiple=True, metavar="CASE_ID", help="A case that hits the workarounds; may be repeated."
)
@tree
@running
@click.pass_obj
def audit_workarounds(
    process: Process,
    /,
    ids: tuple[str, ...],
    records: tuple[Path, ...],
    cases: tuple[str, ...],
    tree: Path | None,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Find out which workarounds are still needed: run cases that hit them with each of them switched off.

    Each is tried on at most three cases that pass with it. Without --record or --case, these are searched among the
    models that a workaround is for, and one of each kind. Exits with 1 when one is no longer needed, 0 when there is
    none, or one cannot tell.
    """
    from hfexport_bot.audit import audit_workarounds as work
    from hfexport_bot.reporting.audits import render_audit

    if records and cases:
        raise UsageError("--record and --case both say which cases to run; give one of them")
    around = replace(surroundings(process, jobs, None, quiet), records=records)
    found = work(ids, cases, tree, overrides_of(**options), around)
    if as_json:
        click.echo(found.model_dump_json(indent=2))
    elif not quiet:
        click.echo(render_audit(found))
    if found.failure:
        raise RunError(found.failure)
    return FINDINGS if any(each.need is Need.NOT_NEEDED for each in found.workarounds) else CLEAN


@click.group()
def upstream() -> None:
    """The issues elsewhere that a failure may be."""


@upstream.command("stale")
@click.argument("reports", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="REPORT.JSON...")
def list_stale(reports: tuple[Path, ...]) -> None:
    """List the known issues that no case of some reports was an instance of.

    It tells something after a sweep over many models only. An issue whose workaround acted counts as met; those of
    backends that were not run are left out.
    """
    from hfexport_bot.reporting.reading import read_reports
    from hfexport_bot.reporting.upstream import render_stale
    from hfexport_bot.verdicts.upstream import known_issues

    click.echo(render_stale(tuple(read_reports("REPORT.JSON", reports)), known_issues()))
