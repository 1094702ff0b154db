from __future__ import annotations

import pytest
import torch

from exporters import DynamoExporter

pytestmark = pytest.mark.export

FIX = "dynamo/model_patches/patch_multi_head_attention"


class Pooling(torch.nn.Module):
    """The head that pools an image's patches: a learnt query attends to all of them."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 4, 4)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.probe = torch.nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, image: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.patches(image).flatten(2).transpose(1, 2)
        probe = self.probe.repeat(x.shape[0], 1, 1)
        if not self.attention.batch_first:
            x, probe = x.transpose(0, 1), probe.transpose(0, 1)
        pooled: tuple[torch.Tensor, torch.Tensor] = self.attention(
            probe, x, x, key_padding_mask=mask, average_attn_weights=mask is None
        )
        return pooled


@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention_takes_a_batch_of_one_only_with_the_workaround(batch_first: bool) -> None:
    torch.manual_seed(0)
    model, inputs = Pooling(batch_first).eval(), {"image": torch.randn(2, 3, 12, 16)}
    artifact = DynamoExporter().export_artifact(model, inputs)
    assert artifact.workarounds == {FIX: 1}
    for batch, height, width in ((1, 12, 16), (3, 20, 12)):
        image = torch.randn(batch, 3, height, width)
        outputs, (pooled, weights) = artifact(image=image), model(image)
        torch.testing.assert_close(outputs["0"], pooled, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(outputs["1"], weights, rtol=1e-5, atol=1e-6)
    if batch_first:
        without = DynamoExporter().export_artifact(model, inputs, {"disabled": {FIX}})
        with pytest.raises(AssertionError, match="Guard failed"):
            without(image=torch.randn(1, 3, 12, 16))


def test_masked_attention_is_torchs_own() -> None:
    torch.manual_seed(0)
    model, mask = Pooling().eval(), torch.tensor([[False] * 5 + [True], [False] * 6])
    image = torch.randn(2, 3, 8, 12)
    artifact = DynamoExporter().export_artifact(model, {"image": image, "mask": mask})
    outputs, (pooled, weights) = artifact(image=image, mask=mask), model(image, mask)
    torch.testing.assert_close(outputs["0"], pooled, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(outputs["1"], weights, rtol=1e-5, atol=1e-6)
