from __future__ import annotations

import pytest
import torch
from torch import nn

from exporters import ExecutorchExporter, StageError

pytestmark = pytest.mark.export


class LastMarked(torch.nn.Module):
    """A sequence-to-sequence classifier's pattern: the state of each row's last mark. ids: (batch, length)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask, states = ids.eq(1), self.embed(ids)
        torch._check(torch.unique_consecutive(mask.sum(1)).numel() == 1)
        batch, _, width = states.shape
        return self.embed.weight.sum() + states[mask, :].view(batch, -1, width)[:, -1, :]


def _ids(batch: int, length: int, last: int = -1) -> dict[str, torch.Tensor]:
    ids = torch.randint(2, 20, (batch, length))
    ids[:, 1] = ids[:, last] = 1
    return {"ids": ids}


@pytest.mark.parametrize("dynamic", [True, False])
def test_the_last_marked_position_is_found_only_with_the_workaround(dynamic: bool) -> None:
    model, fix = LastMarked().eval(), "executorch/program_fixes/fix_last_marked_position"
    config = {"backend": "portable", "dynamic": dynamic}
    artifact = ExecutorchExporter().export_artifact(model, _ids(2, 5), config)
    for inputs in (_ids(2, 5, -2), *((_ids(1, 7), _ids(3, 4)) if dynamic else ())):
        torch.testing.assert_close(artifact(**inputs)["output"], model(**inputs))
    assert artifact.workarounds[fix] == 1
    with pytest.raises(StageError) as caught:
        ExecutorchExporter().export(model, _ids(2, 5), {**config, "disabled": {fix}})
    assert caught.value.stage == "lower"


class Stem(nn.Module):
    """Convolutions over a waveform, one of them twice, one with a weight norm. x: (batch, samples)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 4, 10, stride=5, bias=False)
        self.again = nn.Conv1d(4, 4, 3, padding=2, dilation=2, groups=2)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 4, padding=2), dim=2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        first = self.first(x[:, None])
        again = self.again(self.again(first).relu())
        return {"first": first, "last": self.normed(again)}


def test_convolutions_over_a_waveform_keep_its_length_and_batch_free() -> None:
    torch.manual_seed(0)
    model = Stem().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    artifact = ExecutorchExporter().export_artifact(model, {"x": torch.randn(2, 60)})
    assert artifact.workarounds["executorch/program_fixes/fix_conv1d_of_dynamic_axes"] == 4
    assert artifact.workarounds["executorch/program_fixes/fix_weight_norm"] == 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    operators = [operator.name for operator in artifact.program.executorch_program.execution_plan[0].operators]
    assert "aten::convolution" not in operators  # the delegate has them all
    for batch, samples in ((2, 60), (1, 60), (3, 101)):
        x = torch.randn(batch, samples)
        torch.testing.assert_close(artifact(x=x), model(x), rtol=1e-5, atol=1e-5)
