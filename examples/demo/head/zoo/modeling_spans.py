"""A classifier of text spans."""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from .configuration_zoo import ZooConfig


class SpanPooler(nn.Module):
    """One vector a span: attention over the tokens it covers, zeros for an empty span."""

    def __init__(self, config):
        super().__init__()
        self.query = nn.Parameter(torch.randn(config.hidden_size))
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states, span_mask):
        query = self.query.expand(span_mask.shape[0], 1, span_mask.shape[1], -1)  # one head
        key, value = self.key(hidden_states)[:, None], self.value(hidden_states)[:, None]
        pooled = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=span_mask[:, None])
        return pooled[:, 0]


class SpanClassifier(PreTrainedModel):
    """Classifies every span of a text.

    input_ids: (batch, length). span_mask: boolean, (batch, spans, length), true where a span covers a token.
    """

    config_class = ZooConfig

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.pooler = SpanPooler(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, span_mask):
        pooled = self.pooler(self.embeddings(input_ids), span_mask)
        return SequenceClassifierOutput(logits=self.classifier(pooled))
