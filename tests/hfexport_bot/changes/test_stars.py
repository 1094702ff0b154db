"""A new order of imports and statements, followed to models."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.affected import select
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.selection import ONLY_MOVED, Selection, is_harmless
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout
from tests.hfexport_bot.changes.checkout import affected, not_run

MODEL = """from transformers import PreTrainedModel
from .both import {name}
class {title}Model(PreTrainedModel):
    def forward(self, x):
        return {name}(x)
"""
BASE = {
    "zoo/one.py": "def act(x): return x\ndef first(x): return x\n",
    "zoo/two.py": "def act(x): return -x\ndef second(x): return x\n_third = 3\n",
    **{f"zoo/modeling_{each}.py": MODEL.format(name=each, title=each.title()) for each in ("act", "first", "second")},
}


def run(old: str, new: str, path: str = "zoo/both.py") -> Selection:
    trees = MappingTree({**BASE, path: old}), MappingTree({**BASE, path: new})
    return select([FileChange(path, path)], *trees, Layout.MODELING)


ONE, TWO = "from .one import *\n", "from .two import *\n"
OWN = "def act(x): return 0\n"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (ONE, TWO, {"ActModel"}),
        (OWN + "def first(x): return x\n", TWO, {"ActModel"}),
        ("from .one import act, first\n", TWO, {"ActModel"}),
        ("from .one import act, first\n", "from torch import *\n", {"ActModel", "FirstModel"}),
        ("from torch import *\n", ONE, {"ActModel", "FirstModel"}),
        ("from .one import act\n", "from .two import act\n", {"ActModel"}),
        ("import math\n", TWO, set()),
    ],
)
def test_names_that_another_import_binds_by_a_new_order_are_changed(
    first: str, second: str, expected: set[str]
) -> None:
    selection = run(first + second, second + first)
    assert affected(selection) == expected
    if not expected:
        assert not_run(selection) == {"zoo/both.py": ONLY_MOVED}
        assert all(map(is_harmless, selection.not_run))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (ONE + TWO, TWO, {"ActModel", "FirstModel"}),
        (TWO, ONE + TWO, {"ActModel", "FirstModel"}),
        (ONE + "import math\n", f"import math\nif a():\n    {ONE}", {"ActModel", "FirstModel"}),
        ("from .one import act, first\n", "from .one import act, first\n" + TWO, {"ActModel", "SecondModel"}),
        (ONE, f"{ONE}if TYPE_CHECKING:\n    {TWO}", set()),
    ],
)
def test_the_names_of_a_changed_star_import_are_changed(old: str, new: str, expected: set[str]) -> None:
    assert affected(run(old, new)) == expected


def test_a_model_that_uses_such_a_name_itself_is_affected() -> None:
    model = "{}class OwnModel(PreTrainedModel):\n    def forward(self, x): return act(x)\n"
    path = "zoo/modeling_own.py"
    selection = run(model.format(ONE + TWO), model.format(TWO + ONE), path)
    assert affected(selection) == {"OwnModel"}
    assert selection.affected[0].reason == "order of act changed in modeling_own.py → OwnModel"
    assert affected(
        run(
            model.format("from math import *\nfrom torch import *\n"),
            model.format("from torch import *\nfrom math import *\n"),
            path,
        )
    ) == {"OwnModel"}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (OWN + "def act(x): return 1\n", "def act(x): return 1\n" + OWN, "order of act changed in both.py → ActModel"),
        (f"if a():\n    {OWN}", f"if b():\n    {OWN}", "condition around act changed in both.py → ActModel"),
        (
            "if a():\n    from .one import act\n",
            "if b():\n    from .one import act\n",
            "condition around act changed in both.py → ActModel",
        ),
        (
            "class A: 0\n" + OWN + "x = A\n",
            "x = A\n" + OWN + "class A: 0\n",
            "both.py uses A before it is defined → act → ActModel",
        ),
    ],
)
def test_the_chain_says_what_moved(old: str, new: str, reason: str) -> None:
    reasons = {module.reason_of(name) for module in run(old, new).affected for name in module.classes}
    assert reason in reasons
