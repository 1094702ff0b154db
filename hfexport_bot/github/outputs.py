"""What a job leaves for the next step and for its page: outputs and the summary, by the files that GitHub names."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from hfexport_bot.errors import RunError
from hfexport_bot.reporting.markdown import render
from hfexport_bot.reporting.text import one_line
from hfexport_bot.schema import Report, VerdictKind
from hfexport_bot.verdicts.compare import counts, first_line

#: GitHub drops a step's whole summary when it is larger than 1 MiB; the rest is for lines that follow.
MAX_SUMMARY_BYTES = (1 << 20) - (1 << 14)
#: Most regressions that the output lists; the counts have all, and so does report.json.
MAX_LISTED = 300


def append_outputs(file: str, values: Mapping[str, str], token: Callable[[int], str] = secrets.token_hex) -> None:
    """Append outputs to ``GITHUB_OUTPUT``; nothing where there is no such file. Each value stands between random
    delimiters, so that no text in it can set another output."""
    lines = []
    for name, value in values.items():
        end = f"end-{token(16)}"
        lines.append(f"{name}<<{end}\n{value}\n{end}\n")
    _append(file, "".join(lines), "GITHUB_OUTPUT")


def append_summary(file: str, text: str) -> None:
    """Append Markdown to the job's page, ``GITHUB_STEP_SUMMARY``; nothing where there is no such file."""
    _append(file, text.rstrip() + "\n\n", "GITHUB_STEP_SUMMARY")


def full_summary(report: Report, room: int = MAX_SUMMARY_BYTES) -> str:
    """The report in as many bytes of UTF-8 as ``room``."""
    limit = room
    while len((text := render(report, limit)).encode()) > room:
        limit = min(limit * room // len(text.encode()), limit - 1)
    return text


def values_of(report: Report) -> dict[str, str]:
    """The outputs that come from a report: ``counts`` by verdict and ``regressions``, both JSON."""
    found = counts(report).verdicts
    regressions = [case for case in report.cases if case.verdict is VerdictKind.REGRESSION]
    listed = [
        {
            "id": str(case.id),
            "outcome": case.outcome.value,
            "stage": one_line(case.stage, 80),
            "message": one_line(first_line(case.message), 200),
        }
        for case in regressions[:MAX_LISTED]
    ]
    return {
        "counts": json.dumps({kind.value: found.get(kind, 0) for kind in VerdictKind}),
        "regressions": json.dumps(listed),
    }


def _append(file: str, text: str, name: str) -> None:
    if not file:
        return
    try:
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise RunError(f"{name}: {file} cannot be written: {error.strerror}") from None
