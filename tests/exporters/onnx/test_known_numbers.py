"""Reports of wrong numbers in ONNX, one test each: gone in the pinned versions, or corrected by the exporter.

Every entry of the list of upstream issues whose stage is parity, or optimise with wrong numbers:

| Issue | Where it is checked, or why it is not |
|---|---|
| pytorch#177138, onnxscript#2916 | here: resizing with antialias, to a size and by a factor |
| pytorch#169178, #168224, #166797 | here: batch normalization folded into convolutions |
| onnxscript#2857 | here; the cause is the node fix ``fix_split_in_pieces`` |
| onnxscript#3027 | here: batch normalization folded into a matrix product |
| onnxruntime#29020 | here, on the CPU; the CUDA kernel needs a GPU |
| onnxruntime#28904, onnx#8054 | here: a static cache at opset 24 |
| optimum#2326, #1755, #505 | here: batches with padding, Gemma, Longformer at other lengths |
| onnxscript#2479 | tests/trials, T02 |
| onnxruntime#18945, #12843, optimum#978 | tests/trials, T22: what the fused attention makes of masks |
| optimum#2436 | tests/trials, T11: heads of several widths in one cache |
| pytorch#159973 | the TorchScript exporter, which this project does not use |
| onnxruntime#29034 | half precision in a CUDA kernel |
| onnxruntime#31626 | WebGPU; and LayerNormalization is one operator in every opset that can be asked for (18 and up) |
| onnxruntime#17689 | half precision; the CPU's fusions are checked by T16 in tests/trials |
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from exporters import OnnxExporter, StageError
from tests.exporters.models import assert_equals_eager

pytestmark = pytest.mark.export


def _nodes(artifact: Any, operator: str) -> list[Any]:
    return [node for node in artifact.program.model.graph if node.op_type == operator]


class Resize(nn.Module):
    """x: (batch, channels, height, width)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x, antialias=True, **self.settings)


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("target", [{"size": (7, 17)}, {"scale_factor": 0.7}], ids=["size", "factor"])
def test_pytorch_177138_resizing_with_antialias(mode: str, target: dict[str, Any]) -> None:
    """https://github.com/pytorch/pytorch/issues/177138: the cubic coefficient was the one without antialias. By a
    factor the pinned onnxscript still takes the ratio of the sizes (https://github.com/microsoft/onnxscript/pull/2916).
    """
    model = Resize(mode=mode, **target).eval()
    artifact = OnnxExporter().export_artifact(model, {"x": torch.randn(2, 3, 12, 10)})
    if mode == "bicubic":
        (resize,) = _nodes(artifact, "Resize")
        assert resize.attributes["cubic_coeff_a"].as_float() == -0.5
    assert_equals_eager(artifact, model, *({"x": torch.randn(2, 3, *size)} for size in ((12, 10), (15, 24), (9, 31))))


def test_resizing_that_onnx_cannot_do_is_an_error_and_no_wrong_number() -> None:
    model = Resize(mode="bicubic", size=(7, 9), align_corners=True).eval()
    with pytest.raises(StageError, match="no resizing with antialias and align_corners"):
        OnnxExporter().export(model, {"x": torch.randn(2, 3, 12, 10)})


def _lively(model: nn.Module) -> nn.Module:
    """Statistics and weights of every batch normalization far from the identity."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return model.eval()


def test_pytorch_169178_convolution_and_batch_normalization() -> None:
    """https://github.com/pytorch/pytorch/issues/169178"""
    layers = [nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 1), nn.BatchNorm2d(4)]
    model = _lively(nn.Sequential(*layers))
    artifact = OnnxExporter().export_artifact(model, {"input": torch.randn(2, 3, 8, 8)})
    assert not _nodes(artifact, "BatchNormalization"), "the test is of the fusion"
    assert_equals_eager(artifact, model, {"input": torch.randn(3, 3, 11, 9)})


def test_pytorch_168224_a_resnet() -> None:
    """https://github.com/pytorch/pytorch/issues/168224"""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic", num_labels=4)
    model = _lively(ResNetForImageClassification(config))
    artifact = OnnxExporter().export_artifact(model, {"pixel_values": torch.randn(2, 3, 32, 32)})
    assert_equals_eager(artifact, model, {"pixel_values": torch.randn(3, 3, 48, 40)})


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_pytorch_166797_the_bias_of_a_convolution_in_groups(kind: Any) -> None:
    """https://github.com/pytorch/pytorch/issues/166797"""
    model = _lively(nn.Sequential(kind(4, 6, 3, groups=2), nn.BatchNorm2d(6)))
    artifact = OnnxExporter().export_artifact(model, {"input": torch.randn(2, 4, 8, 8)})
    (convolution,) = _nodes(artifact, kind.__name__.removesuffix("2d"))
    assert tuple(convolution.inputs[2].shape) == (6,)
    assert_equals_eager(artifact, model, {"input": torch.randn(3, 4, 9, 7)})


class Product(nn.Module):
    """x: (batch, 4)."""

    def __init__(self, beta: float, alpha: float) -> None:
        super().__init__()
        self.scales = {"beta": beta, "alpha": alpha}
        self.weight, self.bias = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(6))
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(torch.addmm(self.bias, x, self.weight, **self.scales))
        return found


def test_onnxscript_3027_the_beta_of_a_matrix_product() -> None:
    """https://github.com/microsoft/onnxscript/pull/3027"""
    model = _lively(Product(beta=0.5, alpha=3.0))
    artifact = OnnxExporter().export_artifact(model, {"x": torch.randn(2, 4)})
    assert not _nodes(artifact, "BatchNormalization"), "the test is of the fusion"
    assert_equals_eager(artifact, model, {"x": torch.randn(5, 4)})


class Split(nn.Module):
    """x: (batch, length)."""

    def __init__(self, sizes: int | list[int]) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [piece + index for index, piece in enumerate(x.split(self.sizes, -1))]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("sizes", [[2, 5, 3], 4], ids=["sizes", "size"])
def test_onnxscript_2857_an_uneven_split(sizes: int | list[int]) -> None:
    """https://github.com/microsoft/onnxscript/issues/2857"""
    model = Split(sizes).eval()
    artifact = OnnxExporter().export_artifact(model, {"x": torch.randn(2, 10)})
    assert_equals_eager(artifact, model, {"x": torch.randn(2, 10)})


class Attention(nn.Module):
    """query: (batch, heads, length, 8). key, value: (batch, heads, keys, 8)."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


@pytest.mark.parametrize("opset", [18, 23, 24])
def test_onnxruntime_29020_causal_attention_over_more_keys_than_queries(opset: int) -> None:
    """https://github.com/microsoft/onnxruntime/issues/29020: torch's diagonal begins at the upper left."""
    inputs = {"query": torch.randn(2, 4, 3, 8), "key": torch.randn(2, 4, 7, 8), "value": torch.randn(2, 4, 7, 8)}
    artifact = OnnxExporter().export_artifact(Attention().eval(), inputs, {"opset": opset})
    assert bool(_nodes(artifact, "Attention")) == (opset >= 23)
    first = artifact(**inputs)["output"][:, :, 0]
    torch.testing.assert_close(first, inputs["value"][:, :, 0], rtol=1e-4, atol=1e-4)
    swapped = {"query": inputs["key"], "key": inputs["query"], "value": inputs["query"]}
    assert_equals_eager(artifact, Attention(), inputs, swapped)


class Cached(nn.Module):
    """One step over a static cache. token: (batch, heads, 1, 8). keys: (batch, heads, places, 8). place: (1), int64."""

    def forward(self, token: torch.Tensor, keys: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        keys = keys.index_copy(2, place, token)
        seen = (torch.arange(keys.shape[2]) <= place)[None, None, None]
        return functional.scaled_dot_product_attention(token, keys, keys, attn_mask=seen), keys


def test_onnxruntime_28904_and_onnx_8054_a_static_cache() -> None:
    """https://github.com/microsoft/onnxruntime/issues/28904, https://github.com/onnx/onnx/issues/8054: the places that
    are filled are told by a mask; ``nonpad_kv_seqlen``, which runtimes read differently, is never written."""
    keys, model = torch.randn(2, 4, 8, 8) * 9, Cached().eval()
    inputs = {"token": torch.randn(2, 4, 1, 8), "keys": keys, "place": torch.tensor([3])}
    artifact = OnnxExporter().export_artifact(model, inputs, {"opset": 24})
    (attention,) = _nodes(artifact, "Attention")
    assert len([value for value in attention.inputs if value is not None]) == 4
    assert attention.attributes.get_int("is_causal", 0) == 0
    assert_equals_eager(artifact, model, *(inputs | {"place": torch.tensor([place])} for place in (0, 3, 7)))


def _padded(batch: int, length: int, padding: int) -> dict[str, Any]:
    """The first row is padded on the left."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, :padding] = 0
    return {"input_ids": torch.randint(3, 99, (batch, length)), "attention_mask": mask, "use_cache": False}


SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "initializer_range": 0.5,
}


def _falcon() -> Any:
    from transformers import FalconConfig, FalconForCausalLM

    return FalconForCausalLM(FalconConfig(**SIZES, alibi=True, multi_query=True))


def _gpt_bigcode() -> Any:
    from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

    sizes = {"vocab_size": 99, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64, "initializer_range": 0.5}
    return GPTBigCodeForCausalLM(GPTBigCodeConfig(**sizes, multi_query=True))


@pytest.mark.parametrize("build", [_falcon, pytest.param(_gpt_bigcode, marks=pytest.mark.slow)])
def test_optimum_2326_batches_with_padding(build: Any) -> None:
    """https://github.com/huggingface/optimum/pull/2326"""
    torch.manual_seed(0)
    model = build().eval()
    artifact = OnnxExporter().export_artifact(model, _padded(2, 8, 3))
    assert_equals_eager(artifact, model, _padded(3, 11, 4), _padded(1, 5, 0), padding_counts=False)


@pytest.mark.slow
def test_optimum_1755_gemma() -> None:
    """https://github.com/huggingface/optimum/issues/1755"""
    from transformers import GemmaConfig, GemmaForCausalLM

    torch.manual_seed(0)
    config = GemmaConfig(**SIZES, intermediate_size=64, num_key_value_heads=1, head_dim=8)
    model = GemmaForCausalLM(config).eval()
    artifact = OnnxExporter().export_artifact(model, _padded(2, 8, 3))
    assert_equals_eager(artifact, model, _padded(3, 11, 4), padding_counts=False)


@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "static"])
def test_optimum_505_longformer_is_refused_where_it_gave_wrong_numbers(dynamic: bool) -> None:
    """https://github.com/huggingface/optimum/issues/505: the number of chunks was baked in. Now the trace stops, also
    since which tokens attend globally is asked of the values."""
    from transformers import LongformerConfig, LongformerModel

    sizes = SIZES | {"intermediate_size": 64, "attention_window": [4], "max_position_embeddings": 64}
    model = LongformerModel(LongformerConfig(**sizes)).eval()
    inputs = {"input_ids": torch.randint(3, 99, (2, 16)), "attention_mask": torch.ones(2, 16, dtype=torch.long)}
    with pytest.raises(StageError) as raised:
        OnnxExporter().export(model, inputs, {"dynamic": dynamic})
    assert raised.value.stage == "trace"
