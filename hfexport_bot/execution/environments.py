"""Each side's environment: what its revision's requirements change, and what the report says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hfexport_bot.changes.requirements import Difference, Requirements
from hfexport_bot.execution.overlay import Overlay, OverlayError
from hfexport_bot.execution.session import SideName

_SHOWN = 5

#: Makes the overlay of some differences, or raises `OverlayError`.
MakeOverlay = Callable[[Sequence[Difference]], Overlay]


@dataclass(frozen=True)
class Environments:
    """Folders for each side's ``sys.path``, and what the report has to say."""

    search_path: dict[SideName, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def prepare_environments(
    wanted: Mapping[SideName, Requirements],
    installed: Mapping[str, str],
    *,
    install: bool,
    make_overlay: MakeOverlay,
) -> Environments:
    """Make an overlay for each side whose requirements differ from what is ``installed``, one for both where they want
    the same.

    Without ``install``, only say what differs. When an overlay cannot be made, no side gets one, so that both are still
    judged alike, and a note says so.
    """
    notes = _by_side({side: each.problems for side, each in wanted.items()})
    differing = {side: each.differences(installed) for side, each in wanted.items()}
    differing = {side: found for side, found in differing.items() if found}
    if not install:
        asked = _by_side({side: (f"wants {_listed(found)}",) for side, found in differing.items()})
        hint = "run with --install, or set `install: true`, to use that in place of what is installed"
        return Environments(notes=(*notes, *(f"{line}; {hint}" for line in asked)))
    made: dict[tuple[Difference, ...], Overlay] = {}
    for side, found in differing.items():
        try:
            made[found] = made.get(found) or make_overlay(found)
        except OverlayError as error:
            alone = "it" if len(wanted) == 1 else "every side"
            failed = (
                f"the environment that {side} wants could not be made, so {alone} ran on what is installed, which may "
                f"have decided the outcome: {error}; wanted: {_listed(found)}"
            )
            return Environments(notes=(*notes, failed))
    overlays = {side: made[found] for side, found in differing.items()}
    used = _by_side({side: (f"ran with {_packages(each, installed)}",) for side, each in overlays.items()})
    search_path: dict[SideName, tuple[str, ...]] = {side: (str(each.folder),) for side, each in overlays.items()}
    return Environments(search_path, (*notes, *used))


def _by_side(lines: Mapping[SideName, Iterable[str]]) -> tuple[str, ...]:
    """Each line with who it is about; one of both sides stands once."""
    sides: dict[str, list[SideName]] = {}
    for side, texts in lines.items():
        for text in texts:
            sides.setdefault(text, []).append(side)
    return tuple(f"{' and '.join(who)}: {text}" for text, who in sides.items())


def _listed(differences: Sequence[Difference]) -> str:
    shown = "; ".join(str(each) for each in differences[:_SHOWN])
    return shown if len(differences) <= _SHOWN else f"{shown}; and {len(differences) - _SHOWN} more"


def _packages(overlay: Overlay, installed: Mapping[str, str]) -> str:
    added = [
        f"{name} {version} in place of {installed[name]}" if name in installed else f"{name} {version}"
        for name, version in sorted(overlay.packages.items())
    ]
    shown = ", ".join(added[:_SHOWN])
    return shown if len(added) <= _SHOWN else f"{shown} and {len(added) - _SHOWN} more packages"
