"""Reports that were written before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from hfexport_bot.errors import UsageError
from hfexport_bot.schema import Report, first_problem


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
        problem = first_problem(error)
        raise UsageError(f"{name} is no report.json of this version of hfexport-bot: {problem}") from None
