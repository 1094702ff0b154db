from __future__ import annotations

import pytest
import torch

from exporters import DynamoExporter, StageError

pytestmark = pytest.mark.export


def test_sparse_layers_of_nllb_moe_trace_only_with_the_workaround() -> None:
    from transformers import NllbMoeConfig
    from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeSparseMLP

    torch.manual_seed(0)
    model = NllbMoeSparseMLP(NllbMoeConfig(d_model=8, num_experts=4, expert_capacity=64), ffn_dim=16).eval()
    exporter, fix = DynamoExporter(), "dynamo/model_patches/patch_experts_hit"
    artifact = exporter.export_artifact(model, {"hidden_states": torch.randn(2, 5, 8)})
    for batch, length in ((2, 5), (3, 7), (1, 2)):
        hidden = torch.randn(batch, length, 8)
        torch.testing.assert_close(artifact(hidden_states=hidden)["output"], model(hidden), rtol=1e-5, atol=1e-5)
    assert artifact.workarounds[fix] == 1
    with pytest.raises(StageError, match="data-dependent"):
        exporter.export(model, {"hidden_states": torch.randn(2, 5, 8)}, {"disabled": {fix}})
