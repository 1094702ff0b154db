"""Definitions that a decorator, a base class or a call puts into a table affect what reads the table."""

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


TABLES = """
class Registry(dict):
    found = {}
    @classmethod
    def register(cls, name, put): cls.found[name] = put
REG, TABLE, LOG = Registry(), {}, []
def keep(name, put): TABLE[name] = put
def get(name): return TABLE[name]
"""
FILLING = "from .ops import op\nfrom . import tables\nfrom .tables import *\n{fill}\n"


@pytest.mark.parametrize("edited", ["zoo/ops.py", "zoo/filling.py"])
@pytest.mark.parametrize(
    ("fill", "value"),
    [
        ("TABLE.update(a=op)", "TABLE['a'](x)"),
        ("TABLE.update({'a': op})", "get(self.kind)(x)"),
        ("TABLE.update([('a', op)])", "TABLE[self.kind](x)"),
        ("TABLE.setdefault('a', op)", "TABLE['a'](x)"),
        ("TABLE.setdefault(KEY, op)", "TABLE['a'](x)"),
        ("TABLE.update({KEY: op})", "TABLE['a'](x)"),
        ("TABLE['a'] = op", "TABLE['a'](x)"),
        ("from .tables import TABLE\nTABLE |= {'a': op}", "TABLE['a'](x)"),
        ("tables.TABLE.update(a=op)", "TABLE['a'](x)"),
        ("tables.keep('a', op)", "TABLE['a'](x)"),
        ("keep('a', op)", "TABLE['a'](x)"),
        ("from .tables import TABLE\ndef fill():\n    TABLE['a'] = op\nfill()", "TABLE['a'](x)"),
        ("class Plugin:\n    TABLE.update(a=op)", "TABLE['a'](x)"),
        ("REG.register('a', op)", "REG.get(self.kind)(x)"),
        ("_ = Registry.register('a', op)", "REG.get(self.kind)(x)"),
        ("LOG.append(op)", "LOG[0](x)"),
        ("LOG.extend([op])", "LOG[0](x)"),
        ("from .tables import LOG\nLOG += [op]", "LOG[0](x)"),
        ("for each in (op,):\n    LOG.append(each)", "LOG[0](x)"),
        ("setattr(REG, 'a', op)", "REG.a(x)"),
    ],
)
def test_a_table_that_another_file_fills_by_a_call(fill: str, value: str, edited: str) -> None:
    base = {
        "zoo/tables.py": TABLES,
        "zoo/ops.py": "def op(x): return 1\n",
        "zoo/filling.py": FILLING.format(fill=fill),
        "zoo/modeling_a.py": MODEL.format(
            name="A", imports="from . import filling\nfrom .tables import *", value=value
        ),
        "zoo/modeling_b.py": MODEL.format(name="B", imports="from .tables import *", value=value),
    }
    texts = {"zoo/ops.py": "def op(x): return 2\n", "zoo/filling.py": FILLING.format(fill="")}
    head = {**base, edited: texts[edited]}
    selection = select([FileChange(edited, edited)], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == {"AModel"}, "B loads nothing that fills the table"


@pytest.mark.parametrize("fill", ["TABLE.update(a=op)", "TABLE.setdefault('a', op)"])
def test_an_entry_that_a_call_puts_in_is_not_what_looks_another_up(fill: str) -> None:
    base = {
        "zoo/tables.py": TABLES,
        "zoo/ops.py": "def op(x): return 1\n",
        "zoo/filling.py": FILLING.format(fill=fill),
        "zoo/modeling_a.py": MODEL.format(
            name="A", imports="from . import filling\nfrom .tables import TABLE", value="TABLE['b']"
        ),
    }
    head = {**base, "zoo/ops.py": "def op(x): return 2\n"}
    change = FileChange("zoo/ops.py", "zoo/ops.py")
    selection = select([change], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == set()


def test_what_is_registered_with_transformers_affects_all_that_loads_the_file() -> None:
    attention = (
        "from transformers import AttentionInterface\ndef op(x): return 1\nAttentionInterface.register('a', op)\n"
    )
    base = {
        "zoo/attention.py": attention,
        "zoo/modeling_a.py": MODEL.format(name="A", imports="from . import attention", value="x"),
        "zoo/modeling_b.py": MODEL.format(name="B", imports="", value="x"),
    }
    head = {**base, "zoo/attention.py": attention.replace("return 1", "return 2")}
    change = FileChange("zoo/attention.py", "zoo/attention.py")
    selection = select([change], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == {"AModel"}


HOOKED = "from .reg import HOOKS\ndef hook(x): return x\nHOOKS.append(hook)\n"
ACTS = "from . import reg\nreg.KIND.scale = 2\n"
QUIET = "SCALE = 2\n"
OTHER = "from .reg import HOOKS\nHOOKS.append(abs)\n"


@pytest.mark.parametrize(
    ("path", "old", "new", "module", "expected"),
    [
        ("zoo/__init__.py", "from . import more\n", "", HOOKED, {"AModel"}),
        ("zoo/__init__.py", "", "from . import more\n", HOOKED, {"AModel"}),
        ("zoo/__init__.py", "from . import more\n", "", ACTS, {"AModel", "BModel"}),
        ("zoo/__init__.py", "from . import more\n", "", QUIET, set()),
        ("zoo/modeling_a.py", "from . import more\n", "", HOOKED, {"AModel"}),
        ("zoo/modeling_b.py", "from . import more\n", "", HOOKED, set()),
        ("zoo/modeling_a.py", "from . import more\n", "from . import through\n", HOOKED, set()),
        ("zoo/modeling_a.py", "if 1:\n    from . import more\n", "if 2:\n    from . import more\n", HOOKED, {"AModel"}),
        (
            "zoo/modeling_a.py",
            "from . import more\n",
            "if TYPE_CHECKING:\n    from . import more\n",
            HOOKED,
            {"AModel"},
        ),
        ("zoo/modeling_a.py", "import zoo.more, zoo.other\n", "import zoo.other, zoo.more\n", HOOKED, {"AModel"}),
        ("zoo/modeling_a.py", "import zoo.more, zoo.other\n", "import zoo.other, zoo.more\n", QUIET, set()),
    ],
)
def test_an_import_that_is_there_for_what_it_does(
    path: str, old: str, new: str, module: str, expected: set[str]
) -> None:
    files = {
        "zoo/__init__.py": "",
        "zoo/reg.py": "HOOKS = []\nclass KIND: pass\n",
        "zoo/more.py": module,
        "zoo/other.py": OTHER,
        "zoo/through.py": "from . import more\n",
        "zoo/modeling_a.py": MODEL.format(name="A", imports="from .reg import HOOKS", value="HOOKS[0](x)"),
        "zoo/modeling_b.py": MODEL.format(name="B", imports="", value="x"),
    }
    sides = [MappingTree({**files, path: text + files[path]}) for text in (old, new)]
    assert affected(select([FileChange(path, path)], *sides, Layout.MODELING)) == expected


def test_an_import_for_what_it_does_counts_once_where_another_loaded_file_has_it_too() -> None:
    files = {
        "zoo/__init__.py": "from . import more\n",
        "zoo/reg.py": "HOOKS = []\n",
        "zoo/more.py": HOOKED,
        "zoo/modeling_a.py": MODEL.format(name="A", imports="from .reg import HOOKS", value="HOOKS[0](x)"),
    }
    path = "zoo/modeling_a.py"
    sides = [MappingTree({**files, path: text + files[path]}) for text in ("from . import more\n", "")]
    assert not select([FileChange(path, path)], *sides, Layout.MODELING).affected


OPERATORS = "import torch\nLIB = torch.library.Library('zoo', 'DEF')\ndef op(x): return 1\n"


@pytest.mark.parametrize(
    ("code", "runs"),
    [
        (OPERATORS + "LIB.impl('op', op, 'CPU')\n", True),
        (OPERATORS + "torch.library.impl('zoo::op', 'default', op)\n", True),
        (OPERATORS.replace("def op", "@torch.library.impl(LIB, 'op', 'CPU')\ndef op"), True),
        ("import torch\ndef op(x): return 1\ntorch.nn.modules.module.register_module_forward_hook(op)\n", True),
        ("import operator\nTABLE = {}\ndef op(x): return 1\noperator.setitem(TABLE, 'op', op)\n", True),
        (OPERATORS + "LIB.define('op(Tensor x) -> Tensor')\n", False),
        ("import functools\n@functools.lru_cache\ndef op(x): return 1\n", False),
        ("import logging\nlogger = logging.getLogger()\ndef op(x): return 1\nlogger.info(op)\n", False),
        ("def op(x): return 1\nprint(op)\n", False),
        ("from others import wrap\n@wrap('op')\ndef op(x): return 1\n", False),
        ("from others import register_op\n@register_op('op')\ndef op(x): return 1\n", True),
        ("import collections\nOPS = collections.deque()\ndef op(x): return 1\nOPS.appendleft(op)\n", False),
    ],
)
def test_what_code_of_others_is_handed_affects_what_loads_the_file(code: str, runs: bool) -> None:
    base = {
        "zoo/ops.py": code,
        "zoo/modeling_a.py": MODEL.format(name="A", imports="from . import ops\n", value="x"),
        "zoo/modeling_b.py": MODEL.format(name="B", imports="", value="x"),
    }
    head = {**base, "zoo/ops.py": code.replace("return 1", "return 2")}
    selection = select([FileChange("zoo/ops.py", "zoo/ops.py")], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == ({"AModel"} if runs else set())


@pytest.mark.parametrize(
    "fill",
    [
        "others = LOG\nothers.append(op)",
        "_ = [LOG.append(each) for each in (op,)]",
        "TABLE.update({name: each for name, each in globals().items() if name == 'op'})",
    ],
)
def test_a_table_that_is_filled_by_another_name_or_for_each(fill: str) -> None:
    base = {
        "zoo/registry.py": REGISTRY,
        "zoo/ops.py": f"from .registry import LOG, TABLE\ndef op(x): return 1\n{fill}\n",
        "zoo/modeling_a.py": MODEL.format(
            name="A", imports="from . import ops\nfrom .registry import LOG, TABLE\n", value="LOG, TABLE[self.kind]"
        ),
        "zoo/modeling_b.py": MODEL.format(name="B", imports="from . import ops\n", value="x"),
    }
    head = {**base, "zoo/ops.py": base["zoo/ops.py"].replace("return 1", "return 2")}
    selection = select([FileChange("zoo/ops.py", "zoo/ops.py")], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == {"AModel"}
