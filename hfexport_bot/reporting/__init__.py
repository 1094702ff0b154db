"""One report, rendered for people and for machines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from hfexport_bot.errors import UsageError
from hfexport_bot.reporting.junit import render_junit
from hfexport_bot.reporting.markdown import render
from hfexport_bot.schema import Report

__all__ = ["parse_report", "read_reports", "write_reports"]


def read_reports(option: str, paths: Sequence[Path]) -> Iterator[Report]:
    """Read what `write_reports` wrote as ``report.json``. Raises `UsageError`, which names ``option``, for a file that
    is none or cannot be read."""
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{option}: {path} cannot be read: {error.strerror}") from None
        yield parse_report(content, f"{option}: {path}")


def parse_report(content: bytes, name: str) -> Report:
    """Read the text of a ``report.json``. Raises `UsageError`, which begins with ``name``, for what is none."""
    try:
        return Report.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:200]
        problem = f"{where}: {first['msg']}" if where else first["msg"]
        raise UsageError(f"{name} is no report.json of this version of hfexport-bot: {problem}") from None


def write_reports(report: Report, out: Path) -> dict[str, Path]:
    """Write ``report.json``, ``report.md`` and ``junit.xml`` into the folder ``out``, which is made if need be.

    Each file appears whole or not at all. Returns their paths by name. Raises ``OSError`` when the folder
    cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.json": report.model_dump_json(indent=2) + "\n",
        "report.md": render(report),
        "junit.xml": render_junit(report),
    }
    return {name: _write(out / name, text) for name, text in texts.items()}


def _write(path: Path, text: str) -> Path:
    # Beside its target: a rename is atomic only within one file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path
