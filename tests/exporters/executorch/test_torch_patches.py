from __future__ import annotations

from typing import Any

import pytest
import torch

from exporters import ExecutorchExporter, StageError

pytestmark = pytest.mark.export

EXPERTS = "executorch/torch_patches/patch_experts"


class Experts(torch.nn.Module):
    """A model's experts behind a choice of two for each token. hidden: (batch, length, 8)."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        from transformers import GptOssConfig, MixtralConfig
        from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
        from transformers.models.mixtral.modeling_mixtral import MixtralExperts

        sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 12, "num_local_experts": 4}
        config: Any = MixtralConfig(**sizes) if kind == "mixtral" else GptOssConfig(**sizes)
        config._experts_implementation = "grouped_mm"
        self.experts = (MixtralExperts if kind == "mixtral" else GptOssExperts)(config)
        self.router = torch.nn.Linear(8, 4)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        flat = hidden.reshape(-1, 8)
        weights, index = torch.topk(self.router(flat).softmax(-1), 2)
        return self.experts(flat, index, weights).reshape(hidden.shape)


@pytest.mark.parametrize("kind", ["mixtral", "gpt_oss"])
def test_experts_run_at_other_lengths_only_with_the_workaround(kind: str) -> None:
    torch.manual_seed(0)
    model, inputs = Experts(kind).eval(), {"hidden": torch.randn(2, 5, 8)}
    artifact = ExecutorchExporter().export_artifact(model, inputs, {"backend": "portable"})
    for batch, length in ((2, 5), (3, 7), (1, 2)):
        hidden = torch.randn(batch, length, 8)
        torch.testing.assert_close(artifact(hidden=hidden)["output"], model(hidden), rtol=1e-4, atol=1e-4)
    assert artifact.workarounds[EXPERTS] == 1
    with pytest.raises((StageError, RuntimeError)):
        plain = ExecutorchExporter().export_artifact(model, inputs, {"backend": "portable", "disabled": {EXPERTS}})
        plain(**inputs)


def test_few_tokens_gather_the_weights_of_their_experts() -> None:
    torch.manual_seed(0)
    model, inputs = Experts("mixtral").eval(), {"hidden": torch.randn(2, 1, 8)}
    artifact = ExecutorchExporter().export_artifact(model, inputs, {"backend": "portable", "dynamic": False})
    torch.testing.assert_close(artifact(**inputs)["output"], model(**inputs), rtol=1e-4, atol=1e-4)
    operators = {operator.name for operator in artifact.program.executorch_program.execution_plan[0].operators}
    assert "aten::index" in operators
