"""From affected classes to cases, in the order they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hfexport_bot.changes.affected import Selection
from hfexport_bot.schema import Backend, CaseId, Shapes

#: Backends from the quickest to the slowest, so that most findings come early.
_BACKEND_ORDER = (Backend.DYNAMO, Backend.ONNX, Backend.EXECUTORCH)


@dataclass(frozen=True)
class PlannedCase:
    """A case, the module its class is in on each side (None: the class isn't there), and why it runs."""

    id: CaseId
    base_module: str | None
    head_module: str | None
    reason: str


def plan_cases(selection: Selection, backends: Sequence[Backend], shapes: Sequence[Shapes]) -> tuple[PlannedCase, ...]:
    """Every affected class with every backend and kind of shapes: cheap backends first, then as selected.

    A class that moved with its file is one case under head's name; a class that only base has keeps base's.
    """
    cases: dict[CaseId, PlannedCase] = {}
    for backend in (each for each in _BACKEND_ORDER if each in backends):
        for module in selection.affected:
            for name in dict.fromkeys((*module.head_classes, *module.base_classes)):
                base = module.base if name in module.base_classes else None
                head = module.head if name in module.head_classes else None
                file = head or base
                if file is None:
                    continue
                for kind in (each for each in Shapes if each in shapes):
                    case_id = CaseId(model=file.model, class_name=name, backend=backend, shapes=kind)
                    cases[case_id] = PlannedCase(
                        id=case_id,
                        base_module=base.module if base else None,
                        head_module=head.module if head else None,
                        reason=module.reason,
                    )
    return tuple(cases.values())
