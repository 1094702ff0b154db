"""Model classes whose base is in another file of the repository."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.selection import Selection
from hfexport_bot.changes.targets import every_model, resolve_targets
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.errors import UsageError
from hfexport_bot.schema import Layout

BASE = """
from transformers import PreTrainedModel
class FooPre(PreTrainedModel):
    def _init_weights(self, module): pass
"""
MODEL = """
{how}
class FooModel({base}):
    def forward(self, x): return x + 1
class FooHead(FooModel):
    pass
"""
WAYS = [
    ("", "modeling_base.py", "from modeling_base import FooPre", "FooPre"),
    ("", "base.py", "import base", "base.FooPre"),
    ("zoo/", "zoo/modeling_base.py", "from .modeling_base import FooPre as Pre", "Pre"),
    ("zoo/", "zoo/base.py", "from . import base as b", "b.FooPre"),
    ("zoo/", "zoo/foo_pre.py", "from .foo_pre import *", "FooPre"),
    ("zoo/", "zoo/foo_pre.py", "from zoo.foo_pre import FooPre", "FooPre"),
    ("zoo/", "zoo/core/pre.py", "from .core import FooPre", "FooPre"),
]


def _select(files: dict[str, str], path: str, *edit: str) -> Selection:
    head = {**files, path: files[path].replace(*edit)} if edit else files
    base = files if edit else {name: text for name, text in files.items() if name != path}
    change = FileChange(path if edit else None, path)
    return select([change], MappingTree(base), MappingTree(head), Layout.MODELING)


def _affected(selection: Selection) -> list[str]:
    return [name for module in selection.affected for name in module.head_classes]


@pytest.mark.parametrize(("folder", "base", "how", "written"), WAYS)
def test_a_base_in_another_file_makes_a_model(folder: str, base: str, how: str, written: str) -> None:
    path = f"{folder}modeling_foo.py"
    files = {base: BASE, path: MODEL.format(how=how, base=written)}
    if "/core/" in base:
        files["zoo/core/__init__.py"] = "from .pre import FooPre\n"
    assert _affected(_select(files, path, "x + 1", "x + 2")) == ["FooModel", "FooHead"]
    assert _affected(_select(files, base, "pass", "module.x = 1")) == ["FooModel", "FooHead"]
    assert _affected(_select(files, path)) == ["FooModel", "FooHead"]
    (target,) = resolve_targets([path], MappingTree(files), Layout.MODELING)
    assert target.head_classes == ("FooModel", "FooHead")
    assert "FooModel" in [
        name for module in every_model(MappingTree(files), Layout.MODELING)[0] for name in module.classes
    ]


def test_a_forward_in_another_file_is_inherited_and_generate_too() -> None:
    base = """
from transformers import GenerationMixin, PreTrainedModel
class Pre(PreTrainedModel, GenerationMixin):
    def forward(self, x): return x
"""
    files = {"pre.py": base, "modeling_foo.py": "from pre import Pre\nclass Foo(Pre): pass\n"}
    selection = _select(files, "pre.py", "return x", "return -x")
    assert _affected(selection) == ["Foo"]
    assert selection.affected[0].head_generating == ("Foo",)


def test_a_plain_module_or_a_circle_in_another_file_makes_none() -> None:
    plain = "from torch import nn\nclass Pre(nn.Module): pass\n"
    circle = "from modeling_foo import Foo as Pre\n"
    for base in (plain, circle):
        files = {
            "pre.py": base,
            "modeling_foo.py": "from pre import Pre\nclass Foo(Pre):\n    def forward(self): return 1\n",
        }
        assert _affected(_select(files, "modeling_foo.py", "return 1", "return 2")) == []
        with pytest.raises(UsageError, match="no model class"):
            resolve_targets(["modeling_foo.py"], MappingTree(files), Layout.MODELING)
