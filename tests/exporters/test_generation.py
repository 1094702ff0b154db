from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from exporters import DynamoExporter, ExecutorchExporter, OnnxExporter
from exporters.base import HfExporter
from exporters.generation import capture_steps
from exporters.generation_settings import ending_of
from exporters.leaves import named_leaves
from tests.exporters.models import Mean, assert_untouched, mean_inputs, snapshot

pytestmark = pytest.mark.export

TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 99,
}


def llama(**fields: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    # Weights this large make every step pick another token; the usual ones repeat a single token.
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **TOKENS, "initializer_range": 0.5, **fields})).eval()


def prompt(batch: int, length: int, padding: int = 0) -> dict[str, torch.Tensor]:
    """A batch of prompts, the first one padded on the left."""
    generator = torch.Generator().manual_seed(length)
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, :padding] = 0
    return {"input_ids": torch.randint(3, 99, (batch, length), generator=generator), "attention_mask": mask}


# ExecuTorch: below, over a sliding window, and `make reach` generates with Llama on it.
@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter()], ids=lambda e: e.backend)
def test_tokens_equal_eagers_at_any_shape_and_with_padding(exporter: HfExporter) -> None:
    model = llama(num_hidden_layers=2 if exporter.backend == "dynamo" else 1)
    before = snapshot(model)
    export = exporter.export_for_generation(model, prompt(2, 6, padding=2))
    assert_untouched(model, before)
    assert list(export) == ["prefill", "decode"]
    assert export["decode"] is export.artifacts["decode"].program
    seen: set[int] = set()
    for inputs in (prompt(2, 6, padding=2), prompt(3, 9, padding=4), prompt(1, 5)):
        expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)
        assert torch.equal(export.generate(**inputs, max_new_tokens=8), expected)
        seen.update(expected[:, inputs["input_ids"].shape[1] :].flatten().tolist())
    assert len(seen) > 8, "the check has no power: the model repeats itself"


WINDOW = 6


def gemma2() -> Any:
    """One layer with a sliding window, one with full attention."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    sizes = SIZES | {"initializer_range": 0.5, "sliding_window": WINDOW, "query_pre_attn_scalar": 8}
    return Gemma2ForCausalLM(Gemma2Config(**{**sizes, **TOKENS, "head_dim": 8, "rms_norm_eps": 1e-2})).eval()


def mistral(layers: int = 1) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    fields = SIZES | TOKENS | {"initializer_range": 0.5, "sliding_window": WINDOW, "num_hidden_layers": layers}
    return MistralForCausalLM(MistralConfig(**fields)).eval()


def jamba() -> Any:
    """A state-space layer, an attention layer."""
    from transformers import JambaConfig, JambaForCausalLM

    torch.manual_seed(0)
    fields = SIZES | TOKENS | {"initializer_range": 0.5, "attn_layer_period": 2, "attn_layer_offset": 1}
    return JambaForCausalLM(JambaConfig(**fields, num_experts=1, num_experts_per_tok=1, mamba_d_state=8)).eval()


PROMPTS = [prompt(2, 7, padding=2), prompt(3, 9, padding=4), prompt(1, 4), prompt(2, 1)]


def assert_tokens_equal(export: Any, model: Any, prompts: list[dict[str, torch.Tensor]], *, new: int = 10) -> None:
    seen: set[int] = set()
    for inputs in prompts:
        expected = model.generate(**inputs, max_new_tokens=new, do_sample=False)
        assert torch.equal(export.generate(**inputs, max_new_tokens=new), expected)
        seen.update(expected[:, inputs["input_ids"].shape[1] :].flatten().tolist())
    assert len(seen) > 3, "the check has no power: the model repeats itself"


@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter(), ExecutorchExporter()], ids=lambda e: e.backend)
def test_a_sliding_window_is_right_before_and_after_it_is_full_and_never_grows_past_it(exporter: HfExporter) -> None:
    model = mistral()
    export = exporter.export_for_generation(model, prompt(2, 7, padding=2))
    assert_tokens_equal(export, model, PROMPTS)
    decode = export.artifacts["decode"]
    (cached,) = [axis for axis in decode.axes if axis.input.endswith("layers.0.keys") and axis.axis == 2]
    assert cached.upper == WINDOW - 1
    call = capture_steps(model, prompt(2, 9, padding=1)).steps["decode"].inputs
    outputs = decode(**call)
    assert {tuple(value.shape) for path, value in outputs.items() if path.endswith("keys")} == {(2, 2, WINDOW - 1, 8)}
    assert {int(value) for path, value in outputs.items() if path.endswith("cumulative_length")} == {10}


@pytest.mark.parametrize("make", [gemma2, jamba], ids=lambda make: make.__name__)
def test_layers_of_several_kinds_share_a_cache(make: Any) -> None:
    model = make()
    export = DynamoExporter().export_for_generation(model, prompt(2, 7, padding=2))
    assert_tokens_equal(export, model, PROMPTS)


def static(model: Any, places: int = 24, **settings: Any) -> Any:
    fields = model.generation_config.to_dict() | {"cache_implementation": "static", "max_length": places}
    return type(model.generation_config).from_dict(fields | settings)


@functools.cache
def static_export(make: Any) -> tuple[Any, Any]:
    """A model, and what generates for it with a cache of 24 places."""
    model = make()
    inputs = prompt(2, 7, padding=2)
    return model, DynamoExporter().export_for_generation(model, inputs, generation_config=static(model))


@pytest.mark.parametrize("make", [llama, gemma2], ids=lambda make: make.__name__)
def test_a_static_cache_has_one_size_for_good(make: Any) -> None:
    model, export = static_export(make)
    sizes = {
        axis.input.split(".")[-1]: axis.upper
        for axis in export.artifacts["decode"].axes
        if ".layers.1." in axis.input and axis.axis == 2
    }
    assert sizes == {"keys": 24, "values": 24}
    assert_tokens_equal(export, model, PROMPTS)


def test_what_a_static_cache_cannot_be_is_refused() -> None:
    model = llama()
    cases = [
        (model, static(model, max_length=None), "say how many tokens with max_length"),
        (model, static(model, cache_implementation="offloaded"), "'offloaded' cannot be exported"),
        (t5(), static(t5()), "is an encoder-decoder, whose static cache"),
    ]
    for each, config, message in cases:
        with pytest.raises(ValueError, match=message):
            DynamoExporter().export_for_generation(each, prompt(2, 6), generation_config=config)
    with pytest.raises(ValueError, match="takes one token at a time"):
        DynamoExporter().export_for_generation(
            gemma2(), prompt(2, 6), generation_config=static(gemma2()), multi_token_decode=True
        )


def test_settings_that_are_left_open_are_the_models_own() -> None:
    model, inputs = llama(), prompt(2, 6)
    tokens = model.generate(**inputs, max_new_tokens=6, do_sample=False)[:, 6:]
    model.generation_config.eos_token_id = int(tokens[0, 2])
    open_settings = type(model.generation_config)(max_length=20)
    ending = ending_of(model, open_settings)
    assert (ending.eos, ending.pad) == ((int(tokens[0, 2]),), 0)
    model.generation_config.repetition_penalty = 5.0
    with pytest.raises(ValueError, match=r"unset it first, as in model\.generation_config\.repetition_penalty = None"):
        capture_steps(model, inputs, open_settings)
    model.generation_config.repetition_penalty = None
    model.generation_config.cache_implementation = "hybrid"  # the kind of cache is for eager; it changes no token
    assert ending_of(model).places is None
    assert list(capture_steps(model, inputs).steps) == ["prefill", "decode"]


def test_a_static_cache_takes_as_many_tokens_as_it_has_places() -> None:
    (model, export), inputs = static_export(llama), prompt(2, 6)
    expected = model.generate(**inputs, max_new_tokens=19, do_sample=False)
    assert expected.shape[1] == 25, "no sequence ends before its places do"
    assert torch.equal(export.generate(**inputs, max_new_tokens=19), expected)
    with pytest.raises(ValueError, match=r"6 tokens and 20 new ones .* max_length of at least 25, now 24"):
        export.generate(**inputs, max_new_tokens=20)
    with pytest.raises(ValueError, match="no room for the sample prompt of 6 tokens and the 4"):
        capture_steps(model, inputs, static(model, places=9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_new_tokens": 5}, "inputs hold max_new_tokens, no tensor; settings go into the generation_config"),
        ({"input_ids": torch.ones(2, 1, dtype=torch.long)}, "with a length of at least 2"),
        ({"attention_mask": torch.tensor([[0, 0, 0], [1, 1, 1]])}, "a row of the attention_mask is all padding"),
        ({"attention_mask": torch.tensor([[1, 1, 0], [1, 1, 1]])}, "pad the sample prompts on the left"),
    ],
)
def test_prompts_that_cannot_be_recorded_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        capture_steps(llama(), prompt(2, 3) | change)


def test_a_generation_config_is_one() -> None:
    with pytest.raises(TypeError, match="generation_config must be a GenerationConfig, got dict"):
        capture_steps(llama(), prompt(2, 6), {"cache_implementation": "static"})


def test_a_decode_of_several_tokens_gives_what_one_after_the_other_gives() -> None:
    model = mistral(layers=2)
    export = DynamoExporter().export_for_generation(model, prompt(2, 7, padding=2), multi_token_decode=True)
    assert_tokens_equal(export, model, PROMPTS)
    call = capture_steps(model, prompt(3, 9, padding=1), multi_token_decode=True).steps["decode"].inputs
    drafted = {**call, "input_ids": torch.cat([call["input_ids"], call["input_ids"]], 1)}
    drafted["position_ids"] = torch.cat([call["position_ids"], call["position_ids"] + 2], 1)
    drafted["attention_mask"] = torch.nn.functional.pad(call["attention_mask"], (0, 2), value=1)
    expected = model(**pytree.tree_map_only(torch.Tensor, torch.clone, drafted)).logits
    assert expected.shape[1] == 4
    torch.testing.assert_close(export.artifacts["decode"](**drafted)["logits"], expected, rtol=1e-4, atol=1e-4)


def test_a_model_that_cannot_decode_several_tokens_at_once_is_refused() -> None:
    with pytest.raises(ValueError, match="JambaForCausalLM does not decode several tokens in one call"):
        DynamoExporter().export_for_generation(jamba(), prompt(2, 7), multi_token_decode=True)


@pytest.fixture(scope="module")
def exported() -> tuple[Any, Any]:
    """A model, and what generates for it from padded prompts; tests leave both as they are."""
    model = llama()
    return model, DynamoExporter().export_for_generation(model, prompt(2, 6, padding=2))


def test_logits_of_a_given_continuation_are_eagers(exported: tuple[Any, Any]) -> None:
    (model, export), inputs = exported, prompt(2, 6, padding=2)
    given = {"do_sample": False, "max_new_tokens": 4, "output_logits": True, "return_dict_in_generate": True}
    eager = model.generate(**inputs, **given)
    found = export.logits(**inputs, continuation=eager.sequences[:, 6:])
    torch.testing.assert_close(found, torch.stack(eager.logits, dim=1), rtol=1e-4, atol=1e-4)


def test_a_finished_sequence_is_filled_up_with_padding() -> None:
    model, inputs = llama(), prompt(2, 6)
    tokens = model.generate(**inputs, max_new_tokens=6, do_sample=False)[:, 6:]
    model.generation_config.eos_token_id = [int(tokens[0, 2]), 98]  # the first sequence ends after three tokens
    export = DynamoExporter().export_for_generation(model, inputs)
    expected = model.generate(**inputs, max_new_tokens=6, do_sample=False)
    assert expected[0, -1] == 0
    assert torch.equal(export.generate(**inputs, max_new_tokens=6), expected)


def test_the_mask_may_be_left_out_of_a_prompt_without_padding(exported: tuple[Any, Any]) -> None:
    (model, export), inputs = exported, prompt(2, 6)
    expected = model.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert torch.equal(export.generate(input_ids=inputs["input_ids"], max_new_tokens=3), expected)
    with pytest.raises(TypeError, match="pixel_values"):
        export.generate(**inputs, pixel_values=torch.ones(1), max_new_tokens=3)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        export.generate(**inputs, max_new_tokens=0)


def test_without_a_mask_padding_is_refused_and_the_rest_is_right() -> None:
    model, inputs = llama(), prompt(2, 6)
    export = DynamoExporter().export_for_generation(model, {"input_ids": inputs["input_ids"]})
    other = prompt(2, 9)
    expected = model.generate(**other, max_new_tokens=4, do_sample=False)
    assert torch.equal(export.generate(**other, max_new_tokens=4), expected)
    with pytest.raises(ValueError, match="take no padding; export with a mask"):
        export.generate(**prompt(2, 6, padding=1), max_new_tokens=3)


def test_the_steps_are_what_generate_really_calls() -> None:
    steps = capture_steps(llama(), prompt(2, 6, padding=2)).steps
    shapes = {name: {n: tuple(t.shape) for n, t in named_leaves(step.inputs).items()} for name, step in steps.items()}
    assert shapes["prefill"] == {"input_ids": (2, 6), "position_ids": (2, 6), "attention_mask": (2, 6)}
    decode = shapes["decode"]
    assert (decode["input_ids"], decode["attention_mask"], decode["position_ids"]) == ((2, 1), (2, 7), (2, 1))
    caches = [shape for name, shape in decode.items() if ".layers." in name]
    assert caches == [(2, 2, 6, 8)] * 4


def t5(**settings: Any) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(1)
    config = T5Config(d_model=16, d_kv=8, num_layers=2, num_heads=2, d_ff=32, vocab_size=99, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).eval()
    for parameter in model.parameters():  # or every step picks the same token
        parameter.data.mul_(3)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    return model


@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter()], ids=lambda e: e.backend)
def test_an_encoder_decoder_runs_its_encoder_once(exporter: HfExporter) -> None:
    model = t5(forced_bos_token_id=17, forced_eos_token_id=1)
    export = exporter.export_for_generation(model, prompt(2, 6, padding=2))
    assert list(export) == ["encoder", "prefill", "decode"]
    seen: set[int] = set()
    for inputs in (prompt(2, 6), prompt(3, 9, padding=4)):
        expected = model.generate(**inputs, max_new_tokens=7, do_sample=False)
        assert torch.equal(export.generate(**inputs, max_new_tokens=7), expected)
        seen.update(expected.flatten().tolist())
    assert {17, 1} <= seen
    assert len(seen) > 5, "the check has no power: the model repeats itself"


def test_settings_that_the_loop_does_not_apply_are_refused() -> None:
    with pytest.raises(ValueError, match="sets repetition_penalty, no_repeat_ngram_size, which the exported loop"):
        DynamoExporter().export_for_generation(t5(repetition_penalty=1.5, no_repeat_ngram_size=2), prompt(2, 6))


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    ).eval()


def test_models_that_decode_otherwise_are_refused() -> None:
    with pytest.raises(ValueError, match=r"BertModel cannot generate; export its forward with export\(\)"):
        DynamoExporter().export_for_generation(_bert(), prompt(2, 6))
    model = llama()
    model.generation_config.use_cache = False
    with pytest.raises(ValueError, match="decodes without a cache that is known; set use_cache=True"):
        DynamoExporter().export_for_generation(model, prompt(2, 6))


def test_what_is_no_generating_model_is_refused() -> None:
    with pytest.raises(ValueError, match="Mean cannot generate"):
        DynamoExporter().export_for_generation(Mean().eval(), mean_inputs())
    with pytest.raises(ValueError, match="in training mode"):
        DynamoExporter().export_for_generation(llama().train(), prompt(2, 6))


def test_suppressed_tokens_are_not_chosen_and_numbers_that_are_no_tokens_do_nothing() -> None:
    model, inputs = llama(num_hidden_layers=1), prompt(2, 6, padding=2)
    favourite = int(model.generate(**inputs, max_new_tokens=1, do_sample=False)[0, -1])
    model.generation_config.suppress_tokens = [favourite, -1, 10**6]
    model.generation_config.begin_suppress_tokens = [favourite + 1]
    export = DynamoExporter().export_for_generation(model, inputs)
    expected = model.generate(**inputs, max_new_tokens=5, do_sample=False)
    assert favourite not in expected[:, 6:]
    assert torch.equal(export.generate(**inputs, max_new_tokens=5), expected)
    # without a mask it is inferred from the padding token, as eager does
    bare = {"input_ids": inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, 0)}
    expected = model.generate(**bare, max_new_tokens=5, do_sample=False)
    assert torch.equal(export.generate(**bare, max_new_tokens=5), expected)
    with pytest.raises(ValueError, match="pad prompts on the left"):
        export.generate(inputs["input_ids"], inputs["attention_mask"].flip(1), max_new_tokens=2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"return_timestamps": True}, "sets return_timestamps"),
        ({"is_multilingual": True, "lang_to_id": {"<|en|>": 5}}, "would detect the language"),
    ],
)
def test_what_whisper_does_beyond_the_best_token_is_refused(fields: dict[str, Any], message: str) -> None:
    model = llama(num_hidden_layers=1)
    for name, value in fields.items():
        setattr(model.generation_config, name, value)
    with pytest.raises(ValueError, match=message):
        capture_steps(model, prompt(2, 6))
