"""What a change takes away from the patches and input preparers of a checkout's own exporters.

They look for classes, methods and attributes of models. What is not there they pass over in silence; where only a
method of a class is gone, some versions fail, and then for every model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hfexport_bot.schema import ExporterTarget

#: Most notes that are made.
MAX_NOTES = 50


def lost_targets(
    base: Iterable[ExporterTarget], head: Iterable[ExporterTarget], is_on_head: Callable[[str], bool]
) -> tuple[str, ...]:
    """A note for each path or name that is there on base, and on head still looked for and not there.

    ``is_on_head`` tells of a file below the models' folder, such as ``bert/modeling_bert.py``: what went with its whole
    file, or is no longer looked for, is not lost.
    """
    on_head = list(head)
    there = {(target.owner, target.target) for target in on_head if target.resolved}
    looked_for = {(target.owner, _name(target)) for target in on_head}
    notes = []
    for target in base:
        if not target.resolved or (target.owner, target.target) in there:
            continue
        if (target.owner, _name(target)) not in looked_for:
            continue
        name, _, file = target.target.partition(" in ")
        owner = target.owner.removeprefix("repo:")
        if target.kind == "patch":
            notes.append(f"`{name}` is gone: transformers.exporters' patch `{owner}` has nothing to act on any more")
        elif is_on_head(file):
            notes.append(
                f"`{name}` is gone from `{file}`: transformers.exporters' input preparer `{owner}` looks for it there, "
                "and now does without"
            )
    return tuple(notes[:MAX_NOTES]) + ((f"and {len(notes) - MAX_NOTES} more",) if len(notes) > MAX_NOTES else ())


def _name(target: ExporterTarget) -> str:
    return target.target.partition(" in ")[0]
