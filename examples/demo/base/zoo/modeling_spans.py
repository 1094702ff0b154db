"""A classifier of text spans."""

from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from .configuration_zoo import ZooConfig


class SpanPooler(nn.Module):
    """One vector a span: the mean of the tokens it covers, zeros for an empty span."""

    def __init__(self, config):
        super().__init__()
        self.query = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states, span_mask):
        weights = span_mask.to(hidden_states.dtype)
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1.0)
        return weights @ self.query(hidden_states)


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
