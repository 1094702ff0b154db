"""The source that asks a checkout's own model tests, on made-up checkouts."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from hfexport_bot.runner.sources import checkout_tests, testers
from hfexport_bot.runner.sources.cases import ModelCase, Unavailable, Wanted
from hfexport_bot.runner.sources.checkout_tests import case_from_tests, import_shared_tests
from hfexport_bot.schema import Census, OutcomeKind, Source, SourceTry, Task, UnavailableCause, Variant

ONE_TEST = "class ToyTest(Common, unittest.TestCase): pass"


def found(model_class: Any, root: Path, **keywords: Any) -> ModelCase:
    case = case_from_tests(Wanted(model_class, tests=root, **keywords))
    assert case is not None
    return case


def refused(model_class: Any, root: Path, **keywords: Any) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        case_from_tests(Wanted(model_class, tests=root, **keywords))
    return caught.value


def test_a_class_comes_from_the_test_class_that_tests_it_without_a_test_being_run(write_tests: Any, toy: Any) -> None:
    root = write_tests("""
        class OtherTest(Common, unittest.TestCase):
            all_model_classes = (Other,)

        class ToyTest(Common, unittest.TestCase):
            def test_forward(self):
                os._exit(3)

        class ToyIntegrationTest(unittest.TestCase):
            def setUp(self):
                os._exit(3)
    """)
    case = found(toy.Toy, root)
    assert type(case.model) is toy.Toy
    assert case.inputs["input_ids"].shape == (3, 7)
    assert case.inputs["attention_mask"].all()
    assert (case.source, case.origin, case.notes) == (Source.MODEL_TESTS, "ToyTest", ())
    assert case.tried == (SourceTry(source=Source.MODEL_TESTS, name="ToyTest"),)


def test_a_test_class_may_name_its_classes_when_it_is_set_up(write_tests: Any, toy: Any) -> None:
    root = write_tests("""
        class LateTest(Common, unittest.TestCase):
            all_model_classes = None

            def setUp(self):
                super().setUp()
                self.all_model_classes = [Other]
    """)
    assert found(toy.Other, root).origin == "LateTest"
    assert case_from_tests(Wanted(toy.Toy, tests=root)) is None


def test_without_tests_of_the_class_the_next_source_is_asked(write_tests: Any, toy: Any, tmp_path: Path) -> None:
    assert case_from_tests(Wanted(toy.Toy, tests=tmp_path)) is None
    root = write_tests(ONE_TEST)
    assert case_from_tests(Wanted(toy.Toy)) is None
    assert case_from_tests(Wanted(toy.Other, tests=root)) is None
    assert case_from_tests(Wanted(torch.nn.Linear, tests=root)) is None
    assert case_from_tests(Wanted(toy.Toy, tests=root, task=Task.GENERATE)) is None
    assert case_from_tests(Wanted(toy.Toy, tests=root, variant=Variant("eager_attention"))) is None


def test_seeds_give_one_case_each(write_tests: Any, toy: Any) -> None:
    root = write_tests(ONE_TEST)
    first, again, other = (found(toy.Toy, root, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.inputs["input_ids"], again.inputs["input_ids"])
    assert torch.equal(first.model.embed.weight, again.model.embed.weight)  # type: ignore[union-attr, arg-type]
    assert not torch.equal(first.inputs["input_ids"], other.inputs["input_ids"])


TWO_TESTS = """
    class BrokenTest(Common, unittest.TestCase):
        def setUp(self):
            raise ValueError("out of date")

    class ToyTest(Common, unittest.TestCase): pass

    class UnfitTest(Common, unittest.TestCase):
        def _prepare_for_class(self, inputs, model_class):
            return {"pixel_values": inputs["input_ids"]}
"""


def test_the_first_test_class_that_works_is_taken_and_the_others_before_it_are_told(write_tests: Any, toy: Any) -> None:
    case = found(toy.Toy, write_tests(TWO_TESTS))
    assert case.origin == "ToyTest"
    assert [(each.name, each.cause, each.message) for each in case.tried] == [
        ("BrokenTest", UnavailableCause.UNKNOWN_INPUTS, "BrokenTest.setUp fails: ValueError: out of date"),
        ("ToyTest", None, ""),
    ]


def test_a_survey_asks_every_test_class_for_an_eager_forward(write_tests: Any, toy: Any) -> None:
    case = found(toy.Toy, write_tests(TWO_TESTS), survey=True)
    assert case.origin == "ToyTest"
    assert [each.name for each in case.tried] == ["BrokenTest", "ToyTest", "UnfitTest"]
    assert case.tried[1].cause is None
    assert case.tried[2].message.startswith("UnfitTest makes what Toy does not run on: TypeError: Toy.forward()")


def test_a_skipped_test_class_is_asked_all_the_same_and_noted(write_tests: Any, toy: Any) -> None:
    root = write_tests("""
        @unittest.skip("needs two accelerators")
        class ToyTest(Common, unittest.TestCase): pass
    """)
    assert found(toy.Toy, root).notes == (
        "ToyTest is skipped as a test, and was asked all the same: needs two accelerators",
    )


@pytest.mark.parametrize(
    ("text", "cause", "message"),
    [
        (
            "def setUp(self): sys.exit(3)",
            UnavailableCause.UNKNOWN_INPUTS,
            "ToyTest.setUp fails: it exits (3)",
        ),
        (
            "def _prepare_for_class(self, inputs, model_class): exit('no more')",
            UnavailableCause.UNKNOWN_INPUTS,
            "ToyTest makes no Toy: it exits (no more)",
        ),
        (
            "def _prepare_for_class(self, inputs, model_class): raise RuntimeError('odd')",
            UnavailableCause.UNKNOWN_INPUTS,
            "ToyTest makes no Toy: RuntimeError: odd",
        ),
        (
            "def setUp(self): import pytest; pytest.skip('not today')",
            UnavailableCause.UNKNOWN_INPUTS,
            "ToyTest.setUp skips it: not today",
        ),
        (
            "def setUp(self): import no_such_package",
            UnavailableCause.MISSING_LIBRARY,
            "ToyTest.setUp fails: ModuleNotFoundError: No module named 'no_such_package'",
        ),
        (
            "def setUp(self): raise OSError('cannot reach https://huggingface.co: offline')",
            UnavailableCause.HUB_ACCESS,
            "ToyTest.setUp fails: OSError: cannot reach https://huggingface.co: offline",
        ),
        (
            "def setUp(self):\n        import socket\n        raise ValueError from socket.gaierror('no host')",
            UnavailableCause.HUB_ACCESS,
            "ToyTest.setUp fails: gaierror: no host",
        ),
        (
            "def setUp(self): raise MemoryError",
            UnavailableCause.TOO_BIG,
            "ToyTest.setUp fails: MemoryError",
        ),
        (
            "def setUp(self): torch.empty(1 << 60)",
            UnavailableCause.TOO_BIG,
            "ToyTest.setUp fails: RuntimeError: [enforce fail at alloc_cpu.cpp",
        ),
        (
            "def _prepare_for_class(self, inputs, _):\n        ToyConfig.width = 1 << 25\n        return inputs",
            UnavailableCause.TOO_BIG,
            "Toy would take 4.0 GiB in float32; the limit is 1.0 GiB",
        ),
    ],
)
def test_a_tester_that_misbehaves_costs_its_case_and_is_named(
    text: str, cause: UnavailableCause, message: str, write_tests: Any, toy: Any
) -> None:
    root = write_tests(f"class ToyTest(Common, unittest.TestCase):\n    {text}")
    error = refused(toy.Toy, root)
    assert error.cause is cause
    assert error.message.startswith(message)
    assert error.tried == (SourceTry(source=Source.MODEL_TESTS, name="ToyTest", cause=cause, message=error.message),)


@pytest.mark.parametrize(
    ("text", "cause", "message"),
    [
        ("def setUp(self:", UnavailableCause.UNKNOWN_INPUTS, "SyntaxError: "),
        ("exit(7)", UnavailableCause.UNKNOWN_INPUTS, "it exits (7)"),
        ("import no_such_package", UnavailableCause.MISSING_LIBRARY, "ModuleNotFoundError: No module named"),
        ("1 / 0", UnavailableCause.UNKNOWN_INPUTS, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_test_module_that_does_not_import_is_named(
    text: str, cause: UnavailableCause, message: str, write_tests: Any, toy: Any
) -> None:
    error = refused(toy.Toy, write_tests(f"{text}\n{ONE_TEST}"))
    assert error.cause is cause
    assert error.message.startswith(f"tests.models.toy.test_modeling_toy does not import: {message}")
    assert error.tried[0].name == "test_modeling_toy"


def test_what_tests_share_is_not_waited_for_without_end(
    write_tests: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout_tests, "MAX_SECONDS", 0.2)
    root = write_tests(ONE_TEST, tests__test_modeling_common="while True: pass")
    with pytest.raises(Unavailable, match=r"the model's tests are not done after 0\.2 s"):
        import_shared_tests(root)


def test_those_that_failed_before_are_told_and_not_asked(write_tests: Any, toy: Any) -> None:
    root, asked = write_tests(TWO_TESTS), []
    failed = SourceTry(source=Source.MODEL_TESTS, name="BrokenTest", cause=UnavailableCause.TIMEOUT, message="hangs")
    case = checkout_tests._ask(Wanted(toy.Toy, tests=root), {"BrokenTest": failed}, asked.append)
    assert case is not None
    assert case.tried == (failed, SourceTry(source=Source.MODEL_TESTS, name="ToyTest"))
    assert asked == ["test_modeling_toy", "ToyTest"]
    with pytest.raises(Unavailable) as caught:
        checkout_tests._ask(Wanted(toy.Toy, tests=root), {"test_modeling_toy": failed}, asked.append)
    assert caught.value.tried == (failed,)
    assert len(asked) == 2


def test_what_a_test_module_changes_for_the_process_is_put_back_and_noted(
    write_tests: Any, toy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HFEXPORT_KEPT", "1")
    folder, shown, path = Path.cwd(), list(warnings.filters), list(sys.path)
    root = write_tests(f"""
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        torch.manual_seed(7)
        torch.use_deterministic_algorithms(True)
        os.environ["HFEXPORT_ADDED"] = os.environ.pop("HFEXPORT_KEPT")
        os.chdir({str(tmp_path)!r})
        warnings.simplefilter("error")
        sys.path.insert(0, "/elsewhere")

        {ONE_TEST}
    """)
    case = found(toy.Toy, root)
    assert case.notes == (
        "importing tests.models.toy.test_modeling_toy changed what is the process's: default dtype, default device, "
        "grad mode, deterministic algorithms, torch's seed, environment variables, working folder (put back)",
    )
    assert case.model.embed.weight.device.type == "cpu"  # type: ignore[union-attr]
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert (os.environ["HFEXPORT_KEPT"], "HFEXPORT_ADDED" in os.environ) == ("1", False)
    assert (Path.cwd(), list(warnings.filters), sys.path) == (folder, shown, path)


def test_code_that_a_test_module_replaces_is_put_back_before_eager_is_judged(write_tests: Any, toy: Any) -> None:
    forward = torch.nn.Embedding.forward
    root = write_tests(f"""
        torch.nn.Embedding.forward = Toy.forward = lambda self, *_, **__: torch.zeros(1)

        {ONE_TEST}
    """)
    case = found(toy.Toy, root)
    what = "torch.nn.modules.sparse.Embedding.forward, transformers.models.toy.modeling_toy.Toy.forward"
    assert case.notes == (
        f"importing tests.models.toy.test_modeling_toy changed what is the process's: {what} (put back)",
    )
    assert torch.nn.Embedding.forward is forward
    assert case.model(**case.inputs)["hidden"].shape == (3, 7, 4)


def test_what_setting_up_changes_is_put_back_and_cleaned_up(write_tests: Any, toy: Any, tmp_path: Path) -> None:
    root = write_tests(f"""
        class ToyTest(Common, unittest.TestCase):
            def setUp(self):
                super().setUp()
                torch.set_default_dtype(torch.float64)
                self.addCleanup(open({str(tmp_path / "cleaned")!r}, "w").close)
    """)
    case = found(toy.Toy, root)
    assert case.notes == ("ToyTest changed what is the process's: default dtype (put back)",)
    assert (tmp_path / "cleaned").exists()
    assert torch.get_default_dtype() is torch.float32


def test_missing_extras_of_tests_are_stood_in_for_and_mixins_of_tests_left_out(write_tests: Any, toy: Any) -> None:
    root = write_tests(
        """
        import timeout_decorator
        from datasets import Audio, load_dataset
        from ...test_pipeline_mixin import PipelineTesterMixin

        class ToyTest(Common, PipelineTesterMixin, unittest.TestCase):
            @timeout_decorator.timeout(60)
            def test_forward(self): pass
        """,
        tests__test_pipeline_mixin="raise ValueError('imported for nothing')",
    )
    assert found(toy.Toy, root).origin == "ToyTest"
    assert not {"timeout_decorator", "datasets"} & set(sys.modules)


def test_a_tester_that_needs_a_missing_extra_says_so(write_tests: Any, toy: Any) -> None:
    root = write_tests("""
        from datasets import load_dataset

        class ToyTest(Common, unittest.TestCase):
            def setUp(self):
                load_dataset("samples")
    """)
    error = refused(toy.Toy, root)
    assert error.cause is UnavailableCause.MISSING_LIBRARY
    assert error.message.endswith("datasets.load_dataset is called, and datasets is not installed")


def test_another_package_of_that_name_is_not_taken_for_the_checkouts(
    write_tests: Any, toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tests(ONE_TEST)
    other = ModuleType("tests")
    other.__path__ = ["/elsewhere/tests"]
    monkeypatch.setitem(sys.modules, "tests", other)
    assert refused(toy.Toy, root).message == ("another package named tests is imported already, from /elsewhere/tests")


def test_what_tests_share_is_imported_once(write_tests: Any, toy: Any, tmp_path: Path) -> None:
    counted = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    root = write_tests(
        f"from ...test_modeling_common import torch\n{ONE_TEST}",
        tests__test_modeling_common=f"import torch\n{counted}",
    )
    import_shared_tests(root)
    found(toy.Toy, root)
    found(toy.Toy, root)
    assert (tmp_path / "count").read_text() == "x"


def test_a_checkout_without_tests_shares_none(tmp_path: Path) -> None:
    import_shared_tests(tmp_path)


def test_tests_of_one_model_ask_that_of_its_own_name_first(write_tests: Any, toy: Any) -> None:
    root = write_tests(ONE_TEST, tests__models__toy__test_modeling_a_toy="raise ValueError('asked too early')")
    assert found(toy.Toy, root).tried == (SourceTry(source=Source.MODEL_TESTS, name="ToyTest"),)


def test_a_model_that_cannot_be_counted_is_built(write_tests: Any, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testers, "MAX_BYTES", 8)
    root = write_tests(ONE_TEST)
    assert refused(toy.Toy, root).cause is UnavailableCause.TOO_BIG

    def init(self: Any, config: Any) -> None:
        torch.nn.Module.__init__(self)
        self.config = config
        assert float(torch.ones(1)) == 1  # which a tensor on the meta device cannot tell

    monkeypatch.setattr(toy.Toy, "__init__", init)
    assert found(toy.Toy, root).origin == "ToyTest"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif("HFEXPORT_CHECKOUT" not in os.environ, reason="HFEXPORT_CHECKOUT names no transformers checkout")
@pytest.mark.parametrize(("task", "least"), [("forward", 0.97), ("generate", 0.98)])
def test_nearly_all_that_a_checkout_tests_reaches_eager(task: str, least: float) -> None:
    options = ["--tree", os.environ["HFEXPORT_CHECKOUT"], "--source", "model tests", "--task", task, "--json"]
    command = [sys.executable, "-m", "hfexport_bot", "cases", *options, "--seconds", "900"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    census = Census.model_validate_json(said)
    tried = [each for entry in census.entries for each in entry.tried]
    assert len(tried) > (1_450 if task == "forward" else 250)
    failing = Counter(each.cause.value for each in tried if each.cause is not None)
    assert 1 - failing.total() / len(tried) >= least, failing
    passing = [entry for entry in census.entries if entry.outcome is OutcomeKind.PASS]
    assert max(entry.parameters or 0 for entry in passing) <= 5_000_000
