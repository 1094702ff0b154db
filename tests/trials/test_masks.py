"""Trial T22: masks that a fused kernel cannot follow are not those that anybody pads with, and never tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from exporters import OnnxExporter
from hfexport_bot.runner.sources import find_model_case

WIDTH, HEADS, LENGTH = 8, 2, 8

RIGHT = [1, 1, 1, 1, 1, 0, 0, 0]
LEFT = [0, 0, 0, 1, 1, 1, 1, 1]
RANDOM = [1, 0, 1, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("name", ["BertModel", "LlamaForCausalLM", "T5Model", "BartModel"])
def test_T22_masks_that_are_tried_are_padding_on_one_side(name: str) -> None:
    """https://github.com/microsoft/onnxruntime/issues/18945: random masks of 0 and 1 raise false alarms."""
    import transformers

    case = find_model_case(getattr(transformers, name))
    masks = {
        (probe, key): value
        for probe, inputs in {"traced": case.inputs, **case.probes}.items()
        for key, value in inputs.items()
        if key.endswith("attention_mask")
    }
    assert {probe for probe, _ in masks} >= {"traced", "pad_left", "pad_right"}
    for mask in masks.values():
        for row in mask.tolist():
            kept = [place for place, one in enumerate(row) if one]
            assert set(row) <= {0, 1}
            assert kept, "every row has something to attend to"
            assert kept == list(range(kept[0], kept[-1] + 1)), "what counts is in one piece"
            assert kept[0] == 0 or kept[-1] == len(row) - 1, "and padding is on one side"


def _fused_attention(mask_axes: list[int]) -> onnxruntime.InferenceSession:
    """ONNX Runtime's own Attention. mask: (batch, length), or (batch) lengths, which takes padding at the right for
    granted."""
    weights = [("weight", (WIDTH, 3 * WIDTH)), ("bias", (3 * WIDTH,))]
    generator = np.random.default_rng(0)
    node = helper.make_node(
        "Attention", ["x", "weight", "bias", "mask"], ["y"], domain="com.microsoft", num_heads=HEADS
    )
    graph = helper.make_graph(
        [node],
        "attention",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, LENGTH, WIDTH]),
            helper.make_tensor_value_info("mask", TensorProto.INT32, mask_axes),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, LENGTH, WIDTH])],
        [numpy_helper.from_array(generator.standard_normal(shape, dtype=np.float32), name) for name, shape in weights],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize(("mask", "agree"), [(RIGHT, True), (RANDOM, False)], ids=["right", "random"])
def test_T22_a_kernel_that_is_told_lengths_knows_padding_at_the_right_only(mask: list[int], agree: bool) -> None:
    """https://github.com/microsoft/onnxruntime/issues/18945: the failing arm, and right padding as control."""
    x = np.random.default_rng(1).standard_normal((1, LENGTH, WIDTH), dtype=np.float32)
    (whole,) = _fused_attention([1, LENGTH]).run(None, {"x": x, "mask": np.array([mask], dtype=np.int32)})
    (lengths,) = _fused_attention([1]).run(None, {"x": x, "mask": np.array([sum(mask)], dtype=np.int32)})
    kept = np.array(mask, dtype=bool)
    assert np.allclose(whole[:, kept], lengths[:, kept], rtol=1e-4, atol=1e-4) == agree


@pytest.mark.export
def test_T22_a_bert_after_onnxruntimes_own_optimizer_is_right_for_every_mask(tmp_path: Path) -> None:
    """https://github.com/microsoft/onnxruntime/issues/18945, https://github.com/microsoft/onnxruntime/issues/12843
    (what stands for minus infinity) and https://github.com/huggingface/optimum/issues/978.

    Layer normalizations are fused, attention is not recognised in graphs of this exporter. When it is, right padding
    must stay right, and masks must go in raw (``use_raw_attention_mask``) for the others.
    """
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 99}
    model = BertModel(BertConfig(**sizes, intermediate_size=64, initializer_range=0.5)).eval()
    inputs = {"input_ids": torch.randint(3, 99, (2, LENGTH)), "attention_mask": torch.ones(2, LENGTH, dtype=torch.long)}
    file = tmp_path / "bert.onnx"
    OnnxExporter().export(model, inputs).save(file)
    fused = optimizer.optimize_model(str(file), model_type="bert", num_heads=4, hidden_size=32, opt_level=0).model
    operators = {node.op_type for node in fused.graph.node}
    assert "SkipLayerNormalization" in operators
    assert "Attention" not in operators
    session = onnxruntime.InferenceSession(fused.SerializeToString())
    for row in (RIGHT, LEFT, RANDOM):
        mask = torch.tensor([row, [1] * LENGTH])
        with torch.no_grad():
            expected = model(input_ids=inputs["input_ids"], attention_mask=mask).last_hidden_state
        feeds = {"input_ids": inputs["input_ids"].numpy(), "attention_mask": mask.numpy()}
        (found,) = session.run(["last_hidden_state"], feeds)
        kept = mask.bool()
        torch.testing.assert_close(torch.from_numpy(found)[kept], expected[kept], rtol=1e-4, atol=1e-4)
