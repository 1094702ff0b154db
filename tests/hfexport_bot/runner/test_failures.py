from __future__ import annotations

import pytest

from hfexport_bot.runner.failures import clean
from hfexport_bot.schema import Layout, RunnerSetup

pytestmark = pytest.mark.export


@pytest.mark.parametrize("path", ["/tmp/hfexport-tree-24-cvk4/tree/zoo/a.py", "hfexport-tree-24-cvk4/tree/zoo/a.py"])
def test_no_message_names_the_folder_of_a_revision(path: str) -> None:
    """torch's "Caused by" leaves out what is above it."""
    setup = RunnerSetup(layout=Layout.MODELING, tree="/tmp/hfexport-tree-24-cvk4/tree")
    assert clean(f"Caused by: ({path}:21 in squash)", setup) == "Caused by: (zoo/a.py:21 in squash)"


def test_folders_of_a_users_tree_that_are_named_alike_stay() -> None:
    setup = RunnerSetup(layout=Layout.MODELING, tree="/x/models/zoo")
    assert clean("in models/zoo/a.py and /x/models/zoo/b.py", setup) == "in models/zoo/a.py and b.py"
