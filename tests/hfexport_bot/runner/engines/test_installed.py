"""Engine repo with the installed ``transformers.exporters``."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from exporters import Artifact
from hfexport_bot.changes.exporters import acting_ids
from hfexport_bot.changes.place import installed_root
from hfexport_bot.changes.tree import FolderTree
from hfexport_bot.runner.checks import check
from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.engines import RepoParts, export
from hfexport_bot.runner.engines.artifact import RepoArtifact
from hfexport_bot.runner.engines.hits import (
    IR_FIXES,
    NODE_FIXES,
    PATCHES,
    PREPARERS,
    PROGRAM_FIXES,
    TRANSLATIONS,
    counted,
    identity,
    lists_in,
)
from hfexport_bot.runner.engines.package import ExportersPackage
from hfexport_bot.runner.engines.repo import export_generation_repo, export_repo
from hfexport_bot.runner.parts import check_parts
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import Backend, Engine, Layout
from tests.exporters.models import bert_inputs, tiny_bert

pytestmark = pytest.mark.export


def test_onnx_is_bound_by_name_and_judged_at_other_shapes() -> None:
    case = ModelCase(tiny_bert(), bert_inputs(), {"padded": bert_inputs(3, 11, padded=True)})
    stages: list[str] = []
    artifact = export_repo(
        case, Backend.ONNX, dynamic=True, disabled=(), on_stage=lambda stage, component: stages.append(stage)
    )
    assert isinstance(artifact, RepoArtifact)
    assert artifact.input_paths == ("input_ids", "attention_mask")
    assert artifact.output_paths == ("logits",)
    assert {"repo:exporter_onnx._patch_where", "repo:exporter_onnx._patch_prepare_for_export"} <= set(
        artifact.workarounds
    )
    order = list(dict.fromkeys(stages))
    assert order == ["trace", "node_fixes", "decompose", "translate", "optimize", "ir_fixes"]
    expected = run_eager(case.model, case.inputs, 0)
    checked = check(
        artifact, case, expected, dynamic=True, seed=0, on_stage=lambda stage: None, clean=lambda message: message
    )
    assert checked.failure is None
    assert {probe.name: probe.status for probe in checked.components[0].probes}["padded"] == "pass"


def test_every_id_that_may_be_hit_is_known_without_an_import() -> None:
    package = ExportersPackage.find()
    for backend in Backend:
        package.exporter(backend)  # which imports its module
    entries: list[Any] = [
        entry[-1] if isinstance(entry, tuple) else entry
        for name in (PATCHES, NODE_FIXES, PROGRAM_FIXES, IR_FIXES)
        for registry in package.registries(name)
        for entries in lists_in(registry)
        for entry in entries
    ]
    entries += [
        each for name in (PREPARERS, TRANSLATIONS) for table in package.registries(name) for each in table.values()
    ]
    root = installed_root()
    assert root is not None
    known = acting_ids(FolderTree(root), Layout.INSTALLED)
    assert len(entries) > 50
    assert {identity(package, each) for each in entries} <= set(known)


def test_a_translation_that_is_disabled_is_taken_out_and_put_back() -> None:
    package = ExportersPackage.find()
    package.exporter(Backend.ONNX)
    (table,) = package.registries(TRANSLATIONS)
    before = dict(table)
    name = identity(package, next(iter(table.values())))
    with counted(package, Counter(), {name}):
        assert table
        assert name not in {identity(package, each) for each in table.values()}
    assert table == before


def test_each_engine_is_given_what_is_disabled_of_its_own() -> None:
    model = torch.nn.Linear(2, 2).eval()
    case = ModelCase(model, {"input": torch.rand(2, 2)})
    disabled = ("repo:exporter_dynamo._patch_sdpa",)
    artifact = export(
        case,
        Backend.DYNAMO,
        engine=Engine.OWN,
        dynamic=False,
        disabled=disabled,
        on_stage=lambda stage, component: None,
    )
    assert isinstance(artifact, Artifact)
    assert artifact.workarounds == {}


def generation(case: ModelCase, told: list[tuple[str, str]] | None = None, *, dynamic: bool = True) -> Any:
    told = [] if told is None else told
    return export_generation_repo(
        case,
        Backend.DYNAMO,
        dynamic=dynamic,
        new_tokens=4,
        disabled=(),
        on_stage=lambda stage, component: told.append((stage, component)),
    )


def test_what_a_sliding_cache_holds_beside_keys_and_values_is_given() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = MistralConfig(**sizes, num_key_value_heads=2, vocab_size=40, sliding_window=16, pad_token_id=0)
    model: Any = MistralForCausalLM(config).eval()
    prompts = {"input_ids": torch.randint(3, 40, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    export = generation(ModelCase(model, prompts))
    for artifact in export.artifacts.values():
        (window,) = artifact.made
        assert window.endswith(".layers.0._sliding_window_tensor")
        assert window in {*artifact.input_paths} & {*artifact.output_paths}
    ids = torch.randint(3, 40, (3, 7))
    expected = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False)
    found = export.generate(ids, torch.ones_like(ids), max_new_tokens=4)
    assert torch.equal(found[:, : expected.shape[1]], expected)


def test_prefill_and_decode_are_driven_by_our_loop() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = LlamaConfig(**sizes, vocab_size=40, bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.5)
    model: Any = LlamaForCausalLM(config).eval()
    prompts = {"input_ids": torch.randint(3, 40, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    prompts["attention_mask"][0, 0] = 0
    told: list[tuple[str, str]] = []
    export = generation(ModelCase(model, prompts), told)
    assert list(export) == ["prefill", "decode"]
    assert [each for each in dict.fromkeys(told) if each[1]] == [
        ("trace", "prefill"),
        ("state_cleanup", "prefill"),
        ("trace", "decode"),
        ("state_cleanup", "decode"),
    ]
    for length in (5, 7):
        ids = torch.randint(3, 40, (3, length))
        mask = torch.ones_like(ids)
        mask[1, :2] = 0
        expected = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=4, do_sample=False)
        assert torch.equal(export.generate(ids, mask, max_new_tokens=4)[:, : expected.shape[1]], expected)


def test_steps_that_our_loop_cannot_run_are_judged_one_by_one() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=40, initializer_range=0.5)).eval()
    prompts = {"input_ids": torch.randint(3, 40, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    others = {**prompts, "input_ids": torch.randint(3, 40, (2, 5))}
    parts = generation(ModelCase(model, prompts, {"others": others}), dynamic=False)
    assert isinstance(parts, RepoParts)
    assert parts.notes[0].startswith("each part was judged on its own: decode takes an attention_mask of 4 axes")
    checked = check_parts(parts, dynamic=False, seed=0, on_stage=lambda stage, component: None, clean=str)
    assert checked.failure is None
    probes = {component.name: [probe.name for probe in component.probes] for component in checked.components}
    assert list(probes) == ["prefill", "decode"]
    assert {"others", "changed_input_ids"} <= set(probes["prefill"]) & set(probes["decode"])


def test_an_encoder_that_is_left_out_is_stood_in_for() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    model = T5ForConditionalGeneration(T5Config(**sizes, vocab_size=40, decoder_start_token_id=0)).eval()
    prompts = {"input_ids": torch.randint(3, 40, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    prompts["attention_mask"][0, -1] = 0
    export = generation(ModelCase(model, prompts))
    assert list(export.artifacts) == ["encoder", "prefill", "decode"]
    assert export.notes == (
        "transformers.exporters leaves out the encoder; what decoding starts from is given by ours",
    )
    expected = model.generate(**prompts, max_new_tokens=2, do_sample=False)
    assert torch.equal(export.generate(**prompts, max_new_tokens=2), expected)
