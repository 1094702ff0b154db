from __future__ import annotations

import pytest
import torch

from exporters.registry import workarounds


@pytest.mark.parametrize("heads", [4, 8, 6, 71])
def test_falcons_alibi_is_the_models_own(heads: int) -> None:
    from transformers.models.falcon import modeling_falcon

    import exporters.onnx.torch_patches  # noqa: F401  registers it

    (patch,) = (w for w in workarounds("onnx") if w.id.endswith("patch_bfloat16_alibi"))
    mask = torch.ones(2, 300, dtype=torch.long)
    mask[0, :7] = 0
    original = modeling_falcon.build_alibi_tensor
    found = patch.function(original)(mask, heads, torch.float32)
    torch.testing.assert_close(found, original(mask, heads, torch.float32), rtol=0, atol=0)
