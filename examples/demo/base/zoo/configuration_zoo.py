"""The configuration that all models of the zoo share."""

from transformers import PretrainedConfig


class ZooConfig(PretrainedConfig):
    model_type = "zoo"

    def __init__(
        self, vocab_size=99, hidden_size=32, num_attention_heads=2, num_experts=3, num_labels=4, **kwargs
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_attention_heads = num_attention_heads
        self.num_experts = num_experts
        super().__init__(num_labels=num_labels, **kwargs)
