"""One case end to end, on modeling files written by the test: every way to end names its kind, stage and place."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import StageError
from exporters.registry import unregister
from hfexport_bot.runner import case, failures, reference
from hfexport_bot.runner.case import run_case
from hfexport_bot.runner.failures import failed
from hfexport_bot.schema import (
    MAX_MESSAGE_CHARS,
    Backend,
    CaseId,
    CaseRequest,
    Fingerprint,
    Layout,
    Location,
    Outcome,
    OutcomeKind,
    RunnerSetup,
    Shapes,
    Task,
    UnavailableCause,
)
from tests.hfexport_bot.runner.modules import forget_modules
from tests.hfexport_bot.runner.test_parts import Scaled, parts

pytestmark = pytest.mark.export

#: ``BODY`` is the forward's own code, between the embedded tokens ``x`` and the logits; ``INIT`` the constructor's.
TOY = """
import os, random, torch
from torch import nn

class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 8)
        self.value = nn.Linear(8, 8)
        self.out = nn.Linear(8, 5)
        INIT

    def forward(self, input_ids, attention_mask):
        exporting = torch.compiler.is_exporting()
        x = self.embed(input_ids)
        BODY
        counts = attention_mask.to(x.dtype)[..., None]
        mean = (x * counts).sum(1, keepdim=True) / counts.sum(1, keepdim=True)
        logits = self.out(torch.tanh(x + self.value(mean)))
        return ANSWER
"""
HOOK = """
import torch
from modeling_toy import Toy

def build(class_name, seed):
    ids = torch.randint(1, 32, (2, 8))
    model = Toy()
    INIT
    return {"model": model, "inputs": {"input_ids": ids, "attention_mask": torch.ones_like(ids)}}
"""


def toy(body: str = "pass", *, init: str = "pass", answer: str = '{"logits": logits}') -> str:
    body, init = (textwrap.indent(textwrap.dedent(code), " " * 8).strip() for code in (body, init))
    return TOY.replace("BODY", body).replace("INIT", init).replace("ANSWER", answer)


def hook(init: str = "pass") -> str:
    return HOOK.replace("INIT", textwrap.indent(textwrap.dedent(init), " " * 4).strip())


@pytest.fixture(autouse=True)
def _own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test's files are its own modules, read anew whenever they are written."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = list(sys.path)
    yield
    sys.path[:] = path
    forget_modules(tmp_path)


class Tree:
    """A repository of one modeling file and one function that gives its cases."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stages: list[str] = []
        path.mkdir()

    def run(
        self,
        source: str,
        *,
        cases: str | None = HOOK.replace("INIT", "pass"),
        class_name: str = "Toy",
        backend: Backend = Backend.DYNAMO,
        shapes: Shapes = Shapes.DYNAMIC,
        task: Task = Task.FORWARD,
        hook: str = "cases.py:build",
        twin: Fingerprint | None = None,
        survey: bool = False,
        **setup: Any,
    ) -> Outcome:
        """The outcome, after the checks that every outcome has to stand."""
        forget_modules(self.path)
        (self.path / "modeling_toy.py").write_text(source)
        if cases is not None:
            (self.path / "cases.py").write_text(cases)
            setup["cases_hook"] = hook
        request = CaseRequest(
            id=CaseId(model="toy", class_name=class_name, backend=backend, shapes=shapes, task=task),
            module="modeling_toy.py",
            twin=twin,
            survey=survey,
        )
        tree = RunnerSetup(layout=Layout.MODELING, tree=str(self.path), **setup)
        self.stages = []
        outcome = run_case(request, tree, lambda stage, component: self.stages.append(stage))
        line = outcome.model_dump_json()
        assert Outcome.model_validate_json(line).model_dump_json() == line
        assert str(self.path) not in line
        assert "site-packages" not in line
        assert set(outcome.stage_seconds) == set(self.stages)
        assert outcome.seconds == pytest.approx(sum(outcome.stage_seconds.values()))
        if outcome.kind is not OutcomeKind.PASS:
            assert outcome.message
            assert outcome.stage in self.stages
        return outcome


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree")


def line_of(source: str, text: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), start=1) if text in line)


# -- Passing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", list(Backend))
def test_a_sound_model_passes_on_each_backend(tree: Tree, backend: Backend) -> None:
    outcome = tree.run(toy(), backend=backend)
    assert (outcome.kind, outcome.stage, outcome.message) == (OutcomeKind.PASS, "", "")
    assert outcome.source == "repository"
    assert outcome.notes == ()
    assert tree.stages[:2] == ["source", "eager"]
    assert tree.stages.index("trace") < tree.stages.index("load") < tree.stages.index("parity")
    (component,) = outcome.components
    assert component.name == "model"
    assert {probe.status for probe in component.probes} == {"pass"}
    assert {probe.name for probe in component.probes} >= {"batch_1", "batch_3", "pad_right", "pad_left"}
    assert component.max_abs is not None
    assert component.max_abs < 1e-5


def test_a_case_ends_after_its_trace_where_its_twin_is_the_same(tree: Tree) -> None:
    first = tree.run(toy(), backend=Backend.ONNX)
    assert first.fingerprint is not None
    assert len(first.fingerprint.graphs) == 1
    refactored = toy("y = x  # the same under another name\nx = y")
    again = tree.run(refactored, backend=Backend.ONNX, twin=first.fingerprint)
    assert (again.kind, again.stage) == (OutcomeKind.SKIPPED, "trace")
    assert again.fingerprint == first.fingerprint
    assert tree.stages[-1] == "state_cleanup"
    other = tree.run(toy("x = x * 2"), backend=Backend.ONNX, twin=first.fingerprint)
    assert other.kind is OutcomeKind.PASS
    assert other.fingerprint is not None
    assert other.fingerprint.graphs != first.fingerprint.graphs


def test_numbers_that_only_eager_has_keep_a_case_from_ending_early(tree: Tree) -> None:
    first = tree.run(toy("x = x if exporting else x + 1"), twin=None)
    sound = tree.run(toy(), twin=first.fingerprint)
    assert (first.kind, sound.kind) == (OutcomeKind.PARITY, OutcomeKind.PASS)
    assert first.fingerprint is not None
    assert sound.fingerprint is not None
    assert sound.fingerprint.graphs == first.fingerprint.graphs
    assert sound.fingerprint.eager != first.fingerprint.eager


def test_only_what_follows_a_trace_has_a_graph(tree: Tree) -> None:
    stopped = tree.run(toy("x = x * int(input_ids.sum())"))
    assert (stopped.stage, stopped.fingerprint and stopped.fingerprint.graphs) == ("trace", ())
    assert tree.run(toy("raise ValueError(3)")).fingerprint is None


def test_a_survey_ends_after_eager_and_tells_what_was_fed(tree: Tree) -> None:
    outcome = tree.run(toy(), survey=True)
    assert (outcome.kind, tree.stages) == (OutcomeKind.PASS, ["source", "eager"])
    assert outcome.fed == ("input_ids", "attention_mask")
    assert outcome.built_from == ("modeling_toy.py",)
    assert outcome.parameters
    assert outcome.components == ()
    assert [each.source for each in outcome.tried] == ["repository"]
    broken = tree.run(toy("raise RuntimeError('no')"), survey=True)
    assert (broken.kind, broken.stage, broken.source) == (OutcomeKind.ERROR, "eager", "repository")


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("logits", ["output"]),
        ("(logits, x)", ["0", "1"]),
        ('{"a": {"b": [logits, (x,)]}}', ["a.b.0", "a.b.1.0"]),
        ('{"loss": None, "y": logits}', ["y"]),
    ],
)
def test_any_structure_of_outputs_is_compared(tree: Tree, answer: str, names: list[str]) -> None:
    outcome = tree.run(toy(answer=answer), shapes=Shapes.STATIC)
    assert outcome.kind is OutcomeKind.PASS
    assert [output.name for output in outcome.components[0].outputs] == names


@pytest.mark.parametrize("answer", ["None", "3", "(None, None)"])
def test_a_forward_that_gives_no_tensor_is_no_pass(tree: Tree, answer: str) -> None:
    outcome = tree.run(toy(answer=answer))
    assert (outcome.kind, outcome.stage) == (OutcomeKind.ERROR, "eager")
    assert "returns no tensor" in outcome.message


@pytest.mark.parametrize(
    "body",
    [
        "input_ids.remainder_(7); x = self.embed(input_ids)",
        "self.seen.copy_(x.detach().mean())",
        "self.seen += 1",
    ],
)
@pytest.mark.parametrize("backend", [Backend.DYNAMO, Backend.ONNX])
def test_a_forward_that_writes_where_it_does_not_matter_passes(tree: Tree, body: str, backend: Backend) -> None:
    outcome = tree.run(toy(body, init="self.register_buffer('seen', torch.zeros(()))"), backend=backend)
    assert (outcome.kind, outcome.message) == (OutcomeKind.PASS, "")


# -- Breaks that must not be missed ----------------------------------------------------------------------------

IGNORES_MASK = "attention_mask = torch.ones_like(attention_mask) if exporting else attention_mask"
WEAK = "for p in model.parameters(): torch.nn.init.normal_(p, std=0.02)"


@pytest.mark.parametrize("backend", [Backend.DYNAMO, Backend.ONNX])
def test_a_graph_that_ignores_its_mask_is_a_parity_break(tree: Tree, backend: Backend) -> None:
    outcome = tree.run(toy(IGNORES_MASK), backend=backend)
    assert (outcome.kind, outcome.stage) == (OutcomeKind.PARITY, "parity")
    assert outcome.message.startswith("probe pad_right: logits: ")
    assert outcome.components[0].max_abs == pytest.approx(0, abs=1e-5)


def test_weak_weights_do_not_hide_an_ignored_mask(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tree.run(toy(IGNORES_MASK), cases=hook(WEAK)).kind is OutcomeKind.PARITY
    # Without stronger weights the break stays below the tolerance, and all that is left is to say so.
    monkeypatch.setattr(reference, "strengthen", lambda model, generator: None)
    outcome = tree.run(toy(IGNORES_MASK), cases=hook(WEAK))
    assert outcome.kind is OutcomeKind.PASS
    assert re.match(r"the check is nearly blind to attention_mask: .* 100 are wanted", outcome.notes[-1])


def test_an_input_that_eager_ignores_is_told(tree: Tree) -> None:
    outcome = tree.run(toy("attention_mask = torch.ones_like(attention_mask)"))
    assert outcome.kind is OutcomeKind.PASS
    assert outcome.notes == (
        "the check is nearly blind to attention_mask: changing it moves eager's outputs by 0 times the tolerance, "
        "100 are wanted",
    )


def test_weights_that_overflow_when_strengthened_stay_as_they_were(tree: Tree) -> None:
    """The ignored mask asks for stronger weights, on which this forward has no finite output left."""
    body = """
    attention_mask = torch.ones_like(attention_mask)
    x = x + torch.exp(1e4 * self.embed.weight.abs().mean()) - torch.exp(1e4 * self.embed.weight.abs().mean())
    """
    outcome = tree.run(toy(body), cases=hook("for p in model.parameters(): torch.nn.init.normal_(p, std=1e-3)"))
    assert outcome.kind is OutcomeKind.PASS
    assert not [note for note in outcome.notes if "input_ids: changing it moves eager's outputs by 0 " in note]


def test_parts_that_are_judged_one_by_one_are_components(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(parts(image_encoder=Scaled(2.0), lm_head=Scaled(2.0, exported=3.0)), notes=("in parts",))
    monkeypatch.setattr(case, "export", lambda *_, **__: found)
    outcome = tree.run(toy())
    assert (outcome.kind, outcome.stage, outcome.component) == (OutcomeKind.PARITY, "parity", "lm_head")
    assert [component.name for component in outcome.components] == ["image_encoder", "lm_head"]
    assert "in parts" in outcome.notes


def test_a_graph_wrong_at_another_batch_is_a_parity_break(tree: Tree) -> None:
    outcome = tree.run(toy("x = x * (2 if exporting else input_ids.shape[0])"))
    assert (outcome.kind, outcome.stage) == (OutcomeKind.PARITY, "parity")
    assert outcome.message.startswith("probe batch_1: logits: 40 of 40 elements differ")


@pytest.mark.parametrize("backend", [Backend.DYNAMO, Backend.ONNX])
def test_a_graph_that_refuses_another_batch_is_an_error_at_run(tree: Tree, backend: Backend) -> None:
    source = toy("x = x.reshape(2, -1, 8) if exporting else x")
    outcome = tree.run(source, backend=backend)
    assert (outcome.kind, outcome.stage) == (OutcomeKind.ERROR, "run")
    assert outcome.message.startswith("probe batch_1: eager takes it, but: ")
    assert tree.run(source, backend=backend, shapes=Shapes.STATIC).kind is OutcomeKind.PASS


def test_what_eager_refuses_is_no_fault(tree: Tree) -> None:
    outcome = tree.run(toy("assert input_ids.shape[0] == 2, 'two rows, please'"))
    assert outcome.kind is OutcomeKind.PASS
    refused = {probe.name: probe.message for probe in outcome.components[0].probes if probe.status == "static"}
    assert refused == dict.fromkeys(("batch_1", "batch_3"), "eager refuses it: AssertionError: two rows, please")


# -- Eager that does not repeat --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("x = nn.functional.dropout(x, 0.5, training=True)", "another seed"),
        ("x = x + random.random()", "another seed"),
        ("self.calls += 1; x = x + self.calls", "same seed"),
        ("self.state += 1; x = x + self.state", "same seed"),
        ("x = x + int.from_bytes(os.urandom(6)) / 2**48", "same seed"),
    ],
    ids=["dropout", "random", "counted calls", "buffer", "entropy"],
)
def test_a_forward_that_does_not_repeat_is_nondeterministic(tree: Tree, body: str, why: str) -> None:
    outcome = tree.run(toy(body, init="self.calls = 0; self.register_buffer('state', torch.zeros(()))"))
    assert (outcome.kind, outcome.stage) == (OutcomeKind.NONDETERMINISTIC, "eager")
    assert why in outcome.message
    assert "trace" not in tree.stages


# -- Errors with their places ----------------------------------------------------------------------------------


def test_a_forward_that_raises_names_its_line(tree: Tree) -> None:
    source = toy("if not exporting: raise RuntimeError('not today')")
    outcome = tree.run(source)
    assert (outcome.kind, outcome.stage, outcome.error_type) == (OutcomeKind.ERROR, "eager", "RuntimeError")
    assert outcome.message == "not today"
    place = Location(file="modeling_toy.py", line=line_of(source, "not today"), function="forward")
    assert outcome.location == place


def test_a_branch_on_data_names_stage_and_line(tree: Tree) -> None:
    source = toy("if x.sum() > 1e9: x = x + 1  # data")
    outcome = tree.run(source)
    assert (outcome.kind, outcome.stage) == (OutcomeKind.ERROR, "trace")
    assert outcome.error_type == "GuardOnDataDependentSymNode"
    assert outcome.location == Location(file="modeling_toy.py", line=line_of(source, "# data"), function="forward")


def test_a_helper_in_another_file_of_the_tree_is_named(tree: Tree) -> None:
    (tree.path / "layers.py").write_text("def fail(x):\n    raise KeyError('scale')\n")
    source = toy("from layers import fail; fail(x)")
    outcome = tree.run(source)
    assert outcome.message == "'scale'"
    assert outcome.location is not None
    assert outcome.location.file in ("modeling_toy.py", "layers.py")


def test_an_environment_inside_the_tree_is_not_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "venv" / "site-packages"
    monkeypatch.setattr(
        failures.sysconfig, "get_paths", lambda: dict.fromkeys(("purelib", "platlib", "stdlib"), str(inside))
    )
    code = compile("def f():\n    raise KeyError('x')\n", str(inside / "library" / "layers.py"), "exec")
    names: dict[str, Any] = {}
    exec(code, names)
    with pytest.raises(KeyError) as caught:
        names["f"]()
    setup = RunnerSetup(layout=Layout.MODELING, tree=str(tmp_path))
    assert failed(caught.value, "eager", setup).location is None
    text = f"{inside}/library/layers.py and {tmp_path}/pkg/a.py in {tmp_path}, not {tmp_path}er/b"
    assert failed(ValueError(text), "eager", setup).message == (
        f"library/layers.py and pkg/a.py in ., not {tmp_path}er/b"
    )


def test_a_tree_reached_through_a_link_leaves_no_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    setup = RunnerSetup(layout=Layout.MODELING, tree=str(tmp_path / "link"))
    error = SyntaxError("bad", (str(tmp_path / "real" / "modeling_a.py"), 3, 1, ""))
    assert failed(error, "source", setup).location == Location(file="modeling_a.py", line=3)
    assert failed(ValueError(f"{tmp_path}/link/a {tmp_path}/real/b"), "source", setup).message == "a b"


def test_a_syntax_error_is_placed(tree: Tree) -> None:
    outcome = tree.run("x = 1\ndef broken(:\n", cases=None)
    assert (outcome.kind, outcome.stage, outcome.error_type) == (OutcomeKind.ERROR, "source", "SyntaxError")
    assert outcome.location == Location(file="modeling_toy.py", line=2)
    assert tree.stages == ["source"]


def test_an_error_while_the_module_is_imported_is_placed(tree: Tree) -> None:
    outcome = tree.run("import torch\nx = 1 / 0\n", cases=None)
    assert (outcome.kind, outcome.stage, outcome.error_type) == (OutcomeKind.ERROR, "source", "ZeroDivisionError")
    assert outcome.location == Location(file="modeling_toy.py", line=2, function="<module>")


def test_a_missing_class_is_told_with_the_nearest(tree: Tree) -> None:
    outcome = tree.run(toy(), class_name="Tpy", cases=None)
    assert (outcome.kind, outcome.stage) == (OutcomeKind.ERROR, "source")
    assert outcome.message == "modeling_toy.py defines no class Tpy; did you mean Toy?"
    assert outcome.location is None


@pytest.mark.parametrize(
    ("cases", "reference", "said"),
    [
        (hook(), "cases.py:other", "'cases.py' has no function 'other'; it has Toy, build"),
        ("def build(name, seed):\n    return 3\n", "cases.py:build", "should be None or a mapping"),
        ("def build(name, seed):\n    return {}['x']\n", "cases.py:build", "raised for Toy: KeyError: 'x'"),
        ("def build(:\n", "cases.py:build", "importing 'cases.py' failed: SyntaxError"),
    ],
)
def test_a_wrong_case_function_is_an_error_at_source(tree: Tree, cases: str, reference: str, said: str) -> None:
    outcome = tree.run(toy(), cases=cases, hook=reference)
    assert (outcome.kind, outcome.stage, outcome.error_type) == (OutcomeKind.ERROR, "source", "HookError")
    assert said in outcome.message
    assert outcome.location is None


def test_a_model_that_fails_to_build_in_the_case_function_names_the_model(tree: Tree) -> None:
    source = toy(init="raise ValueError('no heads')")
    outcome = tree.run(source)
    assert "raised for Toy: ValueError: no heads" in outcome.message
    assert outcome.location == Location(file="modeling_toy.py", line=line_of(source, "no heads"), function="__init__")


def test_a_workarounds_file_that_fails_is_an_error_at_source(tree: Tree) -> None:
    (tree.path / "workarounds.py").write_text("import torch\nraise ImportError('old torch')\n")
    outcome = tree.run(toy(), workarounds_file="workarounds.py")
    assert (outcome.kind, outcome.stage, outcome.message) == (OutcomeKind.ERROR, "source", "old torch")
    assert outcome.location == Location(file="workarounds.py", line=2, function="<module>")


def test_a_repositorys_own_workaround_is_applied_listed_and_switched_off(tree: Tree) -> None:
    method = "\n    def limit(self, x):\n        return x.clamp(max=3.0) if x.max() > 3.0 else x\n"
    source = toy("x = self.limit(x)") + method
    (tree.path / "workarounds.py").write_text(
        "from exporters.utils import register_patch\n"
        "@register_patch('dynamo', 'modeling_toy.Toy.limit', model_change='clamp always')\n"
        "def _own_patch_limit(original):\n"
        "    'A limit that is only applied where it is needed.'\n"
        "    return lambda self, x: x.clamp(max=3.0)\n"
    )
    own = "dynamo/model_patches/own_patch_limit"
    try:
        assert tree.run(source).stage == "trace"
        outcome = tree.run(source, workarounds_file="workarounds.py")
        assert (outcome.kind, outcome.workarounds) == (OutcomeKind.PASS, {own: 1})
        unregister(own)  # a process runs one case
        outcome = tree.run(source, workarounds_file="workarounds.py", disabled_workarounds=(own,))
        assert (outcome.kind, outcome.stage) == (OutcomeKind.ERROR, "trace")
    finally:
        unregister(own)


def test_a_repositorys_own_skip_ends_the_case_at_source_and_is_switched_off(tree: Tree) -> None:
    (tree.path / "workarounds.py").write_text(
        "from exporters.utils import register_export_skip\n"
        "register_export_skip('slow', 'Toy', backend='dynamo', reason='It hangs.', shapes='dynamic',\n"
        "                     upstream='https://github.com/a/b/issues/1')\n"
    )
    skip = "dynamo/source/slow"
    try:
        outcome = tree.run(toy(), workarounds_file="workarounds.py")
        assert (outcome.kind, outcome.stage) == (OutcomeKind.SKIPPED, "source")
        assert outcome.message == f"It hangs. Skipped by {skip} until https://github.com/a/b/issues/1"
        assert outcome.workarounds == {skip: 1}
        assert tree.stages == ["source"]
        assert tree.run(toy(), shapes=Shapes.STATIC).kind is OutcomeKind.PASS
        assert tree.run(toy(), disabled_workarounds=(skip,)).kind is OutcomeKind.PASS
    finally:
        unregister(skip)


# -- No model or no inputs -------------------------------------------------------------------------------------

CONFIGURED = """
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

class ToyConfig(PreTrainedConfig):
    model_type = "toy"
    def __init__(self, hidden_size=8, width=4, **kwargs):
        super().__init__(**kwargs)
        self.hidden_size, self.width = hidden_size, width
        IN_CONFIG

class Toy(PreTrainedModel):
    config_class = ToyConfig
    def __init__(self, config):
        super().__init__(config)
        IN_MODEL
        self.post_init()
    def forward(self, ARGUMENTS):
        return (input_ids,)

class Headless(nn.Module):
    pass
"""


def configured(*, in_config: str = "pass", in_model: str = "pass", arguments: str = "input_ids") -> str:
    return CONFIGURED.replace("IN_CONFIG", in_config).replace("IN_MODEL", in_model).replace("ARGUMENTS", arguments)


@pytest.mark.parametrize(
    ("source", "class_name", "cause", "said"),
    [
        (configured(), "Headless", UnavailableCause.NO_FORWARD, "Headless has no forward of its own"),
        (configured(in_config="raise ValueError('odd')"), "Toy", UnavailableCause.INVALID_CONFIG, "ValueError: odd"),
        (configured(in_model="raise ValueError('odd')"), "Toy", UnavailableCause.INVALID_CONFIG, "ValueError: odd"),
        (configured(in_model="import nowhere_"), "Toy", UnavailableCause.MISSING_LIBRARY, "nowhere_"),
        (
            configured(in_model="raise OSError('cannot reach huggingface.co')"),
            "Toy",
            UnavailableCause.HUB_ACCESS,
            "huggingface.co",
        ),
        (configured(arguments="input_ids, entity_spans"), "Toy", UnavailableCause.UNKNOWN_INPUTS, "'entity_spans'"),
        (
            configured(in_model="self.big = nn.Linear(3000, 3000)"),
            "Toy",
            UnavailableCause.TOO_BIG,
            "has 9 million parameters",
        ),
        ("class Toy:\n    def forward(self): ...\n", "Toy", UnavailableCause.INVALID_CONFIG, "names no config_class"),
    ],
    ids=lambda value: value if isinstance(value, UnavailableCause) else "",
)
def test_a_case_that_cannot_be_made_has_its_cause(
    tree: Tree, source: str, class_name: str, cause: UnavailableCause, said: str
) -> None:
    outcome = tree.run(source, class_name=class_name, cases=None)
    assert (outcome.kind, outcome.stage, outcome.cause) == (OutcomeKind.UNAVAILABLE, "source", cause)
    assert said in outcome.message


# -- What crosses to the trusted side --------------------------------------------------------------------------


def test_memory_that_cannot_be_had_is_oom(tree: Tree) -> None:
    outcome = tree.run(toy("if not exporting: bytearray(1 << 62)"))
    assert (outcome.kind, outcome.stage) == (OutcomeKind.OOM, "eager")
    outcome = tree.run(toy("if exporting: bytearray(1 << 62)"))
    assert (outcome.kind, outcome.stage) == (OutcomeKind.OOM, "trace")


def test_a_kernel_that_the_runtime_lacks_is_unsupported(tree: Tree) -> None:
    outcome = tree.run(toy(answer="torch.erf(logits.double())"), backend=Backend.ONNX)
    assert (outcome.kind, outcome.stage) == (OutcomeKind.UNSUPPORTED, "load")
    assert outcome.error_type == "UnsupportedByRuntime"
    assert "Erf" in outcome.message
    assert outcome.components[0].opset
    assert outcome.source == "repository"


def test_long_and_unencodable_messages_are_made_fit(tree: Tree) -> None:
    outcome = tree.run(toy("if not exporting: raise ValueError('start' + 'x' * 20_000 + '\\ud800 end')"))
    assert outcome.kind is OutcomeKind.ERROR
    assert MAX_MESSAGE_CHARS - 100 < len(outcome.message) <= MAX_MESSAGE_CHARS
    assert outcome.message.startswith("startxxx")
    assert "[... cut ...]" in outcome.message
    assert outcome.message.endswith("x? end")


def test_long_names_are_made_fit(tree: Tree) -> None:
    source = toy(f"if not exporting: {'f' * 400}()").replace(
        "class Toy", f"class {'E' * 400}(Exception): pass\ndef {'f' * 400}(): raise {'E' * 400}\n\nclass Toy"
    )
    outcome = tree.run(source)
    assert outcome.location is not None
    assert (outcome.location.function, outcome.error_type) == ("f" * 300, "E" * 300)


def test_paths_in_probes_and_notes_are_cut_too(tree: Tree) -> None:
    body = "if input_ids.shape[0] == 3: raise ValueError(f'see {__file__} and {torch.__file__}')"
    outcome = tree.run(toy(body), cases=hook())
    messages = {probe.name: probe.message for probe in outcome.components[0].probes}
    assert messages["batch_3"] == "eager refuses it: ValueError: see modeling_toy.py and torch/__init__.py"


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "float('-inf')"])
def test_numbers_that_json_lacks_do_not_break_an_outcome(tree: Tree, value: str) -> None:
    both = tree.run(toy(answer=f"logits + {value}"), shapes=Shapes.STATIC)
    assert both.kind is OutcomeKind.PASS
    one = tree.run(toy(answer=f"logits + (0 if exporting else {value})"), shapes=Shapes.STATIC)
    assert (one.kind, one.stage) == (OutcomeKind.PARITY, "parity")
    assert "80 of 80 elements differ" in one.message


def test_a_stage_error_names_its_own_stage_and_its_cause() -> None:
    setup = RunnerSetup(layout=Layout.INSTALLED)
    outcome = failed(StageError("onnx", "translate", KeyError("aten::x")), "source", setup)
    assert (outcome.kind, outcome.stage) == (OutcomeKind.ERROR, "translate")
    assert (outcome.error_type, outcome.message) == ("KeyError", "'aten::x'")
    assert failed(ValueError(), "run", setup).message == "ValueError"
    memory = failed(StageError("executorch", "lower", MemoryError()), "source", setup)
    assert (memory.kind, memory.stage, memory.message) == (OutcomeKind.OOM, "lower", "MemoryError")


def test_the_model_of_installed_transformers_is_placed_without_the_machines_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers.models.bert.modeling_bert import BertIntermediate

    def fail(self: Any, hidden: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(f"in {torch.__file__}")

    monkeypatch.setattr(BertIntermediate, "forward", fail)
    request = CaseRequest(
        id=CaseId(model="bert", class_name="BertModel", backend=Backend.DYNAMO),
        module="transformers.models.bert.modeling_bert",
    )
    outcome = run_case(request, RunnerSetup(layout=Layout.INSTALLED), lambda stage, component: None)
    assert (outcome.kind, outcome.stage) == (OutcomeKind.ERROR, "eager")
    assert outcome.message == "in torch/__init__.py"
    assert outcome.location is not None
    assert outcome.location.file == "transformers/models/bert/modeling_bert.py"


# -- Generation ------------------------------------------------------------------------------------------------

#: A model that generates; ``STEP`` is its forward's own code and ``INIT`` what the constructor does last.
WRITER = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

class Toy(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        INIT

    def forward(self, input_ids=None, **arguments):
        STEP
        return super().forward(input_ids=input_ids, **arguments)
"""


def writer(step: str = "pass", init: str = "pass") -> str:
    return WRITER.replace("STEP", step).replace("INIT", init)


def test_generation_passes_with_prefill_and_decode(tree: Tree) -> None:
    outcome = tree.run(writer(), task=Task.GENERATE, cases=None)
    assert (outcome.kind, outcome.message, outcome.component) == (OutcomeKind.PASS, "", "")
    assert [component.name for component in outcome.components] == ["prefill", "decode"]
    assert all(component.nodes and component.inputs and component.axes for component in outcome.components)
    assert {probe.status for component in outcome.components for probe in component.probes} == {"pass"}
    assert len(outcome.components[1].probes) >= 8
    assert not any("only the logits tell" in note for note in outcome.notes)


def test_a_stage_that_fails_in_generation_names_its_component(tree: Tree) -> None:
    step = "if torch.compiler.is_exporting() and input_ids.shape[1] == 1: raise ValueError('no single token')"
    outcome = tree.run(writer(step), task=Task.GENERATE, cases=None)
    assert (outcome.kind, outcome.stage, outcome.component) == (OutcomeKind.ERROR, "trace", "decode")
    assert "no single token" in outcome.message


def test_numbers_that_differ_in_decode_only_are_parity_there(tree: Tree) -> None:
    step = "if torch.compiler.is_exporting() and input_ids.shape[1] == 1: input_ids = (input_ids + 1) % 200"
    outcome = tree.run(writer(step), task=Task.GENERATE, cases=None)
    assert (outcome.kind, outcome.stage, outcome.component) == (OutcomeKind.PARITY, "parity", "decode")
    assert {probe.status for probe in outcome.components[0].probes} == {"pass"}
    assert {probe.status for probe in outcome.components[1].probes} == {"parity"}


def test_a_way_to_generate_that_the_exporters_refuse_is_an_error(tree: Tree) -> None:
    outcome = tree.run(writer(init="self.generation_config.repetition_penalty = 1.5"), task=Task.GENERATE, cases=None)
    assert (outcome.kind, outcome.stage, outcome.component) == (OutcomeKind.ERROR, "signature", "")
    assert "repetition_penalty" in outcome.message


def test_generation_from_something_else_than_text_is_unavailable(tree: Tree) -> None:
    source = writer().replace("input_ids=None, **", "input_ids=None, pixel_values=None, **")
    outcome = tree.run(source, task=Task.GENERATE, cases=None)
    assert (outcome.kind, outcome.cause) == (OutcomeKind.UNAVAILABLE, UnavailableCause.UNKNOWN_INPUTS)
    assert "generates from pixel_values" in outcome.message


#: A small one with a case of its own.
WRITER_CASES = """
import torch
from transformers import LlamaConfig
from modeling_toy import Toy

def build(class_name, seed):
    sizes = dict(hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=1)
    model = Toy(LlamaConfig(**sizes, vocab_size=64, use_cache=False))
    return {"model": model, "inputs": {"input_ids": torch.ones(2, 4, dtype=torch.long)}}
"""


def test_all_graphs_of_a_case_are_traced_before_any_is_exported_where_a_twin_may_have_them(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("exported")

    def run(twin: Fingerprint | None, *graphs: str) -> Outcome:
        names = iter(graphs)
        monkeypatch.setattr(case, "program_fingerprint", lambda *_: next(names))
        return tree.run(writer(), cases=WRITER_CASES, task=Task.GENERATE, backend=Backend.ONNX, twin=twin)

    monkeypatch.setattr(case, "export_generation", fail)
    first = run(None)
    assert first.message == "exported"
    assert first.fingerprint is not None
    twin = first.fingerprint.model_copy(update={"graphs": ("prefill", "decode")})
    same = run(twin, "prefill", "decode")
    assert (same.kind, same.fingerprint) == (OutcomeKind.SKIPPED, twin)
    assert (tree.stages.count("trace"), tree.stages.count("decompose")) == (2, 0)
    other = run(twin, "another prefill")
    assert (other.message, other.fingerprint, tree.stages.count("trace")) == ("exported", first.fingerprint, 1)
    assert run(twin.model_copy(update={"eager": "other"})).message == "exported"


def test_the_repositorys_own_model_generates_too(tree: Tree) -> None:
    outcome = tree.run(writer(), cases=WRITER_CASES, task=Task.GENERATE)
    assert (outcome.kind, outcome.source) == (OutcomeKind.PASS, "repository")
    assert {component.outputs[0].shape[-1] for component in outcome.components} == {64}
    refused = tree.run(toy(), task=Task.GENERATE)
    assert (refused.kind, refused.error_type) == (OutcomeKind.ERROR, "HookError")
    assert "Toy cannot generate" in refused.message
