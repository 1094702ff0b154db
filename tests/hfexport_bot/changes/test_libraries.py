"""Classes whose constructors want a library that is not installed."""

from __future__ import annotations

from hfexport_bot.changes.layout import model_file
from hfexport_bot.changes.libraries import lacking
from hfexport_bot.changes.selection import AffectedModule, Selection
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout

PATH = "src/transformers/models/a/modeling_a.py"
CODE = b"""
class MatchingLoss(nn.Module):
    def __init__(self):
        requires_backends(self, ["scipies"])

class Backbone(nn.Module):
    def __init__(self):
        requires_backends(self, ["vision", "timm"])

class Whole(PreTrainedModel):
    def __init__(self, config):
        self.backbone = Backbone()

class Plain(PreTrainedModel):
    \"\"\"Not like Backbone.\"\"\"
    def loss(self):
        return MatchingLoss()
"""


def test_a_class_wants_what_its_parts_want_when_they_are_made() -> None:
    file = model_file(PATH, Layout.TRANSFORMERS)
    selection = Selection(affected=(AffectedModule(None, file, (), ("Whole", "Plain"), "Plain changed"),))
    trees = MappingTree({}), MappingTree({PATH: CODE})
    assert lacking(selection, *trees, {"vision"}.__contains__) == {
        ("a", "Whole"): "it wants timm, which is not installed"
    }
    assert lacking(selection, *trees, lambda name: False) == {
        ("a", "Whole"): "it wants timm and vision, which are not installed"
    }
    assert lacking(selection, *trees, lambda name: True) == {}
