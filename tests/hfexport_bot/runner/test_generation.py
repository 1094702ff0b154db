"""Generation against eager: tokens and the numbers behind them, on a stub whose every step the test writes out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from exporters import Artifact, UnsupportedByRuntime
from hfexport_bot.runner.checks import Checked
from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.generation import NEW_TOKENS, Decoding, blind_spots, check_generation, continuation_of
from hfexport_bot.runner.sources import ModelCase, find_model_case
from hfexport_bot.runner.sources.vocabulary import ordinary_tokens
from hfexport_bot.schema import OutcomeKind, Task

pytestmark = pytest.mark.export
SEED = 1
VOCABULARY = 16


def prompts(batch: int = 2, length: int = 5) -> dict[str, torch.Tensor]:
    ids = torch.arange(1, batch * length + 1).reshape(batch, length) % VOCABULARY
    mask = torch.ones_like(ids)
    mask[0, 0] = 0
    return {"input_ids": ids, "attention_mask": mask}


def step_logits(ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    """Made-up logits of every step: each row's best token moves on by one a step, from the sum of what counts."""
    first = (ids * mask).sum(1)
    return [nn.functional.one_hot((first + step) % VOCABULARY, VOCABULARY).float() for step in range(NEW_TOKENS)]


class Counting(nn.Module):
    """A model that generates as `step_logits` says, and stops after ``steps``."""

    def __init__(self, steps: int = NEW_TOKENS, largest_batch: int = 9) -> None:
        super().__init__()
        self.steps = steps
        self.largest_batch = largest_batch
        self.config = SimpleNamespace(vocab_size=VOCABULARY)
        self.generation_config = SimpleNamespace(pad_token_id=0)

    def logits(self, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        return step_logits(ids, mask)[: self.steps]

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **settings: Any) -> Any:
        assert settings["do_sample"] is False
        assert settings["max_new_tokens"] == NEW_TOKENS
        if len(input_ids) > self.largest_batch:
            raise ValueError("too many")
        chosen = settings.get("logits_processor")  # and then there is no end on the way
        logits = step_logits(input_ids, attention_mask) if chosen else self.logits(input_ids, attention_mask)
        scores = [chosen[0](input_ids, each) for each in logits] if chosen else logits
        tokens = torch.stack([each.argmax(-1) for each in scores], dim=1)
        return SimpleNamespace(sequences=torch.cat([input_ids, tokens], dim=1), logits=tuple(logits))


class Export:
    """Stands in for a `GenerationExport`: it generates like the model, but for what a test changes."""

    def __init__(
        self,
        model: Counting,
        *,
        shift: dict[int, float] | None = None,
        tokens: Callable[[torch.Tensor], torch.Tensor] = lambda tokens: tokens,
        broken: str = "",
    ) -> None:
        self.model = model
        self.media = ()
        self.shift = shift or {}
        self.tokens = tokens
        self.artifacts: dict[str, Any] = {name: stub_artifact(name == broken) for name in ("prefill", "decode")}

    def _call(self, input_ids: torch.Tensor, steps: list[torch.Tensor]) -> torch.Tensor:
        for name in ("prefill", *["decode"] * (len(steps) - 1)):
            self.artifacts[name](input_ids=input_ids)
        return torch.stack([logits + self.shift.get(step, 0.0) for step, logits in enumerate(steps)], dim=1)

    def logits(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *, continuation: torch.Tensor
    ) -> torch.Tensor:
        counts = input_ids[attention_mask == 1].tolist()
        assert continuation.flatten().tolist()[: len(counts)] == counts[: continuation.numel()]
        return self._call(input_ids, step_logits(input_ids, attention_mask))

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *, max_new_tokens: int) -> torch.Tensor:
        assert max_new_tokens == NEW_TOKENS
        tokens = self._call(input_ids, self.model.logits(input_ids, attention_mask)).argmax(-1)
        return torch.cat([input_ids, self.tokens(tokens)], dim=1)


@functools.cache
def _program() -> Any:
    """Of two nodes, what goes in and what comes out."""
    return torch.export.export(torch.nn.Identity(), (torch.ones(2, 3),))


def stub_artifact(broken: bool) -> Artifact:
    def run(tensors: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        if broken:
            raise RuntimeError("no kernel")
        return {}

    artifact = Artifact("dynamo", _program(), ("input_ids",), ("logits",))
    artifact.__dict__["session"] = SimpleNamespace(run=run)
    return artifact


def checked(
    model: Counting,
    export: Export,
    probes: dict[str, Any] | None = None,
    *,
    dynamic: bool = True,
    told: list[tuple[str, str]] | None = None,
) -> Checked:
    case = ModelCase(model, prompts(), probes or {})
    tell = (lambda stage, component: None) if told is None else lambda *stage: told.append(stage)
    whole: Any = export
    return check_generation(whole, case, dynamic=dynamic, seed=SEED, on_stage=tell, clean=str)


def component(found: Checked, name: str) -> Any:
    return next(each for each in found.components if each.name == name)


def test_equal_tokens_and_logits_pass_in_every_component() -> None:
    told: list[tuple[str, str]] = []
    model = Counting()
    found = checked(model, Export(model), {"batch_3": prompts(3), "length_9": prompts(2, 9)}, told=told)
    assert found.failure is None
    assert found.notes == ()
    assert [each.name for each in found.components] == ["prefill", "decode"]
    assert [output.name for output in component(found, "prefill").outputs] == ["logits"]
    assert [(output.name, output.shape) for output in component(found, "decode").outputs] == [
        ("logits", (2, VOCABULARY)),
        ("tokens", (2, NEW_TOKENS)),
    ]
    for each in found.components:
        assert (each.max_abs, each.nodes) == (0.0, 2)
        assert [(probe.name, probe.status) for probe in each.probes] == [("batch_3", "pass"), ("length_9", "pass")]
    assert told[:2] == [("load", "prefill"), ("load", "decode")]
    assert list(dict.fromkeys(told))[2:] == [
        ("eager", ""), ("run", "prefill"), ("run", "decode"), ("parity", "prefill"), ("parity", "decode")
    ]  # fmt: skip


@pytest.mark.parametrize(("step", "name"), [(0, "prefill"), (1, "decode"), (7, "decode")])
def test_numbers_decide_where_the_tokens_are_equal(step: int, name: str) -> None:
    model = Counting()
    found = checked(model, Export(model, shift={step: 0.25}))
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage, found.failure.component) == (OutcomeKind.PARITY, "parity", name)
    assert found.failure.message.startswith("logits: 32 of 32 elements differ, by up to 0.25")
    assert component(found, name).max_abs == pytest.approx(0.25)
    assert [output.mismatched for output in component(found, "decode").outputs if output.name == "tokens"] == [0.0]


def test_decode_is_checked_where_eager_ends_at_once() -> None:
    model = Counting(steps=1)
    assert checked(model, Export(model)).failure is None
    found = checked(model, Export(model, shift={5: 0.25}))
    assert found.failure is not None
    assert (found.failure.kind, found.failure.component) == (OutcomeKind.PARITY, "decode")


def test_wrong_tokens_from_right_numbers_are_no_pass() -> None:
    def other(tokens: torch.Tensor) -> torch.Tensor:
        return torch.cat([tokens[:, :3], (tokens[:, 3:] + 1) % VOCABULARY], dim=1)

    model = Counting()
    found = checked(model, Export(model, tokens=other))
    assert found.failure is not None
    assert (found.failure.kind, found.failure.component) == (OutcomeKind.PARITY, "decode")
    assert found.failure.message.startswith("tokens: row 0 picks ")
    assert "at step 3, where eager picks" in found.failure.message


@pytest.mark.parametrize("largest", [5, 11])
def test_a_loop_that_stops_elsewhere_than_eager_is_no_pass(largest: int) -> None:
    model = Counting()
    longer = torch.ones(2, NEW_TOKENS + 3, dtype=torch.long)
    found = checked(model, Export(model, tokens=lambda t: torch.cat([t, longer], dim=1)[:, :largest]))
    assert found.failure is not None
    assert found.failure.message.startswith("tokens: ")


class Tied(Counting):
    """Two tokens as good as each other from step 2 on; in what follows the other one a token further."""

    gap = 1e-5

    def logits(self, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        steps = super().logits(ids, mask)
        best = steps[2].argmax(-1)
        steps[2][torch.arange(len(ids)), (best + 5) % VOCABULARY] = 1 - self.gap
        return steps


@pytest.mark.parametrize(("gap", "passes"), [(1e-5, True), (1e-2, False)])
def test_tokens_that_part_at_a_tie_are_noted_and_forgiven(
    gap: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens.clone()
        tokens[0, 2] = (tokens[0, 2] + 5) % VOCABULARY
        tokens[0, 3:] = 1
        return tokens

    monkeypatch.setattr(Tied, "gap", gap)
    model = Tied()
    found = checked(model, Export(model, tokens=part))
    assert (found.failure is None) is passes
    assert found.notes == (("tokens of 1 of 2 rows part from eager's at a tie",) if passes else ())


def test_a_component_that_fails_is_named_at_load_and_at_run() -> None:
    model = Counting()
    for name in ("prefill", "decode"):
        found = checked(model, Export(model, broken=name), {"batch_3": prompts(3)})
        assert found.failure is not None
        assert (found.failure.kind, found.failure.stage, found.failure.component) == (OutcomeKind.ERROR, "run", name)
        assert found.components[0].probes == ()  # nothing more is tried on it

    class Refusing(Artifact):
        @property
        def session(self) -> Any:  # type: ignore[override]
            raise UnsupportedByRuntime("needs too much memory")

    export = Export(model)
    export.artifacts["decode"] = Refusing("dynamo", stub_artifact(False).program, (), ())
    found = checked(model, export)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage) == (OutcomeKind.UNSUPPORTED, "load")
    assert found.failure.component == "decode"


def test_a_probe_that_eager_refuses_is_static_and_one_that_only_the_export_refuses_is_an_error() -> None:
    model = Counting(largest_batch=2)
    found = checked(model, Export(model), {"batch_3": prompts(3)})
    assert found.failure is None
    assert [probe.status for each in found.components for probe in each.probes] == ["static", "static"]

    class SmallBatches(Export):
        def generate(self, input_ids: torch.Tensor, *arguments: Any, **more: Any) -> torch.Tensor:
            if len(input_ids) > 2:
                self.artifacts["decode"](pixels=input_ids)  # takes no such input
            return super().generate(input_ids, *arguments, **more)

    model = Counting()
    found = checked(model, SmallBatches(model), {"batch_1": prompts(1), "batch_3": prompts(3)})
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage, found.failure.component) == (OutcomeKind.ERROR, "run", "decode")
    assert "probe batch_3: eager takes it, but: ValueError: inputs do not fit the graph" in found.failure.message
    assert [probe.status for probe in component(found, "decode").probes] == ["pass", "error"]


def test_static_graphs_are_probed_at_the_traced_shape_only() -> None:
    model = Counting()
    probes = {"batch_3": prompts(3), "other": {**prompts(), "attention_mask": torch.ones(2, 5, dtype=torch.long)}}
    found = checked(model, Export(model), probes, dynamic=False)
    assert [probe.name for probe in component(found, "decode").probes] == ["other"]


# -- What a check of tokens would not see ----------------------------------------------------------------------


def spots(model: Counting) -> list[str]:
    decoding = Decoding(model)
    return blind_spots(model, prompts(), run_eager(decoding, prompts(), SEED), SEED)


def test_eagers_generation_has_the_new_tokens_and_logits_of_every_step() -> None:
    found = run_eager(Decoding(Counting()), prompts(), SEED)
    assert list(found) == [f"{kind}.{step}" for kind in ("tokens", "logits") for step in range(NEW_TOKENS)]
    assert found["tokens.0"].tolist() == [14, 8]  # 2+3+4+5 and 6+7+8+9+10 = 40, of 16
    assert found["tokens.1"].tolist() == [15, 9]


def test_eager_decodes_along_a_continuation_whatever_it_would_pick() -> None:
    from transformers import LlamaForCausalLM

    case = find_model_case(LlamaForCausalLM, task=Task.GENERATE)
    model: Any = case.model
    assert (model.config.use_cache, model.generation_config.use_cache) == (True, True)
    continuation = continuation_of(case.inputs, ordinary_tokens(model))
    assert case.inputs["attention_mask"].tolist() == [[0] * 2 + [1] * 5, [1] * 7]
    assert continuation.flatten()[:12].tolist() == case.inputs["input_ids"].flatten()[2:].tolist()
    found = run_eager(Decoding(model, continuation), case.inputs, SEED)
    assert [found[f"tokens.{step}"].tolist() for step in range(NEW_TOKENS)] == continuation.T.tolist()
    with torch.no_grad():
        whole = {**case.inputs, "input_ids": torch.cat([case.inputs["input_ids"], continuation], dim=1)}
        whole["attention_mask"] = (whole["input_ids"] != model.generation_config.pad_token_id).long()
        positions = (whole["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        expected = model(**whole, position_ids=positions).logits[:, 6:-1]
    for step in range(NEW_TOKENS):
        torch.testing.assert_close(found[f"logits.{step}"], expected[:, step], rtol=1e-4, atol=1e-4)


def test_tokens_that_depend_on_prompt_and_mask_leave_no_blind_spot() -> None:
    assert spots(Counting()) == []


def test_tokens_that_depend_on_nothing_are_noted_and_so_is_an_early_end() -> None:
    class Repeating(Counting):
        def logits(self, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
            return [torch.eye(VOCABULARY)[[3] * len(ids)]] * 2

    assert spots(Repeating()) == [
        "changing input_ids leaves the generated tokens as they are: only the logits tell of it",
        "changing attention_mask leaves the generated tokens as they are: only the logits tell of it",
        f"every row ends within 2 of {NEW_TOKENS} tokens",
    ]


def test_a_prompt_of_nothing_but_placeholders_is_followed_by_the_vocabulary() -> None:
    """As SmolVLM's own tester makes it: a picture, and no text beside it."""
    ids, ordinary = torch.full((2, 8), 57), torch.tensor([5, 6, 7])
    continuation = continuation_of({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ordinary)
    assert continuation.tolist() == [[5, 6, 7, 5, 6, 7, 5, 6], [7, 5, 6, 7, 5, 6, 7, 5]]
    ids[0, 3] = 6
    continuation = continuation_of({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ordinary)
    assert continuation.unique().tolist() == [6]
