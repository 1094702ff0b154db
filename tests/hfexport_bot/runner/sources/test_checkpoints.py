"""A checkpoint on disk becomes a case, offline, with the weights that it holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel, LlamaConfig, LlamaForCausalLM

from hfexport_bot.runner.sources import checkpoints, find_model_case
from hfexport_bot.runner.sources.cases import Unavailable, Wanted
from hfexport_bot.runner.sources.checkpoints import case_from_checkpoint
from hfexport_bot.schema import Source, Task, UnavailableCause, Variant

BERT = BertConfig(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=99, pad_token_id=0
)
LLAMA = LlamaConfig(
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
    vocab_size=99,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BertModel as it lies in the cache, in half precision."""
    folder = tmp_path_factory.mktemp("cache") / "tiny--random--bert" / ("ab" * 20)
    BertModel(BERT).half().save_pretrained(folder)
    return folder


def test_the_weights_are_the_checkpoints_in_float32(bert: Path) -> None:
    case = case_from_checkpoint(Wanted(BertModel, checkpoint=bert))
    assert case is not None
    assert (case.source, case.origin) == (Source.CHECKPOINT, "tiny/random--bert@abababababab")
    saved = BertModel.from_pretrained(bert, dtype=torch.float16).state_dict()
    for name, tensor in case.model.state_dict().items():
        torch.testing.assert_close(tensor, saved[name].to(tensor.dtype), rtol=0, atol=0)
        assert tensor.dtype in (torch.float32, torch.int64)
    assert not case.model.training
    assert case.model(**case.inputs).last_hidden_state.shape == (2, 8, 32)
    assert any("pad" in name for name in case.probes)


def test_a_head_without_weights_is_the_same_for_a_seed(bert: Path) -> None:
    state = torch.get_rng_state()
    cases = [case_from_checkpoint(Wanted(BertForMaskedLM, seed=seed, checkpoint=bert)) for seed in (0, 0, 1)]
    heads = [case.model.cls.predictions.transform.dense.weight for case in cases if case is not None]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_prompts_are_made_for_generate(tmp_path: Path) -> None:
    folder = tmp_path / "tiny--llama" / ("cd" * 20)
    LlamaForCausalLM(LLAMA).save_pretrained(folder)
    case = case_from_checkpoint(Wanted(LlamaForCausalLM, task=Task.GENERATE, checkpoint=folder))
    assert case is not None
    assert case.model.config.use_cache
    assert (case.inputs["attention_mask"] == 0).any()


def test_it_is_asked_last_and_passes_on_where_none_is_named(bert: Path) -> None:
    assert case_from_checkpoint(Wanted(BertModel)) is None
    assert case_from_checkpoint(Wanted(BertModel, checkpoint=bert, variant=Variant("eager_attention"))) is None
    assert find_model_case(BertModel, checkpoint=bert).source == Source.SYNTHESISED
    assert find_model_case(BertModel, checkpoint=bert, sources=(Source.CHECKPOINT,)).source == Source.CHECKPOINT


def _unavailable(wanted: Wanted) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        case_from_checkpoint(wanted)
    return caught.value


def test_one_that_was_not_fetched_says_why() -> None:
    error = _unavailable(Wanted(BertModel, no_checkpoint="the hub answered 500 for a/b"))
    assert (error.cause, error.message) == (UnavailableCause.HUB_ACCESS, "the hub answered 500 for a/b")


def test_another_models_checkpoint_is_refused(bert: Path) -> None:
    error = _unavailable(Wanted(LlamaForCausalLM, checkpoint=bert))
    assert error.cause is UnavailableCause.INVALID_CONFIG
    assert error.message == "tiny/random--bert@abababababab is a bert, and LlamaForCausalLM is a llama"


def test_one_that_is_too_big_is_refused_before_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tiny--bert" / ("ab" * 20)
    BertModel(BERT).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 1 << 16}))
    monkeypatch.setattr(BertModel, "from_pretrained", lambda *_, **__: pytest.fail("it was built"))
    error = _unavailable(Wanted(BertModel, checkpoint=folder))
    assert error.cause is UnavailableCause.TOO_BIG
    assert error.message.endswith("GB in float32; the limit is 5.4 GB")


def test_the_files_count_too(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "on_meta", lambda *_: None)
    monkeypatch.setattr(checkpoints, "MAX_BYTES", 4 * 10_000)
    assert _unavailable(Wanted(BertModel, checkpoint=bert)).cause is UnavailableCause.TOO_BIG


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", "the configuration of tiny/bert@abababababab is wrong: "),
        ("config.json", "[]", "the configuration of tiny/bert@abababababab is wrong: "),
        ("model.safetensors", "no weights", "the weights of tiny/bert@abababababab cannot be read: "),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = tmp_path / "tiny--bert" / ("ab" * 20)
    BertModel(BERT).save_pretrained(folder)
    (folder / file).write_text(content)
    error = _unavailable(Wanted(BertModel, checkpoint=folder))
    assert error.cause is UnavailableCause.INVALID_CONFIG
    assert error.message.startswith(message)


def test_a_class_that_loads_no_checkpoints_is_told(bert: Path) -> None:
    error = _unavailable(Wanted(torch.nn.Linear, checkpoint=bert))
    assert error.message == "Linear is no class of transformers that loads checkpoints"
