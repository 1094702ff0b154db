"""Names and modules that code chooses at run time: the whole of a module may be used."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout
from tests.hfexport_bot.changes.checkout import FILES, SRC, TOY, affected, not_run, run

MODEL = """import importlib
from transformers import PreTrainedModel
{imports}
class AModel(PreTrainedModel):
    def forward(self, x):
        return {value}
"""
OPS = """
def op(x): return 1
def get(name): return globals()[name]
def named(): return globals()['op']
def other(): pass
"""


@pytest.mark.parametrize(
    ("imports", "value", "runs"),
    [
        ("", "importlib.import_module('zoo.ops_fast').op(x)", True),
        ("", "importlib.import_module('.ops_fast', __package__).op(x)", True),
        ("", "importlib.import_module(f'zoo.ops_{self.kind}').op(x)", True),
        ("", "importlib.import_module('.ops_' + self.kind, __package__).op(x)", True),
        ("NAME = 'ops_fast'", "importlib.import_module('.' + NAME, __package__).op(x)", True),
        ("NAME = 'ops_fast'", "importlib.import_module(f'{__package__}.{NAME}').op(x)", True),
        ("NAME = 'ops_fast'", "importlib.import_module('.'.join([__package__, NAME])).op(x)", True),
        ("NAMES = {'a': '.ops_fast'}", "importlib.import_module(NAMES[self.kind], __package__).op(x)", True),
        ("NAMES = {'a': '.other'}", "importlib.import_module(NAMES[self.kind], __package__).op(x)", False),
        ("", "importlib.import_module('zoo.{}'.format(self.kind)).op(x)", True),
        ("", "importlib.import_module('zoo.ops_%s' % self.kind).op(x)", True),
        ("", "importlib.import_module(__name__.rpartition('.')[0] + '.ops_fast').op(x)", True),
        ("", "importlib.import_module(self.kind).op(x)", True),
        ("from . import ops_fast", "getattr(ops_fast, self.kind)(x)", True),
        ("from . import ops_fast", "getattr(ops_fast, f'{self.kind}p')(x)", True),
        ("from . import ops_fast", "getattr(ops_fast, f'{self.kind}_x')(x)", False),
        ("", "getattr(sys.modules['zoo.ops_fast'], 'op')(x)", True),
        ("", "sys.modules[__package__ + '.ops_fast'].op(x)", True),
        ("from .ops_fast import op", "getattr(sys.modules[__name__], self.kind)(x)", True),
        ("from . import ops_fast\nops = ops_fast", "ops.op(x)", True),
        ("from . import ops_fast\nops = ops_fast", "ops.other()", False),
        ("from . import ops_fast, other\nops = ops_fast if other.op() else other", "ops.op(x)", True),
        ("from . import ops_fast, other\nOPS = {'a': ops_fast, 'b': other}", "OPS[self.kind].op(x)", True),
        ("from . import ops_fast, other\nOPS = {'a': ops_fast, 'b': other}", "OPS['a'].op(x)", True),
        ("from . import ops_fast, other\nOPS = {'a': ops_fast, 'b': other}", "OPS['b'].op(x)", False),
        ("from . import ops_fast", "self.run(ops_fast, x)\n    def run(self, ops, x): return ops.op(x)", True),
        ("from . import ops_fast", "hasattr(ops_fast, 'get')\n    def run(self, ops, x): return ops.op(x)", False),
        ("from . import ops_fast", "[each.other() for each in (ops_fast,)]", False),
        ("from . import ops_fast", "vars(ops_fast)['op'](x)", True),
        ("from . import ops_fast", "ops_fast.__dict__['o' + 'p'](x)", True),
        ("import pkgutil", "pkgutil.resolve_name('zoo.ops_fast:op')(x)", True),
        ("import pkgutil", "pkgutil.resolve_name('zoo.ops_fast.op')(x)", True),
        ("import pkgutil", "pkgutil.resolve_name('zoo.other:op')(x)", False),
        ("from . import ops_fast\nsys.modules['zoo.fake'] = ops_fast", "x", True),
        ("from .ops_fast import *", "[each() for each in globals().values()]", True),
        ("from . import ops_fast\nops_fast.MORE = 1\nops_fast.MORE += 1", "x.op()", False),
        ("", "importlib.import_module(f'zoo.other_{self.kind}').op(x)", False),
        ("", "importlib.import_module('zoo.other').op(x)", False),
        ("", "__import__('zoo.ops_fast', fromlist=['op']).op(x)", True),
        ("from .ops_fast import get", "get(self.kind)(x)", True),
        ("from .ops_fast import named", "named()(x)", True),
        ("from .ops_fast import other", "other()", False),
        ("from .ops_fast import *", "eval(self.kind + 'p')(x)", True),
    ],
)
def test_what_is_chosen_at_run_time_falls_back_to_the_module(imports: str, value: str, runs: bool) -> None:
    model = MODEL.format(imports=imports, value=value)
    base = {"zoo/__init__.py": "", "zoo/modeling_a.py": model, "zoo/ops_fast.py": OPS, "zoo/other.py": OPS}
    head = {**base, "zoo/ops_fast.py": OPS.replace("return 1", "return 2")}
    change = FileChange("zoo/ops_fast.py", "zoo/ops_fast.py")
    selection = select([change], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == ({"AModel"} if runs else set())


FORWARDS = (
    "from . import ops_fast\ndef __getattr__(name): return getattr(ops_fast, name)\n",
    "import importlib\nops = '.ops_fast'\n"
    "def __getattr__(name): return getattr(importlib.import_module(ops, __package__), name)\n",
    "from .ops_fast import op as _op\ndef __getattr__(name): return _op\n",
    "def __getattr__(name):\n    from . import ops_fast\n    return getattr(ops_fast, name)\n",
    "from .ops_fast import op as fast\n",
)


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize(
    ("imports", "value"),
    [
        ("from .forward import fast", "fast(x)"),
        ("from . import forward", "forward.fast(x)"),
        ("import zoo.forward", "zoo.forward.fast(x)"),
        ("", "self.run(x)\n    def run(self, x):\n        from .forward import fast\n        return fast(x)"),
    ],
)
def test_a_file_that_has_the_names_of_another(forward: str, imports: str, value: str) -> None:
    model = MODEL.format(imports=imports, value=value)
    base = {"zoo/modeling_a.py": model, "zoo/forward.py": forward, "zoo/ops_fast.py": OPS}
    edits = {"zoo/ops_fast.py": OPS.replace("return 1", "return 2")}
    if "__getattr__" in forward:
        edits["zoo/forward.py"] = forward.replace("return ", "return name and ")
    for path, text in edits.items():
        selection = select(
            [FileChange(path, path)], MappingTree(base), MappingTree({**base, path: text}), Layout.MODELING
        )
        assert affected(selection) == {"AModel"}


@pytest.mark.parametrize(
    ("value", "runs"),
    [
        ("[each().run(x) for each in kinds.Base.__subclasses__()]", True),
        ("kinds.get(self.kind)().run(x)", True),
        ("kinds.Base.pick(self.kind)().run(x)", True),
        ("isinstance(x, Base)", False),
    ],
)
def test_code_that_asks_for_all_that_derive_from_a_class(value: str, runs: bool) -> None:
    kinds = "class Base:\n    @classmethod\n    def pick(cls, n): return cls.__subclasses__()[n]\n"
    kinds += "def get(n): return {each.__name__: each for each in Base.__subclasses__()}[n]\n"
    mine = "from .kinds import Base\nclass Mine(Base):\n    def run(self, x): return 1\n"
    model = MODEL.format(imports="from . import kinds, mine\nfrom .kinds import Base", value=value)
    base = {"zoo/modeling_a.py": model, "zoo/kinds.py": kinds, "zoo/mine.py": mine}
    head = {**base, "zoo/mine.py": mine.replace("return 1", "return 2")}
    change = FileChange("zoo/mine.py", "zoo/mine.py")
    selection = select([change], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == ({"AModel"} if runs else set())


TABLE = "_MAP = {table}\ndef __getattr__(name):\n    return importlib.import_module('.' + _MAP[name], __name__)\n"


@pytest.mark.parametrize(
    "package",
    [
        TABLE.format(table="{'op': 'ops_fast'}"),
        TABLE.format(table="{'op': '.ops_fast', 'other': '.other'}"),
        TABLE.format(table="{'ops_fast': ['op', 'get']}"),
        "def __getattr__(name):\n    if name == 'op':\n        from .ops_fast import op\n        return op\n",
        "from .ops_fast import op\n",
    ],
)
@pytest.mark.parametrize(
    ("imports", "value", "name"),
    [
        ("import zoo", "zoo.op(x)", "op"),
        ("from zoo import op", "op(x)", "op"),
        ("import zoo", "zoo.ops_fast.op(x)", "op"),
        ("", "self.run(x)\n    def run(self, x):\n        import zoo\n        return zoo.op(x)", "op"),
        ("import zoo", "zoo.other(x)", "other"),
    ],
)
def test_a_package_that_takes_names_from_its_files_on_demand(package: str, imports: str, value: str, name: str) -> None:
    model = MODEL.format(imports=imports, value=value)
    base = {"zoo/__init__.py": package, "zoo/modeling_a.py": model, "zoo/ops_fast.py": OPS, "zoo/other.py": OPS}
    head = {**base, "zoo/ops_fast.py": OPS.replace("return 1", "return 2")}
    change = FileChange("zoo/ops_fast.py", "zoo/ops_fast.py")
    selection = select([change], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == ({"AModel"} if name == "op" else set())


@pytest.mark.parametrize(
    ("value", "runs"),
    [
        ("json.loads(Path(__file__).with_name('table.json').read_text())", True),
        ("open(f'{HERE}/table.json')", True),
        ("open(Path(__file__).parent / 'table.json')", True),
        ("open(Path(__file__).parent / ('tab' + 'le.json'))", True),
        ("open(f'{self.kind}.json')", True),
        ("open('%s.json' % self.kind)", True),
        ("open('{}.json'.format(self.kind))", True),
        ("importlib.resources.read_text(__package__, 'table.json')", True),
        ("[open(each) for each in HERE.glob('*.json')]", True),
        ("open('other_table.json')", False),
        ("open(f'other_{self.kind}.json')", False),
        ("x  # table.json", False),
        ("helper.read(x)", True),
        ("helper.other(x)", False),
    ],
)
def test_a_data_file_that_code_of_a_model_reads(value: str, runs: bool) -> None:
    helper = "def read(x): return open('table.json')\ndef other(x):\n    'Not table.json.'\n    return x\n"
    base = {
        "zoo/modeling_a.py": MODEL.format(imports="from . import helper", value=value),
        "zoo/helper.py": helper,
        "zoo/table.json": "1",
    }
    change = FileChange("zoo/table.json", "zoo/table.json")
    head = {**base, "zoo/table.json": "2"}
    selection = select([change], MappingTree(base), MappingTree(head), Layout.MODELING)
    assert affected(selection) == ({"AModel"} if runs else set())
    assert not_run(selection) == ({} if runs else {"zoo/table.json": "not on an exported path"})


def test_the_source_of_a_kernel_is_told_with_what_reads_it() -> None:
    kernel = "src/transformers/kernels/toy/toy.cu"
    load = (
        "def load():\n    root = Path(__file__).parents[2] / 'kernels' / 'toy'\n    return build([root / 'toy.cu'])\n"
    )
    edit = {kernel: ("1", "2")}
    extra = {kernel: "1", SRC + "models/toy/kernels.py": load}
    assert not_run(run(edit, extra)) == {kernel: "not on an exported path"}
    used = {TOY: FILES[TOY].replace("self.act = ", "self.op = load(); self.act = ")}
    header = {TOY: "from .kernels import load\n" + used[TOY]}
    selection = run(edit, extra | header)
    assert affected(selection) == {"ToyModel", "ToyForCausalLM"}
    reasons = [module.reason_of("ToyModel") for module in selection.affected]
    assert reasons == ["load in kernels.py reads toy.cu, which changed → ToyLayer → ToyModel"]
    assert not_run(run(edit, {kernel: "1"})) == {kernel: "no model reads it"}
