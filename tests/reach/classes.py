"""The classes that are promised to pass, and the cases that make up the promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hfexport_bot.schema import Backend, CaseId, Shapes, Task


@dataclass(frozen=True)
class Promised:
    """The classes of one model type: the base model, its main head, the class that generates, if any does, and more."""

    base: str
    head: str
    generating: str | None = None
    others: tuple[str, ...] = ()
    also_generating: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Each class once."""
        names = (self.base, self.head, self.generating, *self.others, *self.also_generating)
        return tuple(dict.fromkeys(name for name in names if name))


PROMISED: dict[str, Promised] = {
    # encoders
    "bert": Promised("BertModel", "BertForMaskedLM", "BertLMHeadModel"),
    "roberta": Promised("RobertaModel", "RobertaForMaskedLM", "RobertaForCausalLM"),
    "distilbert": Promised("DistilBertModel", "DistilBertForMaskedLM"),
    "deberta_v2": Promised("DebertaV2Model", "DebertaV2ForMaskedLM"),
    "electra": Promised("ElectraModel", "ElectraForPreTraining", "ElectraForCausalLM"),
    "albert": Promised("AlbertModel", "AlbertForMaskedLM"),
    "modernbert": Promised("ModernBertModel", "ModernBertForMaskedLM"),
    # decoders
    "gpt2": Promised("GPT2Model", "GPT2LMHeadModel", "GPT2LMHeadModel"),
    "gpt_neox": Promised("GPTNeoXModel", "GPTNeoXForCausalLM", "GPTNeoXForCausalLM"),
    "opt": Promised("OPTModel", "OPTForCausalLM", "OPTForCausalLM"),
    "bloom": Promised("BloomModel", "BloomForCausalLM", "BloomForCausalLM"),
    "llama": Promised("LlamaModel", "LlamaForCausalLM", "LlamaForCausalLM"),
    "mistral": Promised("MistralModel", "MistralForCausalLM", "MistralForCausalLM"),
    "qwen2": Promised("Qwen2Model", "Qwen2ForCausalLM", "Qwen2ForCausalLM"),
    "qwen3": Promised("Qwen3Model", "Qwen3ForCausalLM", "Qwen3ForCausalLM"),
    "gemma2": Promised("Gemma2Model", "Gemma2ForCausalLM", "Gemma2ForCausalLM"),
    "gemma3": Promised(
        "Gemma3TextModel",
        "Gemma3ForCausalLM",
        "Gemma3ForCausalLM",
        others=("Gemma3Model",),
        also_generating=("Gemma3ForConditionalGeneration",),
    ),
    "phi3": Promised("Phi3Model", "Phi3ForCausalLM", "Phi3ForCausalLM"),
    # mixtures of experts
    "mixtral": Promised("MixtralModel", "MixtralForCausalLM", "MixtralForCausalLM"),
    "qwen3_moe": Promised("Qwen3MoeModel", "Qwen3MoeForCausalLM", "Qwen3MoeForCausalLM"),
    "gpt_oss": Promised("GptOssModel", "GptOssForCausalLM", "GptOssForCausalLM"),
    # state spaces
    "mamba": Promised("MambaModel", "MambaForCausalLM", "MambaForCausalLM"),
    "mamba2": Promised("Mamba2Model", "Mamba2ForCausalLM", "Mamba2ForCausalLM"),
    "jamba": Promised("JambaModel", "JambaForCausalLM", "JambaForCausalLM"),
    # encoder-decoders
    "t5": Promised("T5Model", "T5ForConditionalGeneration", "T5ForConditionalGeneration"),
    "bart": Promised("BartModel", "BartForConditionalGeneration", "BartForConditionalGeneration"),
    "marian": Promised("MarianModel", "MarianMTModel", "MarianMTModel"),
    "pegasus": Promised("PegasusModel", "PegasusForConditionalGeneration", "PegasusForConditionalGeneration"),
    "nllb_moe": Promised("NllbMoeModel", "NllbMoeForConditionalGeneration", "NllbMoeForConditionalGeneration"),
    # images and videos
    "vit": Promised("ViTModel", "ViTForImageClassification"),
    "deit": Promised("DeiTModel", "DeiTForImageClassification"),
    "swin": Promised("SwinModel", "SwinForImageClassification"),
    "swinv2": Promised("Swinv2Model", "Swinv2ForImageClassification"),
    "convnext": Promised("ConvNextModel", "ConvNextForImageClassification"),
    "resnet": Promised("ResNetModel", "ResNetForImageClassification"),
    "dinov2": Promised("Dinov2Model", "Dinov2ForImageClassification"),
    "segformer": Promised("SegformerModel", "SegformerForSemanticSegmentation"),
    "videomae": Promised("VideoMAEModel", "VideoMAEForVideoClassification"),
    # sound
    "whisper": Promised(
        "WhisperModel",
        "WhisperForConditionalGeneration",
        "WhisperForConditionalGeneration",
        others=("WhisperForAudioClassification",),
    ),
    "wav2vec2": Promised(
        "Wav2Vec2Model", "Wav2Vec2ForCTC", others=("Wav2Vec2ForSequenceClassification", "Wav2Vec2ForXVector")
    ),
    "hubert": Promised("HubertModel", "HubertForCTC"),
    "speecht5": Promised(
        "SpeechT5Model",
        "SpeechT5ForSpeechToText",
        "SpeechT5ForSpeechToText",
        others=("SpeechT5ForTextToSpeech",),
    ),
    "musicgen": Promised("MusicgenForCausalLM", "MusicgenForConditionalGeneration"),
    # pictures among text
    "llava": Promised("LlavaModel", "LlavaForConditionalGeneration", "LlavaForConditionalGeneration"),
    "qwen2_vl": Promised("Qwen2VLModel", "Qwen2VLForConditionalGeneration", "Qwen2VLForConditionalGeneration"),
    "qwen2_5_vl": Promised(
        "Qwen2_5_VLModel", "Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"
    ),
    "smolvlm": Promised("SmolVLMModel", "SmolVLMForConditionalGeneration", "SmolVLMForConditionalGeneration"),
    # detection, prompts on an image, images with text, pages, time series
    "detr": Promised("DetrModel", "DetrForObjectDetection"),
    "yolos": Promised("YolosModel", "YolosForObjectDetection"),
    "sam": Promised("SamModel", "SamVisionModel"),
    "clip": Promised("CLIPModel", "CLIPVisionModelWithProjection", others=("CLIPTextModelWithProjection",)),
    "siglip": Promised("SiglipModel", "SiglipForImageClassification"),
    "blip": Promised(
        "BlipModel",
        "BlipForConditionalGeneration",
        "BlipForConditionalGeneration",
        others=("BlipForImageTextRetrieval",),
    ),
    "layoutlmv3": Promised("LayoutLMv3Model", "LayoutLMv3ForTokenClassification"),
    "patchtst": Promised("PatchTSTModel", "PatchTSTForPrediction"),
}

#: Classes that draw random numbers in every forward, also when they evaluate: nothing can be compared, and the outcome
#: has to say so. SpeechT5 drops out half of what its decoder is fed.
RANDOM = frozenset({"SpeechT5ForTextToSpeech"})

_TRACED = (Backend.DYNAMO,)
_IN_ONNX = (Backend.DYNAMO, Backend.ONNX)
_IN_EXECUTORCH = (Backend.DYNAMO, Backend.EXECUTORCH)
#: Types chosen for variety, whose base classes run in every ``make test``, each on the backends where its kind differs
#: most from the others: an export to ExecuTorch takes ten times as long as a trace.
QUICK: dict[str, tuple[Backend, ...]] = {
    "bert": tuple(Backend),  # plain attention
    "albert": _TRACED,  # shared layers
    "deberta_v2": _IN_ONNX,  # disentangled attention
    "modernbert": _IN_ONNX,  # packed windows
    "gpt2": _IN_ONNX,  # learned positions
    "bloom": _IN_ONNX,  # ALiBi
    "llama": _TRACED,  # rotary positions
    "gemma3": _TRACED,  # sliding windows
    "mixtral": _IN_ONNX,  # experts
    "mamba": _IN_EXECUTORCH,  # a state space
    "t5": _TRACED,  # relative buckets
    "whisper": _IN_ONNX,  # convolutions over sound
    "patchtst": _IN_EXECUTORCH,  # patches of series
    "swin": _TRACED,  # shifted windows of an image
}
#: Generation that runs in every ``make test``, with its backends.
QUICK_GENERATE: dict[str, tuple[Backend, ...]] = {"llama": _IN_ONNX, "t5": _TRACED}


def promised_cases() -> Iterator[CaseId]:
    """Every case of the promise: forward with both kinds of shapes, generation with dynamic ones, on every backend."""
    for model, promised in PROMISED.items():
        for backend in Backend:
            for name in promised.classes:
                for shapes in Shapes:
                    yield CaseId(model=model, class_name=name, backend=backend, shapes=shapes)
            for name in filter(None, (promised.generating, *promised.also_generating)):
                yield CaseId(model=model, class_name=name, backend=backend, task=Task.GENERATE)


def is_quick(case: CaseId) -> bool:
    """Whether a case runs in ``make test`` too."""
    if case.shapes is not Shapes.DYNAMIC:
        return False
    if case.task is Task.GENERATE:
        return case.backend in QUICK_GENERATE.get(case.model, ())
    return case.backend in QUICK.get(case.model, ()) and case.class_name == PROMISED[case.model].base
