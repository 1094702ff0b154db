"""Recurrences as ``scan``: the models' own numbers at every length, one graph for all of them in every runtime."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from exporters import DynamoConfig, DynamoExporter, ExecutorchConfig, ExecutorchExporter, OnnxConfig, OnnxExporter
from exporters.dynamo import scans as _scans  # noqa: F401  registers what is tested
from exporters.dynamo.scans import recurrence
from exporters.registry import Hits, apply_patches, resolve, workarounds

LENGTHS = (1, 2, 7, 64, 130)  # one token, less than a chunk, a chunk, beyond
BATCH, HEADS, KEYS, VALUES = 2, 4, 6, 5


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def decaying_sum(total: Tensor, count: Tensor, x: Tensor, weight: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    total = total * 0.5 + x * weight
    return (total, count + 1), total - x


@pytest.mark.parametrize("length", LENGTHS)
def test_a_recurrence_is_the_plain_loop(length: int) -> None:
    x, weight = torch.randn(BATCH, length, 3), torch.randn(3)
    states: Any = (torch.randn(BATCH, 3), torch.zeros(BATCH))
    last, outputs = recurrence(decaying_sum, states, [x], [weight])
    expected = []
    for time in range(length):
        states, output = decaying_sum(*states, x[:, time], weight)
        expected.append(output)
    assert torch.equal(outputs, torch.stack(expected, dim=1))
    assert all(torch.equal(one, other) for one, other in zip(last, states, strict=True))


def test_one_token_is_a_step_and_no_loop() -> None:
    traced = torch.export.export(Summing(), (torch.randn(BATCH, 1, 3),))
    assert not any(node.target is torch.ops.higher_order.scan for node in traced.graph.nodes)


class Summing(nn.Module):
    """x: (batch, length, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        states = (x.new_zeros(x.shape[0], 3), x.new_zeros(x.shape[0]))
        (total, count), outputs = recurrence(decaying_sum, states, [x], [self.weight])
        return {"outputs": outputs, "total": total, "count": count}


@pytest.mark.export
@pytest.mark.parametrize(
    ("exporter", "config"),
    [
        (DynamoExporter(), DynamoConfig()),
        (OnnxExporter(), OnnxConfig()),
        (ExecutorchExporter(), ExecutorchConfig(max_size=130)),
    ],
    ids=["dynamo", "onnx", "executorch"],
)
def test_one_graph_takes_every_length_and_batch_in_the_runtime(exporter: Any, config: Any) -> None:
    model = Summing().eval()
    artifact = exporter.export_artifact(model, {"x": torch.randn(2, 8, 3)}, config)
    # ExecuTorch keeps its buffers between calls: a longer call, then shorter ones, of other batches.
    for batch, length in ((2, 8), (3, 130), (1, 1), (4, 7), (1, 64), (2, 2)):
        x = torch.randn(batch, length, 3)
        for name, expected in model(x).items():
            torch.testing.assert_close(artifact(x=x)[name], expected, rtol=1e-4, atol=1e-4)


def mamba(length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    state = 3
    return (
        (
            torch.randn(BATCH, KEYS, length),
            torch.randn(BATCH, KEYS, length),
            -torch.rand(KEYS, state).exp(),
            torch.randn(BATCH, state, length),
            torch.randn(BATCH, state, length),
        ),
        {
            "D": torch.randn(KEYS),
            "z": torch.randn(BATCH, KEYS, length),
            "delta_bias": torch.randn(KEYS),
            "delta_softplus": True,
            "return_last_state": True,
        },
    )


def mamba2(length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    state, groups = 3, 2
    return (
        (
            torch.randn(BATCH, length, HEADS, VALUES),
            torch.randn(BATCH, length, HEADS),
            -torch.rand(HEADS).exp(),
            torch.randn(BATCH, length, groups, state),
            torch.randn(BATCH, length, groups, state),
        ),
        {
            "chunk_size": 16,
            "D": torch.randn(HEADS),
            "dt_bias": torch.randn(HEADS),
            "dt_softplus": True,
            "dt_limit": (0.1, 2.0),
            "return_final_states": True,
            "initial_states": torch.randn(BATCH, HEADS, VALUES, state),
        },
    )


def delta(length: int, *, shared: int = 2, decay: tuple[int, ...] = ()) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (
        (
            torch.randn(BATCH, length, HEADS // shared, KEYS),
            torch.randn(BATCH, length, HEADS // shared, KEYS),
            torch.randn(BATCH, length, HEADS, VALUES),
        ),
        {
            "g": -torch.rand(BATCH, length, HEADS, *decay),
            "beta": torch.rand(BATCH, length, HEADS),
            "initial_state": torch.randn(BATCH, HEADS, KEYS, VALUES),
            "output_final_state": True,
            "use_qk_l2norm_in_kernel": True,
        },
    )


def kimi(length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return delta(length, shared=1, decay=(KEYS,))


def rwkv(length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    sequences = (torch.randn(BATCH, length, KEYS), torch.randn(BATCH, length, KEYS))
    return (torch.randn(KEYS), torch.randn(KEYS), *sequences), {"return_state": True}


FUNCTIONS: dict[str, Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "mamba.modeling_mamba.mamba_selective_scan": mamba,
    "mamba2.modeling_mamba2.mamba2_chunk_scan": mamba2,
    "qwen3_next.modeling_qwen3_next.torch_chunk_gated_delta_rule": delta,
    "qwen3_next.modeling_qwen3_next.torch_recurrent_gated_delta_rule": delta,
    "kimi_linear.modeling_kimi_linear.chunk_kimi_delta_attention": kimi,
    "kimi_linear.modeling_kimi_linear.recurrent_kimi_delta_attention": kimi,
    "rwkv.modeling_rwkv.rwkv_linear_attention": rwkv,
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("path", FUNCTIONS)
def test_a_scan_gives_the_outputs_and_the_last_state_of_the_models_own_code(path: str, length: int) -> None:
    importlib.import_module(f"transformers.models.{path.rpartition('.')[0]}")
    place = resolve(f"transformers.models.{path}")
    if place is None:
        pytest.skip("this transformers has no such function")
    arguments, keywords = FUNCTIONS[path](length)
    expected = getattr(*place)(*arguments, **keywords)
    hits = Hits()
    with apply_patches("dynamo", "model_patches", hits):
        found = getattr(*place)(*arguments, **keywords)
    assert hits.counts.total() == 1
    torch.testing.assert_close(pytree.tree_leaves(found), pytree.tree_leaves(expected), rtol=1e-4, atol=1e-4)


def test_the_models_own_function_leaves_out_a_state_that_nobody_asked_for() -> None:
    modeling = importlib.import_module("transformers.models.mamba.modeling_mamba")
    arguments, keywords = mamba(5)
    del keywords["return_last_state"]
    with apply_patches("dynamo", "model_patches", Hits()):
        assert modeling.mamba_selective_scan(*arguments, **keywords).shape == (BATCH, KEYS, 5)


def test_every_replaced_function_of_a_family_is_the_one_that_was_compared() -> None:
    """The members of a family are copies of each other: one that changed needs its own comparison."""
    for workaround in workarounds("dynamo", "model_patches"):
        if not workaround.function.__module__.endswith(".scans"):
            continue
        sources: dict[str, set[str]] = {}
        for path in workaround.targets:
            if (place := resolve(path)) is not None:
                function = inspect.unwrap(getattr(*place))
                body = inspect.getsource(function).partition("def ")[2]  # without its decorators
                sources.setdefault(function.__name__, set()).add(body)
        assert {name: len(found) for name, found in sources.items()} == dict.fromkeys(sources, 1)


@pytest.mark.export
def test_a_tiny_mamba_takes_every_length() -> None:
    from transformers import MambaConfig, MambaModel

    torch.manual_seed(0)
    config = MambaConfig(
        vocab_size=32, hidden_size=16, state_size=4, num_hidden_layers=2, time_step_rank=4, use_cache=False
    )
    model = MambaModel(config).eval()
    ids = torch.randint(0, 32, (2, 6))
    artifact = DynamoExporter().export_artifact(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    assert artifact.workarounds == {"dynamo/model_patches/patch_selective_scan": 2}
    for batch, length in ((2, 6), (1, 1), (3, 70)):
        ids = torch.randint(0, 32, (batch, length))
        mask = torch.ones_like(ids)
        mask[0, : length // 2] = 0
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        found = artifact(input_ids=ids, attention_mask=mask)["last_hidden_state"]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
