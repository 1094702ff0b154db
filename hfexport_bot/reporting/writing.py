"""A report as files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hfexport_bot.reporting.junit import render_junit
from hfexport_bot.reporting.markdown import render
from hfexport_bot.schema import Report


def write_reports(report: Report, out: Path, keep: Path | None = None) -> dict[str, Path]:
    """Write ``report.json``, ``report.md`` and ``junit.xml`` into the folder ``out``, which is made if need be.

    Each file appears whole or not at all; a file ``keep`` stays as it is. Returns their paths by name. Raises
    ``OSError`` when the folder cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.json": report.model_dump_json(indent=2) + "\n",
        "report.md": render(report),
        "junit.xml": render_junit(report),
    }
    kept = keep and keep.parent.resolve() / keep.name
    return {
        name: out / name if kept == out.resolve() / name else _write(out / name, text) for name, text in texts.items()
    }


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
