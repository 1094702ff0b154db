"""A checkout whose own model tests misbehave, in a real runner: what that costs, and what is left of it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from hfexport_bot.execution.client import run_cases
from hfexport_bot.schema import (
    Backend,
    CaseId,
    CaseRequest,
    Layout,
    Limits,
    Outcome,
    OutcomeKind,
    RunnerSetup,
    Shapes,
    Task,
    UnavailableCause,
)

pytestmark = pytest.mark.process

#: A transformers of which only the models are the checkout's own.
PACKAGE = """
from importlib import import_module

__version__ = "9.9"
__path__.append({folder!r})

def __getattr__(name):
    for module in ("configuration_utils", "modeling_utils", "generation", "cache_utils", "utils"):
        if not name.startswith("_") and hasattr(found := import_module("transformers." + module), name):
            return getattr(found, name)
    raise AttributeError(name)
"""

MODEL = """
import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel

class ToyConfig(PreTrainedConfig):
    model_type = "toy"
    vocab_size: int = 32
    hidden_size: int = 8

class Toy(PreTrainedModel):
    config_class = ToyConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def forward(self, input_ids):
        return {"hidden": self.embed(input_ids)}

class Stuck(Toy): pass
class StuckToo(Toy): pass
class Gone(Toy): pass
"""

TESTS = """
import os, tempfile, time, unittest
import torch
from transformers.models.toy.modeling_toy import Gone, Stuck, StuckToo, Toy, ToyConfig

torch.nn.Embedding.forward = lambda self, ids: torch.zeros(*ids.shape, 8)

class Tester:
    def __init__(self): self.batch_size, self.seq_length = 3, 7
    def prepare_config_and_inputs_for_common(self):
        return ToyConfig(), {"input_ids": torch.randint(1, 32, (self.batch_size, self.seq_length))}

class ToyTest(unittest.TestCase):
    all_model_classes = (Toy,)
    def setUp(self):
        open("beside.txt", "w").close()
        tempfile.mkstemp()
        self.model_tester = Tester()

class StuckTest(unittest.TestCase):
    all_model_classes = (Stuck, StuckToo)
    def setUp(self):
        while True:
            try: time.sleep(60)
            except BaseException: pass

class GoneTest(unittest.TestCase):
    all_model_classes = (Gone,)
    def setUp(self): os._exit(3)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    spec = find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent
    files = {
        "src/transformers/__init__.py": PACKAGE.format(folder=str(installed)),
        "src/transformers/models/__init__.py": PACKAGE.format(folder=str(installed / "models")),
        "src/transformers/models/toy/__init__.py": "",
        "src/transformers/models/toy/modeling_toy.py": MODEL,
        "tests/__init__.py": "",
        "tests/models/__init__.py": "",
        "tests/models/toy/__init__.py": "",
        "tests/models/toy/test_modeling_toy.py": TESTS,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(scope="module")
def files_before(checkout: Path) -> set[Path]:
    return set(checkout.rglob("*"))


@pytest.fixture(scope="module")
def outcomes(checkout: Path, files_before: set[Path]) -> dict[str, Outcome]:
    limits = Limits(wall_seconds=12.0)
    setup = RunnerSetup(layout=Layout.TRANSFORMERS, tree=str(checkout), limits=limits)
    names = ("Toy", "Stuck", "StuckToo", "Gone")
    ids = [
        CaseId(model="toy", class_name=name, backend=Backend.DYNAMO, shapes=Shapes.DYNAMIC, task=Task.FORWARD)
        for name in names
    ]
    module = "transformers.models.toy.modeling_toy"
    result = run_cases(setup, [CaseRequest(id=id_, module=module, survey=True) for id_ in ids])
    assert result.fatal == ""
    return {id_.class_name: result.outcomes[id_] for id_ in ids}


def test_a_patch_at_import_is_put_back_before_eager_and_noted(outcomes: dict[str, Outcome]) -> None:
    toy = outcomes["Toy"]
    assert (toy.kind, toy.source) == (OutcomeKind.PASS, "model tests: ToyTest")
    who = "importing tests.models.toy.test_modeling_toy"
    changed = "torch.nn.modules.sparse.Embedding.forward"
    assert toy.notes == (f"{who} changed what is the process's: {changed} (put back)",)


def test_a_tester_that_hangs_costs_one_try_once(outcomes: dict[str, Outcome]) -> None:
    stuck, stuck_too = outcomes["Stuck"], outcomes["StuckToo"]
    assert (stuck.kind, stuck.source) == (stuck_too.kind, stuck_too.source) == (OutcomeKind.PASS, "synthesised")
    first, again = stuck.tried[0], stuck_too.tried[0]
    assert (first.name, first.cause, first.message) == (
        "StuckTest",
        UnavailableCause.TIMEOUT,
        "StuckTest is not done after 4 s",
    )
    assert again.message == f"{first.message}, found by another case"
    assert stuck.seconds > 4.0 > stuck_too.seconds


def test_a_tester_that_ends_its_process_costs_one_try(outcomes: dict[str, Outcome]) -> None:
    gone = outcomes["Gone"]
    assert (gone.kind, gone.source) == (OutcomeKind.PASS, "synthesised")
    assert gone.tried[0].message == "GoneTest ends its process, with code 3"
    assert gone.notes == ()


def test_nothing_is_written_into_the_checkout(
    outcomes: dict[str, Outcome], checkout: Path, files_before: set[Path]
) -> None:
    assert outcomes["Toy"].kind is OutcomeKind.PASS
    assert set(checkout.rglob("*")) == files_before
