from __future__ import annotations

import pytest
import torch

from exporters import ExecutorchExporter, StageError

pytestmark = pytest.mark.export

PARTITIONS = "executorch/executorch_patches/patch_partitions_that_wait_for_each_other"


class SharedLayer(torch.nn.Module):
    """One layer in two calls, with work before one and after the other, past what no delegate takes. x, y: (2, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.layer(x * 2)
        return before, torch.cumsum(self.layer(y), 1) * 3


def test_a_layer_called_twice_is_cut_into_partitions_that_can_run_in_turn() -> None:
    torch.manual_seed(0)
    model, inputs = SharedLayer().eval(), {"x": torch.randn(2, 4), "y": torch.randn(2, 4)}
    artifact = ExecutorchExporter().export_artifact(model, inputs, {"dynamic": False})
    outputs = artifact(**inputs)
    for output, expected in zip(outputs.values(), model(**inputs), strict=True):
        torch.testing.assert_close(output, expected)
    assert artifact.workarounds[PARTITIONS] == 1
    assert artifact.program.executorch_program.execution_plan[0].delegates
    with pytest.raises(StageError, match="dependency cycles") as caught:
        ExecutorchExporter().export_artifact(model, inputs, {"dynamic": False, "disabled": {PARTITIONS}})
    assert caught.value.stage == "lower"
