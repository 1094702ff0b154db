from __future__ import annotations

import pytest

from hfexport_bot.runner.failures import clean, died
from hfexport_bot.schema import Layout, Outcome, OutcomeKind, RunnerSetup
from hfexport_bot.verdicts.signatures import signature

pytestmark = pytest.mark.export


@pytest.mark.parametrize("path", ["/tmp/hfexport-tree-24-cvk4/tree/zoo/a.py", "hfexport-tree-24-cvk4/tree/zoo/a.py"])
def test_no_message_names_the_folder_of_a_revision(path: str) -> None:
    """torch's "Caused by" leaves out what is above it."""
    setup = RunnerSetup(layout=Layout.MODELING, tree="/tmp/hfexport-tree-24-cvk4/tree")
    assert clean(f"Caused by: ({path}:21 in squash)", setup) == "Caused by: (zoo/a.py:21 in squash)"


def test_folders_of_a_users_tree_that_are_named_alike_stay() -> None:
    setup = RunnerSetup(layout=Layout.MODELING, tree="/x/models/zoo")
    assert clean("in models/zoo/a.py and /x/models/zoo/b.py", setup) == "in models/zoo/a.py and b.py"


TREE = "/tmp/hfexport-tree-24-cvk4/tree"
SEGFAULT = """Fatal Python error: Segmentation fault

Current thread 0x00007fcb28660b80 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "{tree}/my/{name}.py", line 37 in forward
  File "/x/torch/nn/modules/module.py", line 1789 in _call_impl
  File "{tree}/my/layers.py", line 3 in __call__
"""


def test_a_crash_is_blamed_on_the_innermost_line_of_the_code_under_test() -> None:
    setup = RunnerSetup(layout=Layout.MODELING, tree=TREE)
    crash = Outcome(kind=OutcomeKind.CRASH, stage="trace", message="killed by SIGSEGV in stage trace")
    one, other = (died(crash, SEGFAULT.format(tree=TREE, name=f"modeling_{name}"), setup) for name in "ab")
    assert str(one.location) == "my/modeling_a.py:37"
    assert [str(frame) for frame in one.frames] == ["my/modeling_a.py:37", "my/layers.py:3"]
    assert one.message.splitlines()[1:] == [
        "Fatal Python error: Segmentation fault",
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at',
        '  File "my/modeling_a.py", line 37 in forward',
        '  File "my/layers.py", line 3 in __call__',
        "  ... and 1 more",
    ]
    assert signature(one) != signature(other)


def test_where_a_limit_ends_a_case_is_told_and_no_part_of_its_signature() -> None:
    setup = RunnerSetup(layout=Layout.MODELING, tree=TREE)
    late = Outcome(kind=OutcomeKind.TIMEOUT, stage="trace", message="not done after 40 s")
    asked = f'Stack (most recent call first):\n  File "{TREE}/my/modeling_a.py", line 37 in forward\n'
    there = died(late, asked, setup)
    assert str(there.location) == "my/modeling_a.py:37"
    assert signature(there) == signature(late) == signature(died(late, asked.replace("_a", "_b"), setup))
    assert died(late, "", setup) == late
