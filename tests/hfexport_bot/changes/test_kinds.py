"""Kinds of models, told by the words of their files."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.kinds import model_kinds, selected_kinds
from hfexport_bot.changes.layout import model_file
from hfexport_bot.changes.selection import AffectedModule, Selection
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout

SOURCE = b'''
class ToyExperts(nn.Module):
    pass

class ToyLayer(nn.Module):
    """Unlike Mamba's ssm_state."""
    def __init__(self, config):
        self.window = config.sliding_window  # no input_features
        self.experts = ToyExperts()

class ToyModel(ToyPreTrainedModel):
    def forward(self, input_ids):
        cache = DynamicCache(config=self.config)
        return ToyLayer(self.config)(input_ids)

class ToyVision(ToyPreTrainedModel):
    def forward(self, pixel_values):
        return pixel_values
'''


def test_a_class_has_the_kinds_of_what_it_leads_to_and_of_nothing_else() -> None:
    assert model_kinds(SOURCE, ["ToyModel", "ToyVision", "Gone"]) == {
        "ToyModel": {"growing cache", "sliding attention", "mixture of experts"},
        "ToyVision": {"vision"},
        "Gone": frozenset(),
    }


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("forward(self, decoder_input_ids)", "encoder-decoder"),
        ("past_key_values = EncoderDecoderCache()", "cache of an encoder-decoder"),
        ("cache = ToyHybridCache(config)", "cache of its own"),
        ("self.A_log = 1", "state-space"),
        ("forward(self, input_features)", "audio"),
        ("create_chunked_causal_mask()", "chunked attention"),
        ("config.kv_lora_rank", "latent attention"),
        ("forward(self, hidden, cu_seqlens)", "packed sequences"),
    ],
)
def test_each_kind_has_its_words(words: str, kind: str) -> None:
    assert model_kinds(f"class A(B):\n    {words}\n".encode(), ["A"])["A"] == {kind}


def test_a_file_that_only_base_has_is_read_there() -> None:
    path = "modeling_toy.py"
    file = model_file(path, Layout.MODELING)
    gone = AffectedModule(file, None, ("ToyVision",), (), reason="gone")
    kinds = selected_kinds(Selection((gone,)), MappingTree({path: SOURCE}), MappingTree({}))
    assert kinds == {("modeling_toy", "ToyVision"): {"vision"}}
