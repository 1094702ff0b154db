"""What an audit of workarounds found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hfexport_bot.reporting.summary import duration
from hfexport_bot.reporting.text import code, plain
from hfexport_bot.schema import Audit, Need, WorkaroundAudit

#: What to act on comes first.
_ORDER = (Need.NOT_NEEDED, Need.NEEDED, Need.UNKNOWN)


def render_audit(audit: Audit) -> str:
    """A line for each workaround, by what is known of it, and after them how many there are of each kind and which
    versions that holds for."""
    lines = [audit_line(each) for each in by_need(audit.workarounds)]
    counted = ", ".join(
        f"{sum(each.need is need for each in audit.workarounds):,} {need.value}"
        for need in _ORDER
        if any(each.need is need for each in audit.workarounds)
    )
    about = ", ".join(filter(None, (plain(audit.revision.name), named_versions(audit.versions))))
    took = duration(audit.seconds)
    return "\n".join(
        (
            *lines,
            *(f"note: {plain(note)}" for note in audit.notes),
            f"{counted or 'nothing audited'}: {about} in {took}",
        )
    )


def audit_line(each: WorkaroundAudit) -> str:
    """``still needed: onnx/optimize/x: llama/…: error at translate: …``. Made harmless for a terminal."""
    return f"{each.need.value}: {plain(each.id, 300)}: {plain(each.said, 600)}"


def audit_items(audit: Audit | None) -> list[str]:
    """The audit of a change's workarounds as a list in Markdown: what called for it, with which versions, and each."""
    if audit is None:
        return []
    versions = ", ".join(code(f"{name} {version}", 60) for name, version in list(audit.versions.items())[:12])
    lines = [f"- {code(note, 400)}" for note in audit.notes]
    lines += [f"- audited with {versions} in {duration(audit.seconds)}"] * bool(versions)
    found = by_need(audit.workarounds)
    return lines + [f"- {each.need.value}: {code(each.id, 300)}: {code(each.said, 400)}" for each in found]


def by_need(workarounds: Iterable[WorkaroundAudit]) -> Sequence[WorkaroundAudit]:
    """Those that are no longer needed first."""
    return sorted(workarounds, key=lambda each: _ORDER.index(each.need))


def named_versions(versions: Mapping[str, str]) -> str:
    """``torch 2.13.0, transformers 5.24.0``."""
    return ", ".join(plain(f"{name} {version}", 60) for name, version in versions.items())
