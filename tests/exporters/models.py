"""Models small enough to export in a second."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from exporters.leaves import named_leaves
from exporters.parity import compare


class Mean(nn.Module):
    """Masked mean over a sequence of embeddings. input_ids, attention_mask: (batch, length)."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        weights = attention_mask.to(torch.float32)
        pooled = (self.embeddings(input_ids) * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)
        return {"logits": self.head(pooled) * scale, "nested": {"pooled": pooled}}


class Odd(nn.Module):
    """Outputs besides tensors, and an input that is written into. x: (batch, length)."""

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        x.add_(1.0)
        return {"none": None, "twice": x * 2, "n": 3, "name": "odd", "length": x.shape[1], "pair": (None, x * 3)}


def assert_odd(artifact: Any) -> None:
    outputs = artifact(x=torch.zeros(3, 4))
    assert {name: float(value.mean()) for name, value in outputs.items()} == {"twice": 2.0, "pair.1": 3.0}


class Branching(Mean):
    """Its trace stops at a branch on a value."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        self.last_mask = attention_mask  # what tracing leaves behind
        if self.head.weight.sum() + attention_mask.sum() > 3:
            return super().forward(input_ids, attention_mask, scale)
        return {}


def snapshot(model: nn.Module) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """Every submodule's attributes by reference, and copies of the weights."""
    attributes = [(name, dict(vars(module))) for name, module in model.named_modules()]
    return attributes, {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_untouched(model: nn.Module, before: tuple[list[Any], dict[str, torch.Tensor]]) -> None:
    attributes, weights = snapshot(model)
    assert attributes == before[0]
    assert weights.keys() == before[1].keys()
    assert all(torch.equal(weights[name], before[1][name]) for name in weights)


def mean_inputs(batch: int = 2, length: int = 5) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    mask = torch.ones(batch, length, dtype=torch.long)
    return {"input_ids": torch.randint(0, 20, (batch, length), generator=generator), "attention_mask": mask}


def tiny_bert() -> Any:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=99)
    return BertForMaskedLM(config).eval()


def bert_inputs(batch: int = 2, length: int = 8, padded: bool = False) -> dict[str, torch.Tensor]:
    mask = torch.ones(batch, length, dtype=torch.long)
    if padded:
        mask[0, -3:] = 0
    return {"input_ids": torch.randint(0, 99, (batch, length)), "attention_mask": mask}


def assert_equals_eager(artifact: Any, model: nn.Module, *calls: dict[str, Any], padding_counts: bool = True) -> None:
    """Every output of every call, run in the artifact's own runtime, is eager's within the project's tolerance.

    Without ``padding_counts`` the positions that a call's attention_mask leaves out only have to be finite.
    """
    for inputs in calls:
        with torch.no_grad():
            expected = named_leaves(model(**inputs))
        mask = inputs.get("attention_mask")
        exempt = {}
        if mask is not None and not padding_counts:
            exempt = {name: mask == 0 for name, value in expected.items() if value.shape[:2] == mask.shape}
        problems = {c.name: c.problem for c in compare(expected, artifact(**inputs), exempt) if not c.passed}
        assert not problems


#: Id of the token that a picture's features take the place of, in the models below.
IMAGE = 98


def tiny_llava() -> Any:
    """One layer of each: pictures of 8 x 8 pixels are 4 features each."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    torch.manual_seed(0)
    shared = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "initializer_range": 0.5}
    vision = CLIPVisionConfig(**shared, num_hidden_layers=2, image_size=8, patch_size=4, projection_dim=32)
    text = LlamaConfig(**shared, num_hidden_layers=1, vocab_size=99, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=IMAGE, vision_feature_layer=-1)
    return LlavaForConditionalGeneration(config).eval()


def picture_prompt(pictures: int = 2, text: int = 5, padding: int = 0, seed: int = 0) -> dict[str, torch.Tensor]:
    """A picture and some text a row, the first row padded on the left."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(3, IMAGE, (pictures, text + 1), generator=generator)
    ids = torch.cat([words[:, :1], torch.full((pictures, 4), IMAGE), words[:, 1:]], 1)
    ids = torch.cat([torch.zeros(pictures, padding, dtype=torch.long), ids], 1)
    mask = torch.ones_like(ids)
    mask[:, :padding] = 0
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "pixel_values": torch.randn(pictures, 3, 8, 8, generator=generator),
    }


def tiny_blip(kind: str = "BlipForConditionalGeneration") -> Any:
    """Pictures of 8 x 8 pixels are 5 states of an encoder, which a decoder of one layer attends to."""
    import transformers

    torch.manual_seed(0)
    shared = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "initializer_range": 0.5}
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2, "pad_token_id": 0}
    text = transformers.BlipTextConfig(
        **shared, **tokens, num_hidden_layers=1, vocab_size=99, encoder_hidden_size=32, max_position_embeddings=40
    )
    vision = transformers.BlipVisionConfig(**shared, num_hidden_layers=1, image_size=8, patch_size=4)
    config = transformers.BlipConfig(text_config=text.to_dict(), vision_config=vision.to_dict())
    return getattr(transformers, kind)(config).eval()


def tiny_blip2(text: str) -> Any:
    """Pictures of 8 x 8 pixels are 4 features each, merged into the embeddings of a language model: OPT or T5."""
    import transformers

    torch.manual_seed(0)
    shared = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "initializer_range": 0.5}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 99}
    decoder: Any = transformers.T5Config(
        d_model=32, d_kv=16, num_layers=1, num_heads=2, d_ff=64, decoder_start_token_id=0, **ends
    )
    if text == "opt":
        sizes = {"hidden_size": 32, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 60}
        decoder = transformers.OPTConfig(**sizes, **ends, num_attention_heads=2, num_hidden_layers=1, init_std=0.5)
    vision = transformers.Blip2VisionConfig(**shared, num_hidden_layers=1, image_size=8, patch_size=4)
    former = transformers.Blip2QFormerConfig(
        **shared, num_hidden_layers=1, encoder_hidden_size=32, vocab_size=99, cross_attention_frequency=1
    )
    config = transformers.Blip2Config(
        vision_config=vision.to_dict(),
        qformer_config=former.to_dict(),
        text_config=decoder.to_dict(),
        num_query_tokens=4,
        image_token_index=IMAGE,
    )
    model = transformers.Blip2ForConditionalGeneration(config).eval()
    if text == "t5":
        for parameter in model.language_model.parameters():  # or every step picks the same token
            parameter.data.mul_(3)
    return model


def captions(pictures: int = 2, text: int = 6, padding: int = 0, seed: int = 0) -> dict[str, torch.Tensor]:
    """A picture and the beginning of its caption a row, the first row padded on the left."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 99, (pictures, text), generator=generator)
    mask = torch.ones_like(ids)
    ids[0, :padding], mask[0, :padding] = 0, 0
    return {
        "pixel_values": torch.randn(pictures, 3, 8, 8, generator=generator),
        "input_ids": ids,
        "attention_mask": mask,
    }


def tiny_qwen2_vl() -> Any:
    """Pictures of packed patches of 2 x 2 pixels, four of which are one feature."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    torch.manual_seed(0)
    sizes = {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2}
    text = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 99,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    config = Qwen2VLConfig(
        text_config=text,
        vision_config={**sizes, "patch_size": 2, "temporal_patch_size": 2, "spatial_merge_size": 2},
        image_token_id=IMAGE,
        video_token_id=97,
        vision_start_token_id=96,
        vision_end_token_id=95,
    )
    return Qwen2VLForConditionalGeneration(config).eval()


def grid_inputs(*grids: tuple[int, int, int], seed: int = 0) -> dict[str, torch.Tensor]:
    """The arguments of Qwen2-VL's vision encoder for pictures of these grids: frames, patches down and across."""
    count = sum(frames * down * across for frames, down, across in grids)
    generator = torch.Generator().manual_seed(seed)
    return {
        "hidden_states": torch.randn(count, 3 * 2 * 2 * 2, generator=generator),
        "grid_thw": torch.tensor(grids),
    }
