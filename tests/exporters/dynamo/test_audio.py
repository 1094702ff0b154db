from __future__ import annotations

import pytest
import torch

from exporters import DynamoExporter
from exporters.dynamo.audio import pooled_statistics


def test_rows_are_pooled_as_if_each_were_cut_off() -> None:
    hidden = torch.randn(3, 6, 4)
    lengths = torch.tensor([2, 6, 9])
    wanted = [
        torch.cat((row[:length].mean(0), row[:length].std(0))) for row, length in zip(hidden, lengths, strict=True)
    ]
    torch.testing.assert_close(pooled_statistics(hidden, lengths), torch.stack(wanted))


@pytest.mark.export
def test_x_vectors_of_padded_speech_keep_a_free_batch() -> None:
    from transformers import Wav2Vec2Config, Wav2Vec2ForXVector

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    stem = {"conv_dim": (32,), "conv_kernel": (10,), "conv_stride": (5,), "num_conv_pos_embeddings": 8}
    pooling = {"tdnn_dim": (16, 16), "tdnn_kernel": (5, 1), "tdnn_dilation": (1, 1), "xvector_output_dim": 8}
    config = Wav2Vec2Config(**sizes, **stem, **pooling)
    model = Wav2Vec2ForXVector(config).eval()

    def speech(batch: int, samples: int, padded: int) -> dict[str, torch.Tensor]:
        mask = torch.ones(batch, samples, dtype=torch.int64)
        mask[0, samples - padded :] = 0
        return {"input_values": torch.randn(batch, samples), "attention_mask": mask}

    artifact = DynamoExporter().export_artifact(model, speech(2, 100, 0))
    assert artifact.workarounds["dynamo/model_patches/patch_xvector_pooling"] == 1
    for batch, samples, padded in ((2, 100, 40), (3, 160, 50), (1, 90, 0)):
        inputs = speech(batch, samples, padded)
        expected = model(**inputs)
        torch.testing.assert_close(artifact(**inputs), {"logits": expected.logits, "embeddings": expected.embeddings})


@pytest.mark.export
def test_rows_of_codes_follow_the_batch_of_the_states() -> None:
    from transformers import MusicgenDecoderConfig, MusicgenForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 16, "vocab_size": 20}
    model = MusicgenForCausalLM(MusicgenDecoderConfig(**sizes, pad_token_id=0, bos_token_id=0, use_cache=False)).eval()

    def codes(batch: int, length: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 20, (4 * batch, length))
        return {"input_ids": ids, "encoder_hidden_states": torch.randn(batch, 5, 16)}

    artifact = DynamoExporter().export_artifact(model, codes(2, 6))
    assert artifact.workarounds["dynamo/model_patches/patch_codebook_rows"] == 1
    for batch, length in ((1, 6), (3, 4)):
        inputs = codes(batch, length)
        torch.testing.assert_close(artifact(**inputs)["logits"], model(**inputs).logits, rtol=1e-5, atol=1e-5)
