"""Which changes may take something away from a checkout's own exporters."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.lost_names import takes_names_away
from hfexport_bot.changes.tree import MappingTree

FILE = "src/transformers/models/a/modeling_a.py"
EXPORTERS = "src/transformers/exporters/utils.py"
CODE = '''
"""Of every model, when it is needed."""
@register_patch("onnx", "transformers.models.a.modeling_a.A.forward", "torch.where")
def _patch(original): ...

@register_export_input_preparer("grid_thw")
def _prepare(model, inputs):
    return hasattr(model, "window_size")
'''
MODEL = """
from .rotary import rotate
class Base:
    def forward(self): ...
class A(Base):
    scale = 1
    def attend(self, grid_thw):
        return rotate(self.window_size * grid_thw)
"""


def lost(before: str, now: str | None, path: str = FILE) -> bool:
    base = MappingTree({path: before.encode(), EXPORTERS: CODE.encode()})
    head = MappingTree({EXPORTERS: CODE.encode()} | ({} if now is None else {path: now.encode()}))
    return takes_names_away([FileChange(path, None if now is None else path)], base, head)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def forward(self): ...", "def run(self): ...\n    # was forward"),
        ("class A(Base):", "class A:"),
        ("class A(Base):", "class B(Base):"),
        ("window_size", "side"),
        ("grid_thw", "grids"),
        ("return rotate(", "return (rotate("),  # no Python any more
    ],
)
def test_what_the_exporters_look_for_is_missed(old: str, new: str) -> None:
    assert lost(MODEL, MODEL.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def forward(self): ...", "def forward(self, x=None): return x"),
        ("scale = 1", "factor = 2"),
        ("def attend", "def look"),
        ("from .rotary import rotate", "from .rotary import turn as rotate"),
        ("class A(Base):", "class Other: ...\nclass A(Base):"),
    ],
)
def test_what_they_do_not_look_for_is_not(old: str, new: str) -> None:
    assert MODEL.replace(old, new) != MODEL
    assert not lost(MODEL, MODEL.replace(old, new))


def test_a_file_that_goes_takes_all_of_it_and_others_are_not_theirs() -> None:
    assert lost(MODEL, None)
    assert not lost(MODEL, None, "tests/models/a/test_modeling_a.py")
    assert lost(CODE, CODE + "\n", EXPORTERS)
