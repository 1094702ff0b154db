"""Made-up checkouts: a model of transformers, and tests of it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

#: A model with a configuration, as transformers has them, and as small as can be.
MODEL = """
import torch
from torch import nn

class ToyConfig:
    use_cache = True
    pad_token_id = 0
    width = 4

class Toy(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(32, config.width)

    def forward(self, input_ids, attention_mask=None):
        return {"hidden": self.embed(input_ids)}

    @classmethod
    def can_generate(cls):
        return False

class Other(Toy):
    pass
"""

#: How a checkout's test module begins, with a tester and a test class to build on.
TESTS = """
import os, sys, unittest, warnings
import torch
from transformers.models.toy.modeling_toy import Other, Toy, ToyConfig

class ToyTester:
    def __init__(self, parent, batch_size=3, seq_length=7):
        self.batch_size = batch_size
        self.seq_length = seq_length

    def prepare_config_and_inputs_for_common(self):
        ids = torch.randint(1, 32, (self.batch_size, self.seq_length))
        return ToyConfig(), {"input_ids": ids, "attention_mask": torch.tril(torch.ones_like(ids))}

class Common:
    all_model_classes = (Toy,)

    def setUp(self):
        self.model_tester = ToyTester(self)
"""

WriteTests = Callable[..., Path]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module ``transformers.models.toy.modeling_toy``, with ``Toy`` and ``Other``."""
    name = "transformers.models.toy.modeling_toy"
    package, module = ModuleType("transformers.models.toy"), ModuleType(name)
    package.__path__ = []
    exec(MODEL, vars(module))
    for each in (package, module):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    return module


@pytest.fixture
def write_tests(tmp_path: Path, toy: ModuleType) -> Iterator[WriteTests]:
    """Writes a checkout whose test module of ``Toy`` is `TESTS` and then the given text; other files by their path.

    Modules of the name ``tests`` are put aside meanwhile, and forgotten afterwards.
    """
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "tests"}
    for name in ours:
        del sys.modules[name]

    def write(text: str = "", **files: str) -> Path:
        found = {"tests/models/toy/test_modeling_toy": TESTS + textwrap.dedent(text)}
        found |= {name.replace("__", "/"): textwrap.dedent(content) for name, content in files.items()}
        for name, content in found.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            for folder in path.relative_to(tmp_path).parents[:-1]:
                (tmp_path / folder / "__init__.py").touch()
        return tmp_path

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.modules.update(ours)
