"""Configurations that select models which do not name them, in a repository of its own models."""

from __future__ import annotations

import json

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout

CONFIG = "class CatConfig(PretrainedConfig):\n    def __init__(self, size={}): self.size = size\n"
OTHER = "class Other(PreTrainedModel):\n    def forward(self): pass\n"
PLAIN = OTHER + "class CatModel(PreTrainedModel):\n    def forward(self): pass\n"
HINTED = "{}\n" + OTHER + "class CatModel(PreTrainedModel):\n    {}\n    def forward(self): pass\n"
IMPORT = "from .configuration_cat import CatConfig"
GUARDED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .configuration_cat import CatConfig"
AUTO_MAP = {"AutoConfig": "configuration_cat.CatConfig", "AutoModel": "modeling_cat.CatModel"}


def selected(files: dict[str, str]) -> dict[str, str]:
    base = {"zoo/configuration_cat.py": CONFIG.format(1), "zoo/modeling_cat.py": PLAIN, **files}
    head = {**base, "zoo/configuration_cat.py": CONFIG.format(2)}
    path = "zoo/configuration_cat.py"
    found = select([FileChange(path, path)], MappingTree(base), MappingTree(head), Layout.MODELING)
    return {name: module.reason_of(name) for module in found.affected for name in module.classes}


REASON = "CatConfig.__init__ changed in configuration_cat.py → CatModel"


@pytest.mark.parametrize(
    "files",
    [
        {"zoo/__init__.py": f"{IMPORT}\nfrom .modeling_cat import CatModel\nAutoModel.register(CatConfig, CatModel)"},
        {
            "register.py": "import zoo.configuration_cat as c\nfrom zoo.modeling_cat import CatModel\n"
            "def setup():\n    AutoModel.register(config_class=c.CatConfig, model_class=CatModel)"
        },
        {"zoo/config.json": json.dumps({"auto_map": AUTO_MAP})},
        {"zoo/config.json": json.dumps({"auto_map": {key: f"me/cat--{name}" for key, name in AUTO_MAP.items()}})},
        {"zoo/modeling_cat.py": HINTED.format(IMPORT, "config_class = CatConfig")},
        {"zoo/modeling_cat.py": HINTED.format(IMPORT, "config: CatConfig")},
        {"zoo/modeling_cat.py": HINTED.format(GUARDED, 'config: "CatConfig"')},
        {"zoo/modeling_cat.py": HINTED.format(GUARDED, 'def __init__(self, config: "CatConfig | None"): pass')},
        {"zoo/modeling_cat.py": HINTED.format(IMPORT, "def _init_weights(self, config: CatConfig): pass")},
    ],
)
def test_a_configuration_selects_the_class_it_is_for(files: dict[str, str]) -> None:
    assert selected(files) == {"CatModel": REASON}


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"zoo/__init__.py": f"{IMPORT}\nAutoConfig.register('cat', CatConfig)"},
        {"zoo/__init__.py": "def broken(:\n    x.register(CatConfig, CatModel)"},
        {"zoo/config.json": "no json"},
        {"zoo/config.json": json.dumps({"auto_map": {"AutoConfig": "elsewhere.CatConfig", "AutoModel": ["a", "b"]}})},
        {"other/config.json": json.dumps({"auto_map": AUTO_MAP})},
    ],
)
def test_what_ties_no_class_to_it_selects_none(files: dict[str, str]) -> None:
    assert selected(files) == {}


def test_a_base_of_the_configuration_selects_it_too() -> None:
    files = {
        "zoo/base.py": "x = 1",
        "zoo/configuration_cat.py": "class Base(PretrainedConfig): pass\nclass CatConfig(Base): pass",
        "zoo/config.json": json.dumps({"auto_map": AUTO_MAP}),
        "zoo/modeling_cat.py": PLAIN,
    }
    head = {
        **files,
        "zoo/configuration_cat.py": "class Base(PretrainedConfig):\n    y = 1\nclass CatConfig(Base): pass",
    }
    path = "zoo/configuration_cat.py"
    found = select([FileChange(path, path)], MappingTree(files), MappingTree(head), Layout.MODELING)
    assert [module.classes for module in found.affected] == [("CatModel",)]
    assert found.not_run == ()
