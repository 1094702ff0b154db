"""A token classifier whose activations are kept from growing too large."""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import TokenClassifierOutput

from .configuration_zoo import ZooConfig


class ZooPreTrainedModel(PreTrainedModel):
    config_class = ZooConfig
    base_model_prefix = "zoo"


class Tagger(ZooPreTrainedModel):
    """Tags every token."""

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.mixer = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        hidden_states = self.embeddings(input_ids)
        if attention_mask is not None:
            hidden_states = hidden_states * attention_mask[..., None]
        context = hidden_states.mean(dim=1, keepdim=True)
        hidden_states = torch.tanh(self.mixer(hidden_states + context))
        hidden_states = hidden_states.clamp(-4.0, 4.0)
        return TokenClassifierOutput(logits=self.classifier(hidden_states))
