"""Definitions that a decorator or a base class puts into a table affect what reads the table."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout
from tests.hfexport_bot.changes.checkout import affected

MODEL = """from transformers import PreTrainedModel
{imports}
class {name}Model(PreTrainedModel):
    def forward(self, x):
        return {value}
"""
REGISTRY = """
TABLE = {}
LOG = []
def register(name):
    def decorate(found):
        TABLE[name] = found
        return found
    return decorate
def plain(found):
    TABLE[found.__name__] = found
    return found
def quiet(found):
    print(LOG)
    return found
class Registry:
    def __init__(self): self.found = {}
    def put(self, found):
        self.found[found.__name__] = found
        return found
    def get(self, name): return self.found[name]
KEPT = Registry()
class Base:
    table = {}
    def __init_subclass__(cls, **kwargs):
        Base.table[cls.__name__] = cls
"""


@pytest.mark.parametrize(
    ("definition", "value", "runs"),
    [
        ("@register('op')\ndef op(x): return 1", "TABLE[self.config.act](x)", True),
        ("@register('op')\ndef op(x): return 1", "TABLE['op'](x)", True),
        ("@register('op')\ndef op(x): return 1", "TABLE['other'](x)", False),
        ("@plain\ndef op(x): return 1", "TABLE['op'](x)", True),
        ("@quiet\ndef op(x): return 1", "LOG", False),
        ("@KEPT.put\ndef op(x): return 1", "KEPT.get('op')(x)", True),
        ("class Op(Base):\n    def forward(self, x): return 1", "Base.table[self.config.act]()(x)", True),
        ("@torch.library.custom_op('zoo::op')\ndef op(x): return 1", "torch.ops.zoo.op.default(x)", True),
        ("@torch.library.custom_op('zoo::op')\ndef op(x): return 1", "torch.ops.zoo.other(x)", False),
        ("class Op(Base):\n    def forward(self, x): return 1", "isinstance(x, Base)", False),
    ],
)
def test_what_reads_a_table_is_affected_by_what_is_in_it(definition: str, value: str, runs: bool) -> None:
    names = "TABLE, LOG, KEPT, Base, register, plain, quiet"
    base = {
        "zoo/registry.py": REGISTRY,
        "zoo/ops.py": f"from .registry import {names}\n{definition}\n",
        "zoo/modeling_a.py": MODEL.format(
            name="A", imports=f"from . import ops\nfrom .registry import {names}", value=value
        ),
        "zoo/modeling_b.py": MODEL.format(name="B", imports="from . import ops", value="x"),
    }
    head = {**base, "zoo/ops.py": base["zoo/ops.py"].replace("return 1", "return 2")}
    change = FileChange("zoo/ops.py", "zoo/ops.py")
    selection = select([change], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == ({"AModel"} if runs else set())
