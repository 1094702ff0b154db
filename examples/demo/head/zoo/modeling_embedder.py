"""A text embedder: one vector a token."""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from .configuration_zoo import ZooConfig


class Embedder(PreTrainedModel):
    """Embeds every token of a text.

    input_ids: (batch, length) token ids. Returns vectors of shape (batch, length, hidden size).
    """

    config_class = ZooConfig

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.projection = nn.Linear(config.hidden_size, config.hidden_size)
        self.post_init()

    def forward(self, input_ids):
        return BaseModelOutput(last_hidden_state=torch.tanh(self.projection(self.embeddings(input_ids))))
