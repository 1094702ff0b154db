"""Parts that are judged one by one: each on its own inputs, the first failure names its part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from exporters import DynamoConfig, DynamoExporter
from hfexport_bot.runner.engines import RepoParts
from hfexport_bot.runner.parts import check_parts
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import OutcomeKind

pytestmark = pytest.mark.export


class Scaled(nn.Module):
    def __init__(self, scale: float, exported: float | None = None) -> None:
        super().__init__()
        self.scale = scale
        self.exported = scale if exported is None else exported

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": x * (self.exported if torch.compiler.is_exporting() else self.scale)}


def parts(**models: nn.Module) -> RepoParts:
    cases = {
        name: ModelCase(model.eval(), {"x": torch.rand(2, 3)}, {"batch_3": {"x": torch.rand(3, 3)}})
        for name, model in models.items()
    }
    artifacts: Any = {
        name: DynamoExporter().export_artifact(case.model, case.inputs, DynamoConfig(dynamic=True))
        for name, case in cases.items()
    }
    return RepoParts(artifacts, cases)


def test_each_part_is_judged_and_the_first_failure_names_its_part() -> None:
    told: list[tuple[str, str]] = []
    checked = check_parts(
        parts(image_encoder=Scaled(2.0), decode=Scaled(2.0, exported=3.0)),
        dynamic=True,
        seed=0,
        on_stage=lambda stage, component: told.append((stage, component)),
        clean=str,
    )
    assert [(component.name, component.max_abs == 0) for component in checked.components] == [
        ("image_encoder", True),
        ("decode", False),
    ]
    assert [probe.status for probe in checked.components[0].probes] == ["pass", "pass"]
    assert checked.failure is not None
    assert (checked.failure.kind, checked.failure.component) == (OutcomeKind.PARITY, "decode")
    assert list(dict.fromkeys(told)) == [
        (stage, name) for name in ("image_encoder", "decode") for stage in ("eager", "load", "run", "parity")
    ]
