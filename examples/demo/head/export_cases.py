"""How to build the models of this repository that hfexport-bot cannot guess the inputs of."""

import torch

from zoo.configuration_zoo import ZooConfig
from zoo.modeling_spans import SpanClassifier


def build(class_name, seed):
    """The span classifier with spans of its own; None leaves the other models to hfexport-bot."""
    if class_name != "SpanClassifier":
        return None
    torch.manual_seed(seed)
    model = SpanClassifier(ZooConfig()).eval()
    return {
        "model": model,
        "inputs": spans(batch=2, count=3, length=8),
        "probes": {
            "batch_3": spans(batch=3, count=3, length=8),
            "length_11": spans(batch=2, count=4, length=11),
        },
    }


def spans(batch, count, length):
    """Token ids, and for each span the tokens it covers; the last span of the first text is empty."""
    generator = torch.Generator().manual_seed(batch * 100 + length)
    starts = torch.randint(0, length - 2, (batch, count, 1), generator=generator)
    positions = torch.arange(length).expand(batch, count, length)
    span_mask = (positions >= starts) & (positions < starts + 2)
    span_mask[0, -1] = False
    return {"input_ids": torch.randint(0, 99, (batch, length), generator=generator), "span_mask": span_mask}
