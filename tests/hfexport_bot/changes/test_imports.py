"""Changes of imports, and of what runs when a file is imported, on a small repository of models."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.selection import NOT_EXPORTED, ONLY_IMPORTS, Selection
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout
from tests.hfexport_bot.changes.checkout import affected, not_run

MODEL = """from torch import nn
from torch.nn import GELU as Act
from transformers import PreTrainedModel
{imports}
class {name}Model(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.act = Act()
    def forward(self, x):
        return {value}
"""
BASE = {
    "zoo/__init__.py": "import os\n",
    "zoo/common.py": "import math\nfrom .util import other\ndef scale(x):\n    return math.sqrt(x)\n",
    "zoo/util.py": "def scale(x):\n    return x\ndef other(x):\n    return x\n",
    "zoo/effects.py": "import torch\ndef op(x):\n    return x\nLEVEL = 1\n",
    "zoo/modeling_a.py": MODEL.format(name="A", imports="from .common import scale\nimport json\n", value="scale(x)"),
    "zoo/modeling_b.py": MODEL.format(
        name="B", imports="from . import effects\nfrom .common import other\n", value="1"
    ),
    "zoo/modeling_c.py": MODEL.format(name="C", imports="import zoo.modeling_b as b", value="b.BModel"),
}
ALL = {"AModel", "BModel", "CModel"}


def run(path: str, old: str, new: str, extra: dict[str, str] | None = None) -> Selection:
    base = {**BASE, **(extra or {})}
    assert old in base[path]
    head = {**base, path: base[path].replace(old, new)}
    return select([FileChange(path, path)], MappingTree(base), MappingTree(head), Layout.MODELING)


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("zoo/modeling_a.py", "from .common import scale", "from .util import scale", {"AModel"}),
        ("zoo/modeling_b.py", "GELU as Act", "ReLU as Act", {"BModel", "CModel"}),
        ("zoo/modeling_a.py", "from .common import scale\n", "", {"AModel"}),
        ("zoo/modeling_a.py", "from torch.nn import GELU as Act\n", "", {"AModel"}),
        ("zoo/common.py", "import math\n", "", {"AModel"}),
        ("zoo/modeling_a.py", "import json\n", "import json\nimport missing_package\n", {"AModel"}),
        ("zoo/common.py", "import math\n", "import math\nfrom .missing import x\n", ALL),
        ("zoo/common.py", "import math\n", "import math\nfrom .util import missing\n", ALL),
        ("zoo/common.py", "import math\n", "import math\nfrom .modeling_a import AModel\n", ALL),
        ("zoo/util.py", "def other", "def another", {"AModel", "BModel", "CModel"}),
        ("zoo/effects.py", "LEVEL = 1", "raise RuntimeError", {"BModel", "CModel"}),
        ("zoo/effects.py", "LEVEL = 1", "LEVEL = (1", {"BModel", "CModel"}),
        ("zoo/effects.py", "LEVEL = 1", "torch.set_default_dtype(torch.float64)", {"BModel", "CModel"}),
        ("zoo/effects.py", "LEVEL = 1", "torch.nn.Identity.forward = op", {"BModel", "CModel"}),
        ("zoo/__init__.py", "import os", "import os)", ALL),
        ("zoo/__init__.py", "import os", "import os\nraise RuntimeError", ALL),
    ],
)
def test_what_an_import_changes_affects_what_uses_it(path: str, old: str, new: str, expected: set[str]) -> None:
    assert affected(run(path, old, new)) == expected


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("zoo/modeling_a.py", "import json\n", ""),
        ("zoo/modeling_a.py", "import json\n", "import json\nfrom .util import other\n"),
        ("zoo/modeling_a.py", "import json\n", "import json\nimport typing\n"),
        ("zoo/modeling_a.py", "import json\n", "import json\nfrom __future__ import annotations\n"),
        ("zoo/modeling_b.py", "import other", "import other, scale"),
        ("zoo/common.py", "import math\n", "import math\nif TYPE_CHECKING:\n    from .modeling_a import AModel\n"),
        ("zoo/common.py", "import math\n", "import math\ntry:\n    import fast\nexcept ImportError:\n    pass\n"),
    ],
)
def test_imports_that_nobody_uses_affect_nothing(path: str, old: str, new: str) -> None:
    selection = run(path, old, new)
    assert affected(selection) == set()
    assert not_run(selection) == {path: ONLY_IMPORTS}


def test_why_a_file_cannot_be_imported_is_said() -> None:
    (module,) = run("zoo/modeling_a.py", "import json", "import json\nfrom .gone import x").affected
    assert module.reason == "modeling_a.py imports .gone, which is not there → AModel"
    reasons = {
        module.reason_of(name) for module in run("zoo/effects.py", "LEVEL = 1", "=").affected for name in module.classes
    }
    assert any(reason.startswith("effects.py cannot be read: syntax error, line 4") for reason in reasons)


def test_a_helper_that_is_no_python_is_told_where_nothing_uses_it() -> None:
    selection = run("zoo/lone.py", "x = 1", "x = (", {"zoo/lone.py": "x = 1\n"})
    assert affected(selection) == set()
    assert not_run(selection) == {"zoo/lone.py": f"syntax error, line 1: '(' was never closed; {NOT_EXPORTED}"}


def test_what_patches_others_is_affected_by_what_it_sets_them_to() -> None:
    patch = {"zoo/effects.py": BASE["zoo/effects.py"] + "torch.nn.Identity.forward = op\n"}
    assert affected(run("zoo/effects.py", "return x", "return -x", patch)) == {"BModel", "CModel"}


STARRED = {
    "zoo/offers.py": "import math\n__all__ = ['one', 'two', 'math']\ndef one(x): return x\ndef two(x): return x\n",
    "zoo/modeling_d.py": MODEL.format(name="D", imports="from .offers import *", value="one(x)"),
    "zoo/modeling_e.py": MODEL.format(name="E", imports="from .offers import *", value="math.pi"),
    "zoo/modeling_f.py": MODEL.format(name="F", imports="from .offers import one", value="one(x)"),
}
#: ``offers.py`` has more than it offers; what it does not, ``kept.py`` offers or is a builtin.
HIDING = {
    "zoo/offers.py": "__all__ = ['one']\ndef one(x): return x\ndef two(x): return x\ndef abs(x): return x\n",
    "zoo/kept.py": "def two(x): return -x\n",
    "zoo/both/__init__.py": "from ..kept import *\nfrom ..offers import *\n",
    "zoo/modeling_d.py": MODEL.format(name="D", imports="from .offers import *", value="one(x)"),
    "zoo/modeling_e.py": MODEL.format(name="E", imports="from .offers import *", value="abs(x)"),
    "zoo/modeling_f.py": MODEL.format(name="F", imports="from .kept import *\nfrom .offers import *", value="two(x)"),
    "zoo/modeling_g.py": MODEL.format(name="G", imports="from .both import two", value="two(x)"),
}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("'one', ", "", {"DModel"}),
        ("'two', ", "", set()),
        ("__all__ = ['one'", "__all__ = ['three', 'one'", set()),
        ("import math\n", "", {"EModel"}),
    ],
)
def test_what_is_no_longer_offered_affects_star_imports_that_use_it(old: str, new: str, expected: set[str]) -> None:
    assert affected(run("zoo/offers.py", old, new, STARRED)) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("'one'", "'one', 'abs'", {"EModel"}),
        ("'one'", "'one', 'two'", {"FModel", "GModel"}),
        ("__all__ = ['one']\n", "", {"EModel", "FModel", "GModel"}),
        ("def one(x): return x\n", "def one(x): return x\ndef max(x): return x\n", set()),
    ],
)
def test_what_is_newly_offered_affects_star_imports_that_hide_another_by_it(
    old: str, new: str, expected: set[str]
) -> None:
    assert affected(run("zoo/offers.py", old, new, HIDING)) == expected


def test_a_file_too_large_to_be_read_on_both_sides_affects_what_imports_it() -> None:
    table = {
        "zoo/table.py": "T = [" + "1, " * 1_500_000 + "2]\n",
        "zoo/modeling_d.py": MODEL.format(name="D", imports="from .table import T", value="T[0]"),
        "zoo/modeling_e.py": MODEL.format(name="E", imports="", value="x"),
    }
    assert affected(run("zoo/table.py", "2]", "3]", table)) == {"DModel"}
