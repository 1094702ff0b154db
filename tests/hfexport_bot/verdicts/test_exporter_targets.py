"""What a change takes away from a checkout's own exporters."""

from __future__ import annotations

from typing import Literal

from hfexport_bot.schema import ExporterTarget
from hfexport_bot.verdicts.exporter_targets import lost_targets

PATH = "transformers.models.a.modeling_a.A.forward"
MARKER = "grid_thw in a/modeling_a.py"


def target(name: str, resolved: bool = True, kind: Literal["patch", "marker"] = "patch") -> ExporterTarget:
    return ExporterTarget(kind=kind, owner="repo:utils._reach", target=name, resolved=resolved)


def lost(
    base: list[ExporterTarget], head: list[ExporterTarget], files: tuple[str, ...] = ("a/modeling_a.py",)
) -> list[str]:
    return list(lost_targets(base, head, files.__contains__))


def test_a_path_that_leads_nowhere_any_more_is_told() -> None:
    assert lost([target(PATH)], [target(PATH, resolved=False)]) == [
        f"`{PATH}` is gone: transformers.exporters' patch `utils._reach` has nothing to act on any more"
    ]


def test_what_never_led_anywhere_or_is_not_looked_for_any_more_is_not_told() -> None:
    assert lost([target(PATH, resolved=False)], [target(PATH, resolved=False)]) == []
    assert lost([target(PATH)], [target("torch.where")]) == []
    assert lost([target(PATH)], [target(PATH)]) == []


def test_a_name_that_one_model_lost_is_told_unless_the_model_went() -> None:
    base = [target(MARKER, kind="marker"), target("grid_thw in b/modeling_b.py", kind="marker")]
    head = base[1:]
    (note,) = lost(base, head)
    assert note.startswith("`grid_thw` is gone from `a/modeling_a.py`: transformers.exporters' input preparer")
    assert lost(base, head, files=()) == []
    assert lost(base, [target("grid_thw", resolved=False, kind="marker")], files=("b/modeling_b.py",)) != []
