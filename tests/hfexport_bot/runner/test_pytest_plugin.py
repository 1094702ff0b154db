"""The plugin as a model author meets it: pytest on a file of models and their tests."""

from __future__ import annotations

import importlib
import tomllib
import unittest
from collections.abc import Iterable
from pathlib import Path

import pytest

from hfexport_bot.runner.model_tests import Finding
from hfexport_bot.runner.pytest_plugin import FAMILIES, with_export_checks

pytest_plugins = ["pytester"]

PLUGIN = "hfexport_bot.runner.pytest_plugin"
#: The plugin of this tree, not that of an installed package.
LOAD = ("-p", "no:hfexport-bot", "-p", PLUGIN)

MODELS = """
import unittest
import torch
from torch import nn
from exporters.utils import register_export_skip

class Config:
    pad_token_id = 0

class Toy(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(32, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, input_ids, attention_mask):
        counts = attention_mask.to(torch.float32)[..., None]
        x = self.embed(input_ids)
        mean = (x * counts).sum(1, keepdim=True) / self.total(counts)
        return {"logits": self.out(torch.tanh(x + mean))}

    def total(self, counts):
        return counts.sum(1, keepdim=True)

class Baked(Toy):  # right as long as sequences have the length of the traced one
    def total(self, counts):
        return 7 if torch.compiler.is_exporting() else super().total(counts)

class Branching(Toy):
    def total(self, counts):
        return 7 if counts.sum() > 21 else super().total(counts)

class Drawing(Toy):
    def total(self, counts):
        return super().total(counts) + torch.rand(1)

class Skipped(Toy):
    pass

register_export_skip("hangs", "Skipped", backend="dynamo", reason="It hangs.", model_change="end the loop")

class Tester:
    def prepare_config_and_inputs_for_common(self):
        ids = torch.randint(1, 32, (3, 7))
        return Config(), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}

class ToyTest(unittest.TestCase):
    all_model_classes = (Toy, Baked, Branching, Drawing, Skipped)

    def setUp(self):
        self.model_tester = Tester()

    def test_torch_export(self):
        print("the author's own")
"""


@pytest.fixture(autouse=True)
def _mark(pytestconfig: pytest.Config) -> None:
    pytestconfig.addinivalue_line("markers", "export_check: the plugin's, which need not be loaded here")


@pytest.mark.process
@pytest.mark.export
def test_models_export_fail_and_skip_with_their_reasons(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_modeling_toy=MODELS)
    done = pytester.runpytest_subprocess(*LOAD, "--export-checks", "-rs", "-v", "-k", "test_torch_export")
    done.assert_outcomes(passed=2, failed=2, skipped=2)
    done.stdout.fnmatch_lines_random(
        [
            "*ToyTest::test_torch_export PASSED*",
            "*ToyTest::test_torch_export[[]Toy-dynamic[]]*PASSED*",
            "test_modeling_toy/Baked/dynamo/dynamic/forward: parity in stage parity: "
            "probe pad_right: logits: 25 of 95 elements differ, by up to *",
            "model, largest error of each output as traced: logits 0",
            "model, probes, with theirs: batch_1 pass 0, batch_4 pass 0, pad_right parity *, length_9 parity *",
            "test_modeling_toy/Branching/dynamo/dynamic/forward: error in stage trace at test_modeling_toy.py:31: "
            "GuardOnDataDependentSymNode: *",
            "SKIPPED * test_modeling_toy/Drawing/dynamo/dynamic/forward: nondeterministic in stage eager: "
            "eager draws random numbers: another seed gives other outputs",
            "SKIPPED * test_modeling_toy/Skipped/dynamo/dynamic/forward: skipped in stage source: "
            "It hangs. Skipped by dynamo/source/hangs until the model changes: end the loop",
        ]
    )
    done.stdout.no_fnmatch_line("*Captured log*")
    done.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.process
def test_nothing_happens_and_nothing_is_imported_unless_it_is_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys, unittest

        class ToyTest(unittest.TestCase):
            all_model_classes = (int,)

            def test_own(self):
                heavy = {"torch", "transformers", "exporters", "pydantic", "hfexport_bot.schema"}
                assert not heavy & set(sys.modules)
        """
    )
    done = pytester.runpytest_subprocess(*LOAD, "-v", "--strict-markers")
    done.assert_outcomes(passed=1)


@pytest.mark.process
def test_the_ini_setting_asks_for_it_and_the_mark_selects_it(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nexport_checks = true\n")
    pytester.makepyfile(test_modeling_toy=MODELS)
    done = pytester.runpytest_subprocess(*LOAD, "--export-shapes", "both", "--co", "-q", "-m", "export_check")
    names = [line.rpartition("::")[2] for line in done.outlines if "::" in line]
    classes = ("Toy", "Baked", "Branching", "Drawing", "Skipped")
    assert sorted(names) == sorted(
        f"test_{backend}_export[{model}-{shapes}]"
        for backend in ("torch", "onnx", "executorch")
        for model in classes
        for shapes in ("dynamic", "static")
    )


class Speaker:
    @classmethod
    def can_generate(cls) -> bool:
        return True


class Silent(Speaker):
    @classmethod
    def can_generate(cls) -> bool:
        return False


def _own(test_class: type) -> set[str]:
    return {name for name in vars(test_class) if name.startswith("test_")}


def _families(classes: Iterable[str], ending: str = "") -> set[str]:
    return {f"{name}[{model}-dynamic]" for name in FAMILIES if name.endswith(ending) for model in classes}


def _checked(test_class: type[unittest.TestCase]) -> type:
    return with_export_checks(test_class, ("dynamic",), root="")


def test_classes_may_be_told_by_set_up_only_and_generate_is_for_those_that_can() -> None:
    class LateTest(unittest.TestCase):
        all_model_classes = None

        def setUp(self) -> None:
            self.all_model_classes = (Speaker, Silent)  # type: ignore[assignment]

        def prepare_config_and_inputs_for_generate(self) -> None: ...

        def test_own(self) -> None: ...

    checked = _checked(LateTest)
    assert _own(checked) == _families(["Speaker", "Silent"], "export") | _families(["Speaker"], "generate")
    assert (checked.__name__, checked.__module__, checked.__bases__) == ("LateTest", __name__, (LateTest,))
    assert _own(LateTest) == {"test_own"}


def test_a_set_up_that_works_in_a_test_only_has_the_check_of_all_classes_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class ClassWideTest(unittest.TestCase):
        all_model_classes: tuple[type, ...] = ()
        ready = False

        @classmethod
        def setUpClass(cls) -> None:
            cls.ready = True

        def setUp(self) -> None:
            assert self.ready
            self.all_model_classes = (Speaker, Silent)

    checked = _checked(ClassWideTest)
    assert _own(checked) == set(FAMILIES)
    asked = []

    def check_model(test_case: unittest.TestCase, model_class: type, *case: str, root: str) -> Finding:
        asked.append((model_class, *case))
        return Finding(model_class is Silent, False, "off by 0.3")

    monkeypatch.setattr("hfexport_bot.runner.model_tests.check_model", check_model)
    found = unittest.TestResult()
    unittest.TestSuite([checked("test_onnx_export")]).run(found)
    assert asked == [(Speaker, "onnx", "dynamic", "forward"), (Silent, "onnx", "dynamic", "forward")]
    ((test, text),) = found.errors
    assert "[Speaker] (shapes='dynamic')" in str(test)
    assert "off by 0.3" in text


def test_the_installed_package_names_the_plugin() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (path,) = project["entry-points"]["pytest11"].values()
    assert path == PLUGIN
    assert importlib.import_module(path).pytest_addoption
