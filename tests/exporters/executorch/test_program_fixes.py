from __future__ import annotations

import pytest
import torch

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
