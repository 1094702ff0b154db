"""Stage ``model_patches``: what audio models do that no trace with a free batch size can hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exporters.registry import register_patch


@register_patch(
    "dynamo",
    "transformers.models.musicgen.modeling_musicgen.MusicgenDecoder.forward",
    "transformers.models.musicgen_melody.modeling_musicgen_melody.MusicgenMelodyDecoder.forward",
    model_change="view codes by the batch size of the masks or states that come with them",
)
def _patch_codebook_rows(original: Callable[..., Any]) -> Callable[..., Any]:
    """Rows of codes are divided by the number of codebooks for a batch size, and the trace shuts out a batch of one.

    With the batch size of the mask or the encoder's states the number of rows is a multiple of it, not a quotient.
    """

    @functools.wraps(original)
    def forward(self: Any, input_ids: Any = None, *args: Any, **kwargs: Any) -> Any:
        known = (kwargs.get(name) for name in ("encoder_hidden_states", "attention_mask", "encoder_attention_mask"))
        batch = next((tensor.shape[0] for tensor in known if tensor is not None), None)
        if batch is not None and input_ids is not None and input_ids.dim() == 2:
            input_ids = input_ids.reshape(batch, self.num_codebooks, input_ids.shape[-1])
        return original(self, input_ids, *args, **kwargs)

    return forward


_XVECTORS = (
    "data2vec.modeling_data2vec_audio.Data2VecAudioForXVector",
    "unispeech_sat.modeling_unispeech_sat.UniSpeechSatForXVector",
    "wav2vec2.modeling_wav2vec2.Wav2Vec2ForXVector",
    "wav2vec2_conformer.modeling_wav2vec2_conformer.Wav2Vec2ConformerForXVector",
    "wavlm.modeling_wavlm.WavLMForXVector",
)


@register_patch(
    "dynamo",
    *(f"transformers.models.{name}.forward" for name in _XVECTORS),
    model_change="pool with a mask instead of a loop over the rows",
)
def _patch_xvector_pooling(original: Callable[..., Any]) -> Callable[..., Any]:
    """A loop over the batch cuts each row off at a length that only the mask tells; a mask pools all rows at once."""

    @functools.wraps(original)
    def forward(self: Any, input_values: Any, attention_mask: Any = None, labels: Any = None, **kwargs: Any) -> Any:
        if attention_mask is None or labels is not None or self.config.use_weighted_layer_sum:
            return original(self, input_values, attention_mask=attention_mask, labels=labels, **kwargs)
        from transformers.modeling_outputs import XVectorOutput

        asked = kwargs.get("output_hidden_states") or self.config.output_hidden_states
        outputs = getattr(self, self.base_model_prefix)(input_values, attention_mask=attention_mask, **kwargs)
        hidden = self.projector(outputs.last_hidden_state)
        for layer in self.tdnn:
            hidden = layer(hidden)
        lengths = self._get_tdnn_output_lengths(self._get_feat_extract_output_lengths(attention_mask.sum(1)))
        embeddings = self.feature_extractor(pooled_statistics(hidden, lengths))
        return XVectorOutput(
            logits=self.classifier(embeddings),
            embeddings=embeddings,
            hidden_states=outputs.hidden_states if asked else None,
            attentions=outputs.attentions,
        )

    return forward


def pooled_statistics(hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Mean and standard deviation of each row's first states, (batch, 2 x width).

    Args:
        hidden: (batch, length, width).
        lengths: (batch), how many states count in each row; what is beyond ``length`` does not.
    """
    counted = torch.arange(hidden.shape[1], device=hidden.device) < lengths.unsqueeze(1)
    weights = counted.unsqueeze(-1).to(hidden.dtype)
    count = weights.sum(1)
    mean = (hidden * weights).sum(1) / count
    variance = ((hidden - mean.unsqueeze(1)).square() * weights).sum(1) / (count - 1)
    return torch.cat((mean, variance.sqrt()), dim=-1)
