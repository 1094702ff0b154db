"""Which entries of the auto classes' tables any code on an exported path asks for."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.facts import read_facts
from hfexport_bot.changes.families import Families
from hfexport_bot.changes.graph import Graph
from hfexport_bot.changes.lookups import Lookups
from hfexport_bot.changes.modules import Modules
from tests.hfexport_bot.changes.checkout import FILES, SRC

TAKES_OVER = """
from {up}models.auto.modeling_auto import MODEL_MAPPING
KINDS = list(MODEL_MAPPING.keys())
class Dataset:
    def __init__(self, kind): self.kind = KINDS[kind]
"""


def lookups(extra: dict[str, str]) -> Lookups:
    files = {**FILES, **{SRC + path: text for path, text in extra.items()}}
    graph = Graph(
        Modules({path: (read_facts(text.encode()),) for path, text in files.items()}, sorted(files), ("src", ""))
    )
    return Lookups(graph, Families(graph, True))


@pytest.mark.parametrize(
    ("extra", "is_asked_for"),
    [
        ({}, False),
        ({"data/datasets/squad.py": TAKES_OVER.format(up="...")}, False),
        ({"modelcard.py": TAKES_OVER.format(up=".")}, False),
        ({"kinds.py": TAKES_OVER.format(up=".")}, True),
    ],
    ids=["nobody", "a dataset", "a model card", "code of models"],
)
def test_a_table_of_training_or_saving_asks_for_no_model(extra: dict[str, str], is_asked_for: bool) -> None:
    assert lookups(extra).is_asked_for("['toy']") is is_asked_for
