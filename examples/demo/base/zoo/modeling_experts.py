"""A regressor that sends every token through the expert its router picks."""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import TokenClassifierOutput

from .configuration_zoo import ZooConfig


class Experts(nn.Module):
    """A linear layer an expert; the router's best one is used."""

    def __init__(self, config):
        super().__init__()
        self.router = nn.Linear(config.hidden_size, config.num_experts)
        self.experts = nn.ModuleList(
            nn.Linear(config.hidden_size, config.hidden_size) for _ in range(config.num_experts)
        )

    def forward(self, hidden_states):
        choice = self.router(hidden_states).argmax(dim=-1)
        mixed = torch.zeros_like(hidden_states)
        for index in choice.unique().tolist():
            rows = choice == index
            mixed[rows] = self.experts[index](hidden_states[rows])
        return mixed


class ExpertRegressor(PreTrainedModel):
    """One number a token."""

    config_class = ZooConfig

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.experts = Experts(config)
        self.head = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def forward(self, input_ids):
        return TokenClassifierOutput(logits=self.head(self.experts(self.embeddings(input_ids))))
