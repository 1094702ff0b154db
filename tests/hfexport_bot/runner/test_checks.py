"""An artifact against eager: what is wrong is caught, what eager does not define is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from exporters import DynamoExporter, OnnxExporter
from exporters.configs import DynamoConfig
from hfexport_bot.runner.checks import Checked, check
from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.runner.sources.probes import derive_probes
from hfexport_bot.runner.sources.weights import strengthen
from hfexport_bot.schema import MAX_MESSAGE_CHARS, MAX_NAME_CHARS, OutcomeKind, ProbeResult

pytestmark = pytest.mark.export
SEED = 1
NAN, INF = float("nan"), float("inf")


def exporting() -> bool:
    return torch.compiler.is_exporting()


class Toy(nn.Module):
    """Tokens mixed with the mean of the row's tokens that count. Subclasses go wrong once they are traced."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(32, 8)
        self.value = nn.Linear(8, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        x = self.embed(input_ids)
        counts = attention_mask.to(x.dtype)[..., None]
        mean = (x * counts).sum(1, keepdim=True) / counts.sum(1, keepdim=True)
        return self.answer(self.out(torch.tanh(x + self.value(mean))), attention_mask)

    def answer(self, logits: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return {"logits": logits}


def text(batch: int = 2, length: int = 8) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(batch * 10 + length)
    ids = torch.randint(1, 32, (batch, length), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def case_of(model: nn.Module, inputs: dict[str, Any] | None = None, probes: dict[str, Any] | None = None) -> ModelCase:
    inputs = inputs or text()
    if probes is None:
        probes = {**derive_probes(inputs, 0), **({"length_11": text(2, 11)} if "attention_mask" in inputs else {})}
    return ModelCase(model.eval(), inputs, probes)


def checked(case: ModelCase, *, dynamic: bool = True, exporter: Any = None, stages: list[str] | None = None) -> Checked:
    exporter = exporter or DynamoExporter()
    expected = run_eager(case.model, case.inputs, SEED)
    artifact = exporter.export_artifact(case.model, case.inputs, exporter.config_class(dynamic=dynamic))
    tell: Callable[[str], None] = (lambda stage: None) if stages is None else stages.append
    return check(artifact, case, expected, dynamic=dynamic, seed=SEED, on_stage=tell, clean=cut)


def cut(text: str) -> str:
    return text[:MAX_MESSAGE_CHARS]


def by_name(found: Checked) -> dict[str, ProbeResult]:
    return {probe.name: probe for probe in found.components[0].probes}


def statuses(found: Checked) -> dict[str, str]:
    return {probe.name: probe.status for probe in found.components[0].probes}


# -- What should pass ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exporter", [DynamoExporter(), OnnxExporter()], ids=lambda e: e.backend)
def test_a_sound_graph_passes_everywhere_and_is_measured(exporter: Any) -> None:
    stages: list[str] = []
    found = checked(case_of(Toy()), exporter=exporter, stages=stages)
    assert found.failure is None
    assert statuses(found) == dict.fromkeys(
        (
            "batch_1",
            "batch_3",
            "pad_right",
            "pad_left",
            "length_10",
            "length_6",
            "length_11",
            "changed_input_ids",
            "changed_attention_mask",
        ),
        "pass",
    )
    assert stages[:4] == ["load", "run", "parity", "run"]
    component = found.components[0]
    assert component.inputs == ("input_ids", "attention_mask")
    assert [output.name for output in component.outputs] == ["logits"]
    assert component.outputs[0].shape == (2, 8, 5)
    assert component.max_abs is not None
    assert component.max_abs < 1e-5
    assert component.nodes
    assert {(axis.input, axis.axis) for axis in component.axes if axis.dynamic} == {
        (name, axis) for name in component.inputs for axis in (0, 1)
    }
    assert (component.opset is not None) == (exporter.backend == "onnx")
    assert component.size_bytes


def test_a_static_graph_is_probed_at_its_own_shape_only() -> None:
    found = checked(case_of(Toy()), dynamic=False)
    assert found.failure is None
    assert set(statuses(found)) == {"pad_right", "pad_left", "changed_input_ids", "changed_attention_mask"}
    assert not any(axis.dynamic for axis in found.components[0].axes)


# -- Graphs that are right only where they were traced ---------------------------------------------------------


class IgnoresMask(Toy):
    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        if exporting():
            attention_mask = torch.ones_like(attention_mask)
        return super().forward(input_ids, attention_mask)


@pytest.mark.parametrize("dynamic", [True, False])
def test_an_ignored_mask_is_caught_by_padding(dynamic: bool) -> None:
    found = checked(case_of(IgnoresMask()), dynamic=dynamic)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage) == (OutcomeKind.PARITY, "parity")
    assert "pad_right" in found.failure.message
    assert found.components[0].max_abs == pytest.approx(0, abs=1e-5)  # right at the traced inputs
    assert statuses(found)["pad_left"] == "parity"


def test_an_ignored_mask_is_caught_where_the_case_has_no_padding_of_its_own() -> None:
    found = checked(case_of(IgnoresMask(), probes={}))
    assert statuses(found) == {"changed_input_ids": "pass", "changed_attention_mask": "parity"}
    assert found.failure is not None
    assert found.failure.kind is OutcomeKind.PARITY


def test_an_input_that_is_baked_in_is_caught() -> None:
    class Baked(Toy):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, types: torch.Tensor) -> Any:  # type: ignore[override]
            if exporting():
                types = torch.zeros_like(types)
            return super().forward(input_ids + types, attention_mask)

    inputs = {**text(), "types": torch.zeros(2, 8, dtype=torch.int64)}
    found = checked(case_of(Baked(), inputs, derive_probes(inputs, 0)))
    assert {name for name, status in statuses(found).items() if status != "pass"} == {"changed_types"}
    assert found.failure is not None


class WrongElsewhere(Toy):
    """Divides by the traced size of an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def answer(self, logits: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        traced = text()["input_ids"].shape[self.axis]
        return {"logits": logits / (traced if exporting() else attention_mask.shape[self.axis])}


@pytest.mark.parametrize(("axis", "wrong"), [(0, {"batch_1", "batch_3"}), (1, {"length_6", "length_10", "length_11"})])
def test_a_graph_wrong_at_another_shape_is_a_parity_break(axis: int, wrong: set[str]) -> None:
    found = checked(case_of(WrongElsewhere(axis)))
    assert {name for name, status in statuses(found).items() if status == "parity"} == wrong
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage) == (OutcomeKind.PARITY, "parity")
    assert "elements differ, by up to" in by_name(found)[min(wrong)].message
    assert max(probe.max_abs or 0 for probe in found.components[0].probes) > 1e-2


class RefusesElsewhere(Toy):
    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        if exporting():
            torch._check(input_ids.shape[0] == 2)
        return super().forward(input_ids, attention_mask)


def test_a_graph_that_refuses_a_shape_eager_takes_is_an_error_at_run() -> None:
    found = checked(case_of(RefusesElsewhere()))
    assert statuses(found)["batch_1"] == statuses(found)["batch_3"] == "error"
    assert statuses(found)["length_11"] == "pass"
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage) == (OutcomeKind.ERROR, "run")
    assert found.failure.message.startswith("probe batch_1: eager takes it, but: ")
    assert isinstance(found.failure.error, Exception), "which may tell the line it comes from"
    assert found.failure.probe == "batch_1"


def test_an_error_at_a_probe_outweighs_a_difference_at_another() -> None:
    class Both(RefusesElsewhere, WrongElsewhere):
        pass

    found = checked(case_of(Both(1)))
    assert set(statuses(found).values()) == {"pass", "error", "parity"}
    assert found.failure is not None
    assert found.failure.kind is OutcomeKind.ERROR


class RefusesEagerly(Toy):
    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        if input_ids.shape[0] != 2:
            raise ValueError("two rows, please")
        return super().forward(input_ids, attention_mask)


def test_what_eager_refuses_is_static_and_no_fault() -> None:
    found = checked(case_of(RefusesEagerly()))
    assert found.failure is None
    assert by_name(found)["batch_3"] == ProbeResult(
        name="batch_3", status="static", message="eager refuses it: ValueError: two rows, please"
    )
    assert [axis.upper for axis in found.components[0].axes if axis.axis == 0] == [2, 2]


def test_a_probe_with_other_inputs_is_left_out_and_told() -> None:
    class Optional(Toy):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, scale: float = 1.0) -> Any:  # type: ignore[override]
            return super().forward(input_ids, attention_mask)

    case = case_of(
        Optional(),
        {**text(), "scale": 2.0},
        {"ids_only": {"input_ids": text()["input_ids"]}, "scaled": {**text(), "scale": 3.0}},
    )
    found = checked(case)
    assert set(statuses(found)) == {"changed_input_ids", "changed_attention_mask"}
    assert found.failure is None
    assert [note.split(":")[0] for note in found.notes] == ["probe ids_only left out", "probe scaled left out"]


# -- Values at the traced shape --------------------------------------------------------------------------------


class Answers(Toy):
    """``eager`` and ``traced`` make what is answered from logits and mask."""

    def __init__(self, eager: Any, traced: Any) -> None:
        super().__init__()
        self.eager, self.traced = eager, traced

    def answer(self, logits: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return (self.traced if exporting() else self.eager)(logits, attention_mask)


def answers(eager: Any, traced: Any, **more: Any) -> Checked:
    return checked(case_of(Answers(eager, traced), **more))


@pytest.mark.parametrize(
    ("eager", "traced", "problem"),
    [
        (lambda x, m: x, lambda x, m: x + 3e-4, "elements differ"),
        (lambda x, m: (x, x), lambda x, m: (x, x + 1), "1: 80 of 80 elements differ, by up to 1"),
        (lambda x, m: {"a": x, "b": x}, lambda x, m: {"a": x}, "b: missing from the exported graph"),
        (lambda x, m: {"a": x}, lambda x, m: {"a": x, "c": x}, "c: not among eager's outputs"),
        (lambda x, m: x, lambda x, m: x.sum(-1), "shape (2, 8) where eager gives (2, 8, 5)"),
        (lambda x, m: x, lambda x, m: x.double(), "dtype float64 where eager gives float32"),
        (lambda x, m: m.sum(-1), lambda x, m: m.sum(-1) + 1, "output: 2 of 2 elements differ, by up to 1"),
        (lambda x, m: x > 0, lambda x, m: x < 0, "80 of 80 elements differ"),
        (
            lambda x, m: torch.view_as_complex(x[..., :2].contiguous()),
            lambda x, m: torch.complex(x[..., 0], x[..., 1] + 1),
            "differ",
        ),
        (lambda x, m: x, lambda x, m: x / (m - m)[..., None], "not finite where eager is"),
        (lambda x, m: x.fill_(NAN), lambda x, m: x, "80 of 80 elements differ"),
        (lambda x, m: x.fill_(INF), lambda x, m: x, "80 of 80 elements differ"),
        (lambda x, m: x.fill_(INF), lambda x, m: x.fill_(-INF), "80 of 80 elements differ"),
    ],
)
def test_a_difference_at_the_traced_shape(eager: Any, traced: Any, problem: str) -> None:
    found = answers(eager, traced)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage) == (OutcomeKind.PARITY, "parity")
    assert problem in found.failure.message


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_alike_passes(value: float) -> None:
    found = answers(lambda x, m: x.fill_(value), lambda x, m: x.fill_(value))
    assert found.failure is None
    assert found.components[0].max_abs == 0


def blank(fill: float) -> Any:
    """Puts ``fill`` where the mask is 0."""
    return lambda x, m: x.masked_fill((m == 0)[..., None], fill)


def test_padded_positions_may_differ_but_must_be_finite() -> None:
    found = answers(blank(0.0), blank(7.0))
    assert found.failure is None
    found = answers(blank(0.0), blank(NAN))
    assert found.failure is not None
    assert found.failure.message == "probe pad_right: output: not finite where eager is"
    assert answers(blank(NAN), blank(7.0)).failure is None  # eager has no number there to keep to


def test_nan_that_leaks_from_padding_into_what_counts_is_caught() -> None:
    def leaks(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return x + 0 * blank(NAN)(x, m).sum(1, keepdim=True)

    found = answers(lambda x, m: x, leaks)
    assert {name for name, status in statuses(found).items() if status == "parity"} == {
        "pad_right",
        "pad_left",
        "changed_attention_mask",
    }


# -- Integers and ties -----------------------------------------------------------------------------------------


class Ties(Toy):
    """The largest of two equal logits, another one of them once traced."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        logits = super().forward(input_ids, attention_mask)["logits"]
        pair = self.out.bias[:2] + 0 * logits[..., :2]
        return {"choice": pair.flip(-1).argmax(-1) ^ 1 if exporting() else pair.argmax(-1), "logits": logits}


def test_ties_are_noted_and_no_failure() -> None:
    model = Ties()
    with torch.no_grad():
        model.out.bias[1] = model.out.bias[0]
    found = checked(case_of(model))
    assert found.failure is None
    assert "choice: 16 positions left out, weights off by 1e-6 flip them too" in found.notes


def test_a_tie_hides_no_difference_at_other_positions() -> None:
    class Worse(Ties):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            found = super().forward(input_ids, attention_mask)
            best = found["logits"].argmax(-1)
            found["choice"] = torch.cat((found["choice"], 4 - best if exporting() else best), dim=-1)
            return found

    model = Worse()
    with torch.no_grad():
        model.out.bias[1] = model.out.bias[0]
    found = checked(case_of(model))
    assert found.failure is not None
    assert found.failure.kind is OutcomeKind.PARITY
    assert "of 16 elements differ" in found.failure.message  # of 32, 16 are ties


def test_complex_outputs_are_no_ties() -> None:
    found = answers(lambda x, m: torch.complex(x, x), lambda x, m: torch.complex(x, x + 1), inputs=text(), probes={})
    assert found.failure is not None
    assert not found.notes


# -- A row without a key, and attention implementations --------------------------------------------------------


def bert(**changes: Any) -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=32,
        max_position_embeddings=16,
    )
    model = ForgetfulBert(config, add_pooling_layer=False).eval()
    strengthen(model, torch.Generator().manual_seed(0))
    for name, value in changes.items():
        setattr(model, name, value)
    return model


class ForgetfulBert(BertModel):
    """Traces something else where ``twist`` says so."""

    twist: Any = None

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:  # type: ignore[override]
        hidden = super().forward(input_ids, attention_mask=attention_mask).last_hidden_state
        return {"hidden": self.twist(hidden, attention_mask) if self.twist is not None else hidden}


def keyless(rows: torch.Tensor) -> dict[str, Any]:
    """A 4-D mask with a row that attends to nothing, so that no 2-D mask says that its position does not count."""
    allowed = torch.ones(2, 1, 8, 8, dtype=torch.bool)
    allowed[0, 0, rows] = False
    return {"input_ids": text()["input_ids"], "attention_mask": allowed}


def test_a_row_without_any_key_is_left_out_since_eager_implementations_disagree() -> None:
    def other(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        nothing = ~mask.any(-1).squeeze(1)
        return torch.where(nothing[..., None], 3.0, hidden) if exporting() else hidden

    model = bert(twist=other)
    found = checked(case_of(model, keyless(torch.tensor([5])), {}), dynamic=False)
    assert found.failure is None
    assert any("own attention implementations disagree" in note for note in found.notes)
    assert model.config._attn_implementation == "sdpa"


def test_a_row_without_any_key_hides_no_difference_in_other_rows() -> None:
    model = bert(twist=lambda hidden, mask: hidden + 1 if exporting() else hidden)
    found = checked(case_of(model, keyless(torch.tensor([5])), {}), dynamic=False)
    assert found.failure is not None
    assert "of 240 elements differ" in found.failure.message  # 2 x 8 rows of 16 elements, but for one row


def test_implementations_that_differ_by_design_hide_nothing() -> None:
    """Such as a soft cap that only the eager implementation applies: every position differs."""

    def twist(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        capped = torch.tanh(hidden) if model.config._attn_implementation == "eager" else hidden
        return capped + 1 if exporting() else capped

    model = bert(twist=twist)
    found = checked(case_of(model, text(), {}), dynamic=False)
    assert found.failure is not None
    assert found.failure.message == "hidden: 256 of 256 elements differ, by up to 1"
    assert not found.notes


def test_nan_that_both_implementations_give_is_eagers_answer() -> None:
    def twist(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        nothing = ~mask.any(-1).squeeze(1)
        return torch.where(nothing[..., None], 0.0 if exporting() else NAN, hidden)

    found = checked(case_of(bert(twist=twist), keyless(torch.tensor([5])), {}), dynamic=False)
    assert found.failure is not None
    assert found.failure.message.startswith("hidden: 16 of 256 elements differ")
    assert not found.notes


def test_parts_keep_their_own_attention_implementation() -> None:
    class Pair(BertModel):
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config, add_pooling_layer=False)
            inner = BertConfig(**{**config.to_dict(), "attn_implementation": "eager"})
            self.second = BertModel(inner, add_pooling_layer=False)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:  # type: ignore[override]
            first = super().forward(input_ids, attention_mask=attention_mask).last_hidden_state
            second = self.second(input_ids, attention_mask=attention_mask).last_hidden_state
            return {"hidden": first + second + (1.0 if exporting() else 0.0)}

    model = Pair(bert().config).eval()
    before = (model.config._attn_implementation, model.second.config._attn_implementation)
    assert before == ("sdpa", "eager")
    assert checked(case_of(model, text(), {}), dynamic=False).failure is not None
    assert (model.config._attn_implementation, model.second.config._attn_implementation) == before


# -- Inputs that a graph writes to, and what runtimes refuse ---------------------------------------------------


def test_a_graph_that_writes_into_its_inputs_spoils_no_later_comparison() -> None:
    class Writes(Toy):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            input_ids.remainder_(7)
            return super().forward(input_ids, attention_mask)

    inputs = text()
    before = inputs["input_ids"].clone()
    found = checked(case_of(Writes(), inputs))
    assert found.failure is None
    assert set(statuses(found).values()) == {"pass"}
    assert torch.equal(inputs["input_ids"], before)


def test_a_kernel_that_the_runtime_lacks_is_unsupported_at_load() -> None:
    class Doubles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.erf(x.double())

    found = checked(case_of(Doubles(), {"x": torch.rand(2, 4)}, {}), exporter=OnnxExporter())
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage) == (OutcomeKind.UNSUPPORTED, "load")
    assert "Could not find an implementation for Erf" in found.failure.message
    assert found.components[0].probes == ()
    assert found.components[0].opset


def test_a_program_that_does_not_load_or_run_is_an_error_of_that_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(Toy())
    expected = run_eager(case.model, case.inputs, SEED)
    artifact = DynamoExporter().export_artifact(case.model, case.inputs, DynamoConfig())
    program = artifact.program
    arguments: dict[str, Any] = {"dynamic": True, "seed": SEED, "on_stage": lambda stage: None, "clean": str}

    def fails(*args: Any) -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(type(artifact.session), "run", fails)
    found = check(artifact, case, expected, **arguments)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage) == (OutcomeKind.ERROR, "run")
    assert found.components[0].probes == ()
    del artifact.session
    monkeypatch.setattr(type(program), "module", fails)
    found = check(artifact, case, expected, **arguments)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.stage) == (OutcomeKind.ERROR, "load")


def test_long_names_and_messages_are_cut_to_what_crosses() -> None:
    class Loud(Toy):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            if input_ids.shape[0] == 3:
                raise ValueError("x" * 50_000)
            return super().forward(input_ids, attention_mask)

        def answer(self, logits: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            off = 1.0 if exporting() else 0.0
            return {"y" * 200 + "".join(map(str, range(70))) + str(n): logits[0, 0, 0] + off for n in range(60)}

    case = case_of(Loud())
    case.probes["p" * 1_000] = text()
    found = checked(case)
    assert len(by_name(found)["batch_3"].message) == MAX_MESSAGE_CHARS
    assert by_name(found)["batch_1"].status == "parity"
    assert "p" * MAX_NAME_CHARS in by_name(found)
    assert max(len(output.name) for output in found.components[0].outputs) == MAX_NAME_CHARS
