"""Every head of the model types the synthesiser answers for: it builds, eager runs, and every output reacts."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import inspect
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig, PreTrainedModel, Qwen3Model
from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

from hfexport_bot.runner.sources import ModelCase, Unavailable, find_model_case
from hfexport_bot.runner.sources.synthesised import MAX_PARAMETERS, synthesised_case
from hfexport_bot.schema import UnavailableCause

MODEL_TYPES = ("bert", "distilbert", "gpt2", "llama", "qwen3", "t5", "vit", "clip", "whisper", "mamba")
#: A change of an input has to move outputs by this many tolerances (rtol=1e-4, atol=1e-4).
POWER = 100


def heads() -> Iterator[type]:
    for model_type in MODEL_TYPES:
        module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and issubclass(found, PreTrainedModel) and "PreTrained" not in name:
                yield found


HEADS = list(heads())


def each_head(test: Callable[..., None]) -> Callable[..., None]:
    """Run ``test`` for every head; a minute in all, so with the slower tests."""
    return pytest.mark.export(pytest.mark.parametrize("model_class", HEADS, ids=lambda head: head.__name__)(test))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Models this small only lose time by sharing their work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tensors(output: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return {prefix: output}
    if hasattr(output, "items"):
        pairs = output.items()
    else:
        pairs = enumerate(output) if isinstance(output, (tuple, list)) else ()
    return {name: leaf for key, value in pairs for name, leaf in tensors(value, f"{prefix}.{key}").items()}


@torch.no_grad()
def run(case: ModelCase, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    return tensors(case.model(**inputs))


def changed(name: str, value: torch.Tensor) -> torch.Tensor:
    """Another legal value of the input ``name``."""
    if name.endswith("attention_mask"):
        value = value.clone()
        value[..., :2] = 0  # at the left: a causal model's later positions must feel it
        return value
    if value.dtype == torch.bool:
        return ~value
    if name == "token_type_ids":
        return 1 - value
    if name == "mc_token_ids":
        return (value + 1) % 8
    if name.endswith("input_ids"):  # the last token is the end, whose place some heads look for
        return torch.cat((value[..., :-1].roll(1, dims=-1), value[..., -1:]), dim=-1)
    return value.flip(0)


@each_head
def test_eager_runs_and_reacts_to_each_input(model_class: type) -> None:
    case = find_model_case(model_class)
    reference = run(case, case.inputs)
    assert reference
    assert all(torch.isfinite(value).all() for value in reference.values())
    assert max(value.abs().max() for value in reference.values()) < 30
    seen = set()
    for name, value in case.inputs.items():
        outputs = run(case, {**case.inputs, name: changed(name, value)})
        moved = {
            key: ((outputs[key] - expected).abs() / (1e-4 + 1e-4 * expected.abs())).max().item()
            for key, expected in reference.items()
        }
        assert max(moved.values()) >= POWER, f"{name} moves no output: {moved}"
        seen |= {key for key, power in moved.items() if power >= POWER}
    assert seen == set(reference), "an output reacts to nothing"


@each_head
def test_float32_errors_stay_well_below_the_tolerance(model_class: type) -> None:
    case = find_model_case(model_class)
    single = run(case, case.inputs)
    case.model.double()
    double = run(case, {k: v.double() if v.is_floating_point() else v for k, v in case.inputs.items()})
    error = max((double[key] - value).abs().max().item() for key, value in single.items())
    assert error < 2e-5


@each_head
def test_case_keeps_its_promises(model_class: type) -> None:
    case = find_model_case(model_class)
    assert case.source == "synthesised"
    assert not case.model.training
    assert {parameter.dtype for parameter in case.model.parameters()} == {torch.float32}
    assert not getattr(case.model.config, "use_cache", False)
    assert sum(parameter.numel() for parameter in case.model.parameters()) <= MAX_PARAMETERS
    assert case.model.main_input_name in case.inputs
    for name, value in case.inputs.items():
        assert min(value.shape) >= 2, f"{name} has an axis of 1"
        assert not name.endswith("attention_mask") or bool(value.all())


@each_head
def test_probes_run_or_are_refused_cleanly(model_class: type) -> None:
    case = find_model_case(model_class)
    refused = set()
    for name, probe in case.probes.items():
        assert set(probe) == set(case.inputs)
        try:
            outputs = run(case, probe)
        except ValueError:
            refused.add(name)
        else:
            assert all(torch.isfinite(value).all() for value in outputs.values()), name
    assert {"batch_1", "batch_3"} <= set(case.probes)
    # Only sizes of media may be refused: these models' positions are as many as their configuration says.
    assert refused <= {"image_48", "image_48x40", "audio_48"}
    if "attention_mask" in case.inputs or "decoder_attention_mask" in case.inputs:
        padded = {"pad_right", "pad_left"} | {name for name in case.probes if name.endswith("_padded")}
        assert len(padded & set(case.probes)) == 3


def test_every_model_type_is_covered() -> None:
    assert len(HEADS) >= 45
    names = {head.__name__ for head in HEADS}
    assert {"T5EncoderModel", "CLIPModel", "ViTForMaskedImageModeling", "WhisperForAudioClassification"} <= names


def test_the_same_seed_gives_the_same_case_and_leaves_the_global_generator_alone() -> None:
    model_class = next(head for head in HEADS if head.__name__ == "CLIPModel")
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = find_model_case(model_class, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    second, other = find_model_case(model_class, seed=3), find_model_case(model_class, seed=4)
    state = second.model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in first.model.state_dict().items())
    assert all(torch.equal(value, second.inputs[name]) for name, value in first.inputs.items())
    assert first.probes.keys() == second.probes.keys()
    for name, probe in first.probes.items():
        assert all(torch.equal(value, second.probes[name][key]) for key, value in probe.items())
    assert not torch.equal(first.inputs["pixel_values"], other.inputs["pixel_values"])
    assert not all(torch.equal(state[name], value) for name, value in other.model.state_dict().items())


def test_encoder_and_decoder_lengths_move_by_different_amounts() -> None:
    model_class = next(head for head in HEADS if head.__name__ == "T5ForConditionalGeneration")
    case = find_model_case(model_class)
    for probe in (case.probes["length_11"], case.probes["length_5"]):
        moved = [probe[k].shape[1] - case.inputs[k].shape[1] for k in ("input_ids", "decoder_input_ids")]
        assert moved[0] * moved[1] > 0
        assert moved[0] != moved[1]
        assert probe["decoder_attention_mask"].shape == probe["decoder_input_ids"].shape


# -- A repository's own classes --------------------------------------------------------------------------------


class WrittenOutConfig(PretrainedConfig):
    model_type = "written_out"

    def __init__(
        self,
        vocab_size: int = 32000,
        hidden_size: int = 768,
        num_attention_heads: int = 12,
        eos_token_id: int = 31999,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_attention_heads = num_attention_heads
        self.eos_token_id = eos_token_id
        super().__init__(**kwargs)


class RequiredConfig(PretrainedConfig):
    model_type = "required"

    def __init__(self, hidden_size: int, vocab_size: int = 32000, **kwargs: Any) -> None:
        self.hidden_size = hidden_size
        self.vocab_size = vocab_size
        super().__init__(**kwargs)


class DeclaredConfig(PretrainedConfig):
    model_type = "declared"
    dim: int = 768
    hidden_dim: int = 3072
    vocab_size: int = 30000


class StubbornConfig(PretrainedConfig):
    model_type = "stubborn"

    def __init__(self, hidden_size: int = 768, **kwargs: Any) -> None:
        if hidden_size != 768:
            raise ValueError(f"hidden_size must be 768, not {hidden_size}\nand a second line")
        super().__init__(**kwargs)


class WideConfig(PretrainedConfig):
    model_type = "wide"
    lattice: int = 4000


class Own(PreTrainedModel):
    """Embeds, sums up to each position, projects."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        width = getattr(config, "hidden_size", None) or config.dim
        self.embed = torch.nn.Embedding(config.vocab_size, width)
        self.project = torch.nn.Linear(width, width)
        self.post_init()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> dict[str, Any]:
        hidden = self.embed(input_ids)
        if attention_mask is not None:
            hidden = hidden * attention_mask[..., None]
        return {"hidden": self.project(hidden.cumsum(1))}


@pytest.mark.parametrize("own_config", [WrittenOutConfig, RequiredConfig, DeclaredConfig])
def test_own_config_classes_of_every_style_become_tiny(own_config: type) -> None:
    case = find_model_case(type("OwnModel", (Own,), {"config_class": own_config}))
    assert run(case, case.inputs)[".hidden"].shape == (2, 8, 64)
    assert case.model.config.vocab_size == 256
    if own_config is WrittenOutConfig:
        assert case.model.config.eos_token_id == 255
        assert case.inputs["input_ids"][:, -1].tolist() == [255, 255]
    if own_config is DeclaredConfig:
        assert case.model.config.hidden_dim == 128


def cause(model_class: type) -> tuple[UnavailableCause, str]:
    with pytest.raises(Unavailable) as caught:
        find_model_case(model_class)
    return caught.value.cause, caught.value.message


def own(**members: Any) -> type:
    return type("OwnModel", (Own,), {"config_class": WrittenOutConfig, **members})


def test_a_config_that_refuses_is_invalid_and_says_its_first_line() -> None:
    found, message = cause(own(config_class=StubbornConfig))
    assert found == UnavailableCause.INVALID_CONFIG
    assert message.endswith("ValueError: hidden_size must be 768, not 64")


def test_a_config_class_that_is_none_of_transformers_is_told() -> None:
    for config_class in (type("LooseConfig", (), {}), "LooseConfig"):
        found, message = cause(own(config_class=config_class))
        assert found == UnavailableCause.INVALID_CONFIG
        assert "LooseConfig" in message
        assert "does not derive from transformers' PretrainedConfig" in message


def test_a_model_without_config_class_is_invalid() -> None:
    assert cause(own(config_class=None))[0] == UnavailableCause.INVALID_CONFIG


def test_a_class_without_forward_is_told() -> None:
    assert cause(type("Base", (PreTrainedModel,), {"config_class": WrittenOutConfig}))[0] == (
        UnavailableCause.NO_FORWARD
    )


def test_an_unknown_required_argument_is_named() -> None:
    def forward(self: Any, lattice: torch.Tensor) -> torch.Tensor:
        return lattice

    found, message = cause(own(forward=forward))
    assert found == UnavailableCause.UNKNOWN_INPUTS
    assert "'lattice'" in message


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ImportError("timm is required"), UnavailableCause.MISSING_LIBRARY),
        (OSError("We couldn't connect to 'https://huggingface.co' to load it"), UnavailableCause.HUB_ACCESS),
        (urllib.error.URLError("Name or service not known"), UnavailableCause.HUB_ACCESS),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), UnavailableCause.HUB_ACCESS),
        (ModuleNotFoundError("No module named 'timm'", name="timm.layers"), UnavailableCause.MISSING_LIBRARY),
        (ModuleNotFoundError("No module named 'tests.utils'", name="tests.utils"), UnavailableCause.INVALID_CONFIG),
        (OSError("disk full"), UnavailableCause.INVALID_CONFIG),
        (AttributeError("no such field"), UnavailableCause.INVALID_CONFIG),
    ],
)
def test_errors_of_a_constructor_have_their_causes(error: Exception, expected: UnavailableCause) -> None:
    def init(self: Any, config: Any) -> None:
        raise error

    found, message = cause(own(__init__=init))
    assert found == expected
    assert str(error) in message


def test_a_model_that_stays_big_is_refused_before_it_takes_memory() -> None:
    def init(self: Any, config: Any) -> None:
        PreTrainedModel.__init__(self, config)
        self.table = torch.nn.Linear(1_000_000, 2_000_000)

    found, message = cause(own(__init__=init))
    assert found == UnavailableCause.TOO_BIG
    assert "2,000.0 billion parameters as its configuration was made; the limit is 5 million" in message


def test_whatever_number_of_a_configuration_leads_to_the_size_shrinks() -> None:
    def init(self: Any, config: Any) -> None:
        PreTrainedModel.__init__(self, config)
        self.table = torch.nn.Linear(config.lattice, config.lattice * 1000)

    assert find_model_case(own(__init__=init, config_class=WideConfig)).model.table.in_features <= 64


def test_a_model_that_stays_big_is_refused_also_where_its_size_cannot_be_told_beforehand() -> None:
    made: list[int] = []

    def init(self: Any, config: Any) -> None:
        PreTrainedModel.__init__(self, config)
        torch.zeros(3).tolist()  # there are no values to list on the meta device
        self.table = torch.nn.Embedding(100_000, 12_500)  # 5 GB
        made.append(1)

    found, message = cause(own(__init__=init))
    assert found == UnavailableCause.TOO_BIG
    assert "100000 x 12500" in message
    assert not made


def test_a_constructor_that_computes_with_its_tensors_is_no_hindrance() -> None:
    def init(self: Any, config: Any) -> None:
        Own.__init__(self, config)
        self.rates = torch.linspace(0, 1, 3).tolist()

    assert find_model_case(own(__init__=init)).model.rates == [0.0, 0.5, 1.0]


def test_a_mask_that_a_model_makes_whatever_its_layers_are_has_its_window() -> None:
    case = synthesised_case(Step3p7TextModel, seed=0)
    assert set(case.model.config.layer_types) == {"full_attention"}
    case.model(**case.inputs)


def test_a_model_that_makes_no_such_mask_is_left_without_a_window() -> None:
    case = synthesised_case(Qwen3Model, seed=0)
    assert case.model.config.layer_types
    assert case.model.config.sliding_window is None


def test_a_forward_that_goes_on_from_a_session_is_stateful() -> None:
    def forward(self: Any, inference_session: Any) -> torch.Tensor:
        return torch.zeros(1)

    found, message = cause(own(forward=forward))
    assert found == UnavailableCause.STATEFUL_FORWARD
    assert "session" in message


OWN_FILE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel, Qwen3Model
from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

class FolderConfig(PretrainedConfig):
    model_type = "folder"
    def __init__(self, hidden_size=32, vocab_size=100, layer_types=("a", "a"), activation="relu", **kwargs):
        self.hidden_size, self.vocab_size, self.activation = hidden_size, vocab_size, activation
        self.layer_types = list(layer_types)
        super().__init__(**kwargs)

class FolderModel(PreTrainedModel):
    config_class = FolderConfig
    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()
    def forward(self, input_ids):
        return {"hidden": self.embed(input_ids)}
"""


def folder_class(folder: Path) -> Any:
    (folder / "modeling_folder.py").write_text(OWN_FILE)
    spec = importlib.util.spec_from_file_location("modeling_folder", folder / "modeling_folder.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FolderModel


def test_the_config_file_beside_a_models_own_file_gives_its_structure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_class = folder_class(tmp_path)
    monkeypatch.setitem(sys.modules, "modeling_folder", sys.modules[__name__])
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 4096, "layer_types": ["a", "b", "a"], "activation": "silu", "eos_token_id": 90000}'
    )
    monkeypatch.setattr(inspect, "getfile", lambda _: str(tmp_path / "modeling_folder.py"))
    config = find_model_case(model_class).model.config
    assert (config.hidden_size, config.layer_types, config.activation) == (64, ["a", "b"], "silu")
    assert config.eos_token_id == 255


def test_sizes_in_objects_and_lists_of_them_shrink_by_the_same_kinds(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"stages": [{"hidden_size": 7168, "depth": 30, "kind": "a"}, {"hidden_size": 2048, "depth": 5, "kind": "b"}],'
        ' "head": {"hidden_size": 1024, "scale": 3, "inner": {"num_layers": 12}}}'
    )
    config = synthesised_case(folder_class(tmp_path), 0, config_file=tmp_path / "config.json").model.config
    assert config.stages == [{"hidden_size": 64, "depth": 2, "kind": kind} for kind in "ab"]
    assert config.head == {"hidden_size": 64, "scale": 3, "inner": {"num_layers": 2}}


def test_sizes_of_no_kind_in_lists_of_objects_shrink_where_a_model_is_too_big(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"stages": [{"width": 7168, "kernel_size": 101}, {"width": 2048}]}')
    model_class = folder_class(tmp_path)

    class Staged(model_class):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.wide = torch.nn.Linear(config.stages[0]["width"], config.stages[1]["width"])

    config = synthesised_case(Staged, 0, config_file=tmp_path / "config.json").model.config
    assert config.stages == [{"width": 896, "kernel_size": 101}, {"width": 256}]


def test_a_config_file_that_is_none_is_told(tmp_path: Path) -> None:
    model_class = folder_class(tmp_path)
    for text, why in (("{", "config.json cannot be read"), ("[]", "config.json holds no JSON object")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(Unavailable, match=why) as caught:
            synthesised_case(model_class, 0, config_file=tmp_path / "config.json")
        assert caught.value.cause == UnavailableCause.INVALID_CONFIG


@pytest.mark.parametrize("names", [("pixel_values", "pixel_values_2"), ("pixel_values_left", "pixel_values_right")])
def test_several_pictures_are_fed_alike(names: tuple[str, str]) -> None:
    def init(self: Any, config: Any) -> None:
        PreTrainedModel.__init__(self, config)
        self.patches = torch.nn.Conv2d(3, 8, 8, 8)

    def forward(self: Any, **pictures: torch.Tensor) -> torch.Tensor:
        one, other = (self.patches(picture).flatten(2).mean(-1) for picture in pictures.values())
        return one * other

    picture = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [picture, *(picture.replace(name=name) for name in names)]
    forward.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    case = find_model_case(own(__init__=init, forward=forward))
    one, other = (case.inputs[name] for name in names)
    assert one.shape == other.shape == (2, 3, 64, 64)
    assert not torch.equal(one, other)
    assert any(name.startswith("image_") for name in case.probes)
    for probe in case.probes.values():
        assert probe[names[0]].shape == probe[names[1]].shape
        case.model(**probe)


def test_an_image_without_its_placeholders_is_no_case() -> None:
    def forward(self: Any, input_ids: torch.Tensor, pixel_values: torch.Tensor | None = None) -> torch.Tensor:
        return input_ids

    def init(self: Any, config: Any) -> None:
        Own.__init__(self, config)
        config.image_token_id = 7

    found, message = cause(own(forward=forward, __init__=init))
    assert found == UnavailableCause.UNKNOWN_INPUTS
    assert "placeholders" in message
