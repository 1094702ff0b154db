"""Each side's environment: what its revision's requirements change, and what the report says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hfexport_bot.changes.requirements import Difference, Requirements
from hfexport_bot.execution.overlay import Overlay, OverlayError
from hfexport_bot.execution.sides import SideName

_SHOWN = 5
_LINE = re.compile(r" line \d+")
_DIFFER = "installed packages differ from the requirements of {0} (to run with those: --install, or `install: true`)"

#: Makes the overlay of some differences, or raises `OverlayError`.
MakeOverlay = Callable[[Sequence[Difference], Mapping[str, str]], Overlay]


@dataclass(frozen=True)
class Environments:
    """Folders for each side's ``sys.path``, what the report has to say, why there is nothing to run with (empty: there
    is), and what head asks for that base does not, and does not run with: a change to it is not tested."""

    search_path: dict[SideName, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failure: str = ""
    unmet: tuple[str, ...] = ()


def prepare_environments(
    wanted: Mapping[SideName, Requirements],
    installed: Callable[[], Mapping[str, str]],
    *,
    install: bool,
    make_overlay: MakeOverlay,
) -> Environments:
    """Make an overlay for each side whose requirements differ from what is ``installed``, one for both where they want
    the same.

    Without ``install``, only say what differs. With it, an overlay that cannot be made is a failure: what runs with
    other versions tells nothing of those that were asked for.
    """
    who = {side: side if len(wanted) > 1 else "the revision" for side in wanted}
    problems = {side: each.problems for side, each in wanted.items()}
    notes = _by_side(who, problems, "{0}: {1}")
    unread = _only_heads(problems)
    if not any(each.asked or each.pins for each in wanted.values()):
        return Environments(notes=notes, unmet=unread)
    have = installed()
    differing = {side: found for side, each in wanted.items() if (found := each.differences(have))}
    if not install:
        told = {side: (_listed(found),) for side, found in differing.items()}
        unmet = _only_heads({side: [_wish(each) for each in differing.get(side, ())] for side in wanted})
        return Environments(notes=(*notes, *_by_side(who, told, f"{_DIFFER}: {{1}}")), unmet=(*unmet, *unread))
    made: dict[tuple[Difference, ...], Overlay] = {}
    for side, found in differing.items():
        try:
            made[found] = made.get(found) or make_overlay(found, have)
        except OverlayError as error:
            failure = (
                f"the environment of {who[side]} could not be made, so nothing was run: {error}; ask for what has "
                "wheels, or run without --install (and install: true) on what is installed"
            )
            return Environments(notes=notes, failure=failure)
    used = {side: (_packages(made[found], have),) for side, found in differing.items()}
    search_path: dict[SideName, tuple[str, ...]] = {
        side: (str(made[found].folder),) for side, found in differing.items()
    }
    return Environments(search_path, (*notes, *_by_side(who, used, "{0} ran with {1}")), unmet=unread)


def _only_heads(lines: Mapping[SideName, Sequence[str]]) -> tuple[str, ...]:
    """What a change brings: head's lines without base's, wherever in a file those stand."""
    before = {_LINE.sub("", line) for line in lines.get("base", ())} if "base" in lines else None
    return tuple(line for line in lines.get("head", ()) if before is not None and _LINE.sub("", line) not in before)


def _wish(difference: Difference) -> str:
    exact = difference.wanted.removeprefix("==")
    return f"{difference.name} {exact}" if difference.wanted == f"=={exact}" else difference.requirement


def _by_side(who: Mapping[SideName, str], lines: Mapping[SideName, Iterable[str]], text: str) -> tuple[str, ...]:
    """Each line with who it is about; one of both sides stands once."""
    sides: dict[str, list[str]] = {}
    for side, several in lines.items():
        for line in several:
            sides.setdefault(line, []).append(who[side])
    return tuple(text.format(" and ".join(names), line) for line, names in sides.items())


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
